"""A small cohort on disk with 19 electrodes and finished runs of it, for what reads runs."""

from __future__ import annotations

from pathlib import Path

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.evaluate import evaluate
from bridgemil.runs import RunStore
from people import people

QUICK = {"attention": {"stage2.epochs": 3}, "bridgemil": {"stage1.epochs": 2, "stage2.epochs": 3}, "tangent": {}}


def cohort_on_disk(folder: Path, n: int = 12, windows: int = 12) -> Cohort:
    """People with two recordings each and the electrodes of the 10-20 system; patients have slow waves."""
    made = people(n, n_channels=19, windows=windows, effect=0.4)
    bags = []
    for subject in made.subjects:
        first = made.records[subject].recording_windows[0]
        bags.append([made.windows(subject)[:first], made.windows(subject)[first:]])
    cohort = Cohort.from_arrays(
        bags, made.labels, sfreq=200.0, channels=list(ADFTD_ORDER), native_sfreq=500.0, burn_in=1
    )
    return cohort.save(folder)


def evaluated(folder: Path, *methods: str) -> RunStore:
    """Finished runs of these methods on the covariance backbone, three folds, in ``folder/runs``."""
    cohort = cohort_on_disk(folder / "cohort")
    for method in methods:
        evaluate(
            cohort, method, "covariance", budget="demo", folds=3, out=folder / "runs", threads=1, progress=False,
            baselines=False, settings=QUICK.get(method, {"stage2.epochs": 3}),
        )  # fmt: skip
    return RunStore(folder / "runs")
