"""``evaluate``: subject-level cross-validation of one method, a grid of one in this process, with its baselines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgemil import baselines, methods
from bridgemil.audit import guard, keep
from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.store import Cohort
from bridgemil.engine.display import Display, say_auditing
from bridgemil.engine.here import ThisProcess
from bridgemil.engine.plan import Experiment, Job, Plan
from bridgemil.engine.scheduler import schedule
from bridgemil.errors import BadData
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.estimate import Estimate, estimate, torch_threads
from bridgemil.evaluation.protocol import fold_plan, seed_list
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.run import device_of
from bridgemil.runs import RunStore, open_store

Announce = Callable[[Estimate, int, int], None]  # of one run; runs to do; runs in all


def evaluate(
    cohort: Cohort | str | Path,
    method: str = methods.METHOD,
    backbone: str = methods.BACKBONE,
    seeds: int | Sequence[int] = 1,
    budget: str = methods.BUDGET,
    out: str | Path | None = None,
    *,
    recipe: str | None = None,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    baselines: bool = True,
    progress: bool = True,
    announce: Announce | None = None,
    settings: dict[str, Any] | None = None,
    accept_risk: Sequence[str] = (),
    positive: str | None = None,
    operating_point: str | None = None,
    prevalence: float | None = None,
) -> Results:
    """Evaluate a method by subject-level cross-validation.

    Parameters
    ----------
    cohort
        A cohort or its folder.
    method, backbone, budget, recipe
        Names; see ``bridgemil.methods.names()``, ``bridgemil.backbones.names()``, ``bridgemil.methods.budgets()`` and
        ``bridgemil.methods.recipes()`` (by default ``ours``, but ``paper`` with the budget ``paper``). A backbone may
        also be ``file.py:NAME`` or ``module:NAME``, your own code; a
        method may be ``A+B``, the mean of several methods' probabilities.
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
    baselines
        Evaluate the simple baselines on the same folds too: ``results.baselines``.
    progress
        Show progress on standard error.
    announce
        Called before the first run with the estimate of one run, the number of runs to do and of all runs.
    settings
        Changes to single settings: ``{"stage1.epochs": 5, "stage2.retention": 0}``.
    accept_risk
        Names of findings on which the cohort may fail the quick audit that comes first; written into every result.
    positive
        The patient class of two, for ``results.clinical``; by default the one that is not called control, healthy, HC
        and the like. Like the next two it changes no run: it is applied to the held-out predictions.
    operating_point
        ``argmax`` (the predicted class; the default), ``youden``, ``sensitivity=.9`` or ``specificity=.9``: the
        threshold of a fold is chosen on the held-out predictions of the other folds.
    prevalence
        Share of patients among those who would be tested, for predictive values and the decision curve.
    """
    clinical = ClinicalOptions.of(positive, operating_point, prevalence)
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    clinical.check(cohort.classes)
    plan = fold_plan(cohort, folds, split, groups, split_seed)
    chosen = methods.for_cohort(cohort, method, backbone, budget, settings, recipe=recipe)
    main = Experiment(cohort, plan, chosen, tuple(seed_list(seeds)))
    where = device_of(device)
    audited = guard({cohort: [plan]}, out, accept_risk, say_auditing if progress else None)[cohort.hash]
    main = replace(main, warnings=audited)
    compared, missing = _baselines(main) if baselines else ({}, {})
    with _kept(out) as store, torch_threads(threads):
        keep(cohort, store.root)
        work = Plan([main, *compared.values()], store)
        jobs = [job for seed in main.seeds for job in main.jobs(seed)]
        ours = {job.identity for job in jobs}
        slow = {job.identity for job in jobs if job.settings.is_network} or ours  # a baseline's time is its features'
        todo = [job for job in work.todo if job.identity in slow]
        heard = progress or announce is not None
        expected = estimate(cohort, todo[0].subjects, todo[0].settings, where) if todo and heard else None
        if announce is not None and expected is not None:
            announce(expected, len(todo), len(slow))
        workers = ThisProcess({cohort.hash: cohort}, store, where, lambda job: job.identity not in ours)
        failed = _do(work, workers, expected, progress)
        for name, experiment in list(compared.items()):
            errors = [failed[job.identity] for job in experiment.jobs(0) if job.identity in failed]
            if errors:
                missing[name] = errors[0]
                del compared[name]
        found = {
            name: replace(experiment.results(store), clinical_options=clinical) for name, experiment in compared.items()
        }
        results = replace(main.results(store), baselines=found, missing_baselines=missing, clinical_options=clinical)
        if out is None:
            _ = results.windows  # read now: the folder is about to go
        return results


def _baselines(main: Experiment) -> tuple[dict[str, Experiment], dict[str, str]]:
    """The simple baselines on the same folds, and those that this cohort does not allow."""
    compared, missing = {}, {}
    members = {member.method for member in main.settings.each}
    for name in baselines.defaults():
        if {name} != members:
            try:
                compared[name] = replace(main, settings=methods.for_cohort(main.cohort, name), seeds=(0,))
            except BadData as error:
                missing[name] = str(error)
    return compared, missing


def _do(work: Plan, workers: ThisProcess, expected: Estimate | None, progress: bool) -> dict[str, str]:
    """Do what remains; returns the errors of the runs that may fail."""
    work.note()
    if not work.todo:
        return {}
    if not progress:
        return schedule(work.todo, work.store, workers).failed
    with Display(work.todo, {job.identity: _seconds(job, expected) for job in work.todo}, 1) as display:
        workers.listen(display.tell)
        return schedule(work.todo, work.store, workers, display).failed


def _seconds(job: Job, expected: Estimate | None) -> float:
    return expected.seconds if expected is not None and job.settings.is_network else 0.1


@contextmanager
def _kept(out: str | Path | None) -> Iterator[RunStore]:
    if out is not None:
        yield open_store(out)
        return
    with tempfile.TemporaryDirectory(prefix="bridgemil-") as folder:
        yield open_store(folder)
