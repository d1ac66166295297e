"""Subject-level cross-validation of one method on one backbone: every subject is held out once per seed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil import methods
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.estimate import Estimate, estimate
from bridgemil.evaluation.progress import Progress
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.run import Run, device_of
from bridgemil.learning.settings import BandPowerSettings
from bridgemil.parallel import default_threads
from bridgemil.runs import RunStore, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

Announce = Callable[[Estimate, int, int], None]  # of one run; runs to do; runs in all


def evaluate(
    cohort: Cohort | str | Path,
    method: str = "bridgemil",
    backbone: str = "eegnet",
    seeds: int | Sequence[int] = 1,
    budget: str = "laptop",
    out: str | Path | None = None,
    *,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    progress: bool = True,
    announce: Announce | None = None,
    settings: dict[str, Any] | None = None,
) -> Results:
    """Evaluate a method by subject-level cross-validation.

    Parameters
    ----------
    cohort
        A cohort or its folder.
    method, backbone, budget
        Names; see ``bridgemil.methods.names()``, ``bridgemil.backbones.names()`` and ``bridgemil.methods.budgets()``.
    seeds
        How many seeds (0, 1, …), or which. They share one split.
    out
        Folder for the runs. Finished runs there are not run again, unfinished ones go on. None: nothing is kept.
    folds, split_seed
        Folds (the cohort's own number by default) and the seed that deals subjects to them.
    split
        A saved split instead (see ``bridgemil folds``).
    groups
        A column of the cohort; subjects of one group stay in one fold.
    device, threads
        ``auto``, ``cpu`` or ``cuda``; how many threads torch may use (by default, the cores this process owns).
    progress
        Show progress on standard error.
    announce
        Called before the first run with the estimate of one run, the number of runs to do and of all runs.
    settings
        Changes to single settings: ``{"stage1.epochs": 5, "stage2.retention": 0}``.
    """
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    chosen = methods.settings(method, backbone, budget, cohort.burn_in, settings)
    plan = fold_plan(cohort, folds, split, groups, split_seed)
    where = device_of(device) if not isinstance(chosen.stage2, BandPowerSettings) else device_of("cpu")
    runs = [Run(cohort, one, chosen, seed) for seed in _seeds(seeds) for one in plan.rounds()]
    with _kept(out) as store, torch_threads(threads):
        todo = [run for run in runs if not store.is_done(run.identity)]
        if todo:
            expected = estimate(cohort, todo[0].subjects, chosen, where)
            if announce is not None:
                announce(expected, len(todo), len(runs))
            with Progress(len(todo), expected, f"{method}, {backbone}", progress) as bar:
                for run in todo:
                    bar.start_run(f"seed {run.seed}, fold {run.subjects.fold + 1} of {plan.k}")
                    bar.end_run(store.about(run.perform(store, where, bar.watch))["accuracy"])
        return gather(runs, store)


def gather(runs: Sequence[Run], store: RunStore) -> Results:
    """The results of finished runs of one experiment."""
    import pandas as pd

    predictions, curves, seconds = [], [], 0.0
    for run in runs:
        identity, mark = run.identity, {"seed": run.seed, "fold": run.subjects.fold}
        predictions.append(store.predictions(identity).assign(**mark))
        curves.append(store.curves(identity).assign(**mark))
        seconds += store.about(identity)["seconds"]
    return Results(
        runs[0].settings,
        runs[0].cohort.classes,
        pd.concat(predictions, ignore_index=True),
        _concat(curves),
        [run.identity for run in runs],
        seconds,
    )


def fold_plan(
    cohort: Cohort,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
) -> FoldPlan:
    """The saved split, or a new one."""
    if len(cohort.classes) < 2:
        raise BadData(f"the cohort has one class only ({cohort.classes[0]}): there is nothing to tell apart")
    if split is None:
        together = cohort.column(groups) if groups else None
        return SubjectKFold(cohort.folds if folds is None else folds, split_seed).plan(
            cohort.subjects, cohort.labels, together
        )
    if folds is not None or groups is not None:
        raise BadUse("a saved split already decides the folds and groups; leave --folds and --groups out")
    plan = split if isinstance(split, FoldPlan) else FoldPlan.load(split)
    plan.check(cohort.subjects)
    return plan


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    chosen = [int(s) for s in (range(int(seeds)) if isinstance(seeds, int | Integral) else seeds)]
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise BadUse(f"seeds must be one or more different whole numbers from 0, or how many; got {seeds!r}")
    return chosen


@contextmanager
def _kept(out: str | Path | None) -> Iterator[RunStore]:
    if out is not None:
        yield open_store(out)
        return
    with tempfile.TemporaryDirectory(prefix="bridgemil-") as folder:
        yield open_store(folder)


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Give torch these threads, and put them back."""
    import torch

    if threads is not None and threads < 1:
        raise BadUse(f"threads must be at least 1, got {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or default_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _concat(tables: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
