"""What part of the loss between sites each remedy repairs, on synthetic sites with a known and equal disease effect.

For each shift of `bridgemil synth --site-shift`, the AUROC of a baseline:

- internal: cross-validation with sites mixed over the folds, which a pooled study would report;
- left out: each site tested by models of the others, without adjustment and with `site_adjust=people`,
  `site_adjust=controls` and `--adjust age`. Of a left-out site, the mean over sites with its own ranking, and (balanced
  accuracy) at the threshold of the training sites;
- the same with the recorded reference.

The same people without any shift are the ceiling. Means over seeds, and the largest standard error of a column.
python benchmarks/synthetic_sites.py [--method tangent] [--seeds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from bridgemil import Cohort, evaluate
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.synthetic import SITE_SHIFTS, SynthSettings, simulate
from bridgemil.evaluation.results import Results

STRENGTH = 0.8  # of the disease, about half of the default, so that nothing is perfect
RECORDED = {"baselines.reference": "recorded"}
REMEDIES: dict[str, dict[str, Any]] = {
    "none": {},
    "people": {"settings": {"site_adjust": "people"}},
    "controls": {"settings": {"site_adjust": "controls"}},
    "age": {"adjust": ("age",)},
    "recorded reference": {"settings": RECORDED},
}


def cohort_of(settings: SynthSettings, jobs: int) -> Cohort:
    """The simulated people, windows of one second."""

    def one(index: int) -> np.ndarray:
        signal = simulate(settings, index).signal.astype(np.float32)
        return signal.reshape(len(signal), settings.seconds, settings.sfreq).swapaxes(0, 1)

    people = range(settings.subjects)
    bags = Parallel(n_jobs=jobs)(delayed(one)(index) for index in people)
    columns = {"site": [settings.site(i).name for i in people], "age": [settings.age(i) for i in people]}
    labels = ["patient" if i % 2 else "control" for i in people]
    return Cohort.from_arrays(bags, labels, sfreq=settings.sfreq, channels=list(ADFTD_ORDER), columns=columns, folds=5)


def scores(results: Results) -> tuple[float, float]:
    """AUROC and balanced accuracy: of left-out sites their mean, of folds of all sites pooled."""
    table = results.groups if len(results.groups) else results.summary
    return float(table["auroc"].mean()), float(table["balanced_accuracy"].mean())


def compared(shift: tuple[str, ...], seed: int, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Scores of internal cross-validation, and of left-out sites with each remedy."""
    settings = SynthSettings(
        subjects=arguments.subjects, seconds=60, sfreq=128, evidence="trait", seed=seed, sites=3,
        site_shift=shift, trait_strength=STRENGTH,
    )  # fmt: skip
    cohort = cohort_of(settings, arguments.jobs)
    how: dict[str, Any] = {"baselines": False, "progress": False, "jobs": 1}
    with tempfile.TemporaryDirectory() as out:
        found = [scores(evaluate(cohort, arguments.method, out=out, **how))]
        for remedy in REMEDIES.values():
            own = {**remedy, "settings": {**remedy.get("settings", {})}}
            if own["settings"].get("site_adjust") == "controls":
                own["settings"]["site_controls"] = arguments.controls
            found.append(scores(evaluate(cohort, arguments.method, out=out, leave_out="site", **how, **own)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["bandpower", "tangent"], default="bandpower")
    parser.add_argument("--subjects", type=int, default=90)
    parser.add_argument("--controls", type=int, default=8, help="set aside at a left-out site")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    shifts: list[tuple[str, ...]] = [(), *((name,) for name in SITE_SHIFTS), tuple(SITE_SHIFTS)]
    if arguments.quick:
        shifts, arguments.subjects, arguments.controls, arguments.jobs, arguments.seeds = [("gain",)], 24, 2, 1, 2
    print(f"{arguments.method}, {arguments.subjects} subjects at 3 sites, {arguments.seeds} seeds; AUROC / balanced")
    print(f"| sites differ in | internal | left out: {' | '.join(REMEDIES)} |\n|{'---|' * (len(REMEDIES) + 2)}")
    errors = []
    for chosen in shifts:
        every = np.array([compared(chosen, seed, arguments) for seed in range(arguments.seeds)])
        errors.append(every.std(axis=0, ddof=1) / np.sqrt(arguments.seeds))
        shown = [f"{auroc:.2f} / {balanced:.2f}" for auroc, balanced in every.mean(axis=0)]
        print(f"| {', '.join(chosen) or 'nothing'} | {' | '.join(shown)} |", flush=True)
    shown = [f"{auroc:.2f} / {balanced:.2f}" for auroc, balanced in np.max(errors, axis=0)]
    print(f"| largest standard error | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
