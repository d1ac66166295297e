"""``evaluate``: subject-level cross-validation of one method, with the simple baselines on the same folds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgemil import baselines, methods
from bridgemil.audit import guard, keep
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.subset import CohortSubset
from bridgemil.engine.display import say_auditing
from bridgemil.engine.execute import Where, execute
from bridgemil.engine.forecast import Forecast, forecast
from bridgemil.engine.plan import Experiment, Plan
from bridgemil.engine.work import registered
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.protocol import fold_plan, seed_list
from bridgemil.evaluation.results import Results
from bridgemil.parallel import device_of
from bridgemil.runs import RunStore, open_store

Announce = Callable[[Forecast], None]
WORTH = 20.0  # seconds of work from which on workers, which take some seconds to start, are worth it


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
    threads: int = 1,
    jobs: int | None = None,
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
    cohort : Cohort, str or Path
        A cohort or its folder.
    method, backbone, budget, recipe : str, optional
        Names; see ``bridgemil.methods.names()``, ``bridgemil.backbones.names()``, ``bridgemil.methods.budgets()`` and
        ``bridgemil.methods.recipes()`` (by default ``ours``, but ``paper`` with the budget ``paper``). A backbone may
        also be ``file.py:NAME`` or ``module:NAME``, your own code; a
        method may be ``A+B``, the mean of several methods' probabilities.
    seeds : int or sequence of int, default 1
        How many seeds (0, 1, …), or which. They share one split.
    out : str or Path, optional
        Folder for the runs. Finished runs there are not run again, unfinished ones go on. None: nothing is kept.
    folds, split_seed : int, optional
        Folds (the cohort's own number by default) and the seed that deals subjects to them.
    split : FoldPlan, str or Path, optional
        A saved split instead (see ``bridgemil folds``).
    groups : str, optional
        A column of the cohort; subjects of one group stay in one fold.
    device : str, default "auto"
        ``auto``, ``cpu`` or ``cuda``.
    threads : int, default 1
        Of each run. The same number of threads gives bit-identical results, whatever ``jobs`` is.
    jobs : int, optional
        Runs at a time, each in a worker process; 1 runs them one after the other in this process. By default as many
        as idle cores and memory allow, but in this process where a worker could not do them (a cohort in memory, code
        registered in this process), where a GPU is used, and where less than ``WORTH`` seconds of work are forecast.
    baselines : bool, default True
        Evaluate the simple baselines on the same folds too: ``results.baselines``.
    progress : bool, default True
        Show progress on standard error.
    announce : callable, optional
        Called before the first run with the forecast of all runs, the baselines' among them.
    settings : dict, optional
        Changes to single settings: ``{"stage1.epochs": 5, "stage2.retention": 0}``.
    accept_risk : sequence of str, optional
        Names of findings on which the cohort may fail the quick audit that comes first; written into every result.
    positive : str, optional
        The patient class of two, for ``results.clinical``; by default the one that is not called control, healthy, HC
        and the like. Like the next two it changes no run: it is applied to the held-out predictions.
    operating_point : str, optional
        ``argmax`` (the predicted class; the default), ``youden``, ``sensitivity=.9`` or ``specificity=.9``: the
        threshold of a fold is chosen on the held-out predictions of the other folds.
    prevalence : float, optional
        Share of patients among those who would be tested, for predictive values and the decision curve.

    Returns
    -------
    Results
        Scores, predictions, windows, training curves and baselines.
    """
    clinical = ClinicalOptions.of(positive, operating_point, prevalence)
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    clinical.check(cohort.classes)
    plan = fold_plan(cohort, folds, split, groups, split_seed)
    chosen = methods.for_cohort(cohort, method, backbone, budget, settings, recipe=recipe)
    main = Experiment(cohort, plan, chosen, tuple(seed_list(seeds)))
    where = Where("local", jobs, threads, device)
    device_of(device)  # a device that is not there is better noticed before the audit
    audited = guard({cohort: [plan]}, out, accept_risk, say_auditing if progress else None)[cohort.hash]
    main = replace(main, warnings=audited)
    compared, missing = _baselines(main) if baselines else ({}, {})
    with _kept(out) as store:
        keep(cohort, store.root)
        work = Plan([main, *compared.values()], store)
        work.note()
        where, expected = _settled(work, where, forecasting=progress or announce is not None)
        if announce is not None and expected is not None:
            announce(expected)
        ours = {job.identity for seed in main.seeds for job in main.jobs(seed)}
        failed = execute(work, where, expected, progress=progress, required=ours).failed
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


def _settled(work: Plan, where: Where, *, forecasting: bool) -> tuple[Where, Forecast | None]:
    """Where the runs are done, in workers or in this process, and their forecast where it is needed."""
    inline, here = replace(where, engine="inline", jobs=None), _only_here(work)
    if here and (where.jobs or 1) > 1:
        raise BadUse(f"jobs = {where.jobs}: {here}")
    alone = bool(here) or where.jobs == 1 or len(work.todo) < 2 or (where.jobs is None and where.gpus > 0)
    if not work.todo or (alone and not forecasting):
        return inline, None
    expected = forecast(work, device_of(where.device), where.threads)
    if alone or (where.jobs is None and expected.left() < WORTH):
        return inline, expected
    expected.at_once = min(where.at_once(expected.memory), len(work.todo))
    return (inline if expected.at_once == 1 else replace(where, jobs=expected.at_once)), expected


def _only_here(work: Plan) -> str:
    """Why a worker process could not do these runs; empty if it can."""
    for experiment in work.experiments:
        if experiment.cohort.path is None or isinstance(experiment.cohort, CohortSubset):
            return "workers open a cohort by its path; save it first: cohort.save(path)"
        for settings in experiment.settings.each:
            if registered(settings):
                name = settings.backbone or settings.method
                return f"{name} is known to this process only; put it in a file and name it path/to/file.py:NAME"
    return ""


@contextmanager
def _kept(out: str | Path | None) -> Iterator[RunStore]:
    if out is not None:
        yield open_store(out)
        return
    with tempfile.TemporaryDirectory(prefix="bridgemil-") as folder:
        yield open_store(folder)
