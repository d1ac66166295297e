"""``evaluate``: subject-level cross-validation of one method, with the simple baselines on the same folds."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgemil import baselines as simple
from bridgemil import methods
from bridgemil.audit import guard
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.views import CohortView
from bridgemil.engine.execute import Where, execute, registered
from bridgemil.engine.forecast import Forecast, forecast, say_auditing
from bridgemil.engine.plan import Experiment, Plan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import Results
from bridgemil.parallel import device_of
from bridgemil.runs import RunStore

WORTHWHILE = 20.0  # seconds of forecast work from which on workers are started; their start takes some seconds


def evaluate(
    cohort: Cohort | str | Path,
    method: str = methods.METHOD,
    backbone: str = methods.BACKBONE,
    seeds: int | Sequence[int] = 1,
    budget: str = methods.BUDGET,
    out: str | Path | None = None,
    *,
    device: str = "auto",
    threads: int = 1,
    jobs: int | None = None,
    baselines: bool = True,
    progress: bool = True,
    **options: Any,
) -> Results:
    """Evaluate a method by subject-level cross-validation.

    Parameters
    ----------
    cohort : Cohort, str or Path
        A cohort or its folder.
    method, backbone, budget : str, optional
        See ``Protocol``.
    seeds : int or sequence of int, default 1
        How many seeds (0, 1, …), or which. They share one split.
    out : str or Path, optional
        Folder for the runs. Finished runs there are not run again, unfinished ones are resumed. None: nothing is kept.
    device : str, default "auto"
        ``auto``, ``cpu`` or ``cuda``.
    threads : int, default 1
        Of each run. The same number of threads gives bit-identical results, whatever ``jobs`` is.
    jobs : int, optional
        Runs at a time, each in a worker process; 1 runs them one after the other in this process. By default as many
        as idle cores and memory allow, but in this process where a worker could not do them (a cohort in memory, code
        registered in this process), where a GPU is used, or where less than 20 s of work are forecast.
    baselines : bool, default True
        Evaluate the simple baselines on the same folds too: ``results.baselines``.
    progress : bool, default True
        Show the forecast and progress on standard error.
    **options : Any
        The other fields of ``Protocol``: ``recipe, settings, folds, split, groups, leave_out, split_seed,
        adjust, bags, frozen, pretrain_on, tune, accept_risk, positive, operating_point, prevalence``.

    Returns
    -------
    Results
        Scores, predictions, windows, training curves and baselines.

    See Also
    --------
    bridgemil.evaluation.protocol.Protocol : what all of these options mean.
    """
    protocol = Protocol(method, backbone, seeds=seeds, budget=budget, **options)
    where = Where("local", jobs, threads, device)
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    protocol.clinical.check(cohort.classes)
    split, chosen, second = protocol.fold_plan(cohort), protocol.method_settings(cohort), protocol.second(cohort)
    main = Experiment(cohort, split, chosen, protocol.seed_list, pretrain_on=second)
    compared, missing = _baselines(main) if baselines else ({}, {})
    device_of(device)  # a device that is not there is better noticed before the audit
    temporary = tempfile.TemporaryDirectory(prefix="bridgemil-") if out is None else nullcontext(str(out))
    with temporary as folder:
        work = Plan([main, *compared.values()], RunStore(Path(folder)))
        in_process = _stays_in_process(work, where)
        say = say_auditing if progress else None
        found = guard({cohort: [split]}, out, protocol.accept_risk, say)[cohort.hash]
        work.experiments = [replace(experiment, warnings=found) for experiment in work.experiments]
        main, *others = work.experiments
        work.note()
        where, expected = _choose_where(work, where, in_process, progress)
        if progress:
            sys.stderr.write(f"{expected or f'{len(work.jobs)} runs: all done, read from {out}'}\n")
        required = {job.identity for job in work.jobs if job.settings in chosen.each}
        failed = execute(work, where, expected if progress else None, required=required).failed
        results = replace(main.results(work.store), clinical_options=protocol.clinical)
        done = _compared(work, results, dict(zip(compared, others, strict=True)), failed, missing)
        results = replace(results, baselines=done, missing_baselines=missing)
        if out is None:
            _ = results.windows  # read now: the folder is about to go
        return results


def _compared(
    work: Plan, results: Results, experiments: dict[str, Experiment], failed: dict[str, str], missing: dict[str, str]
) -> dict[str, Results]:
    """The results of the baselines; those of which a run failed are added to the ``missing`` ones."""
    done = dict[str, Results]()
    for name, one in experiments.items():
        errors = [
            failed[job.identity] for job in work.jobs if job.settings in one.settings.each and job.identity in failed
        ]
        if errors:
            missing[name] = errors[0]
            continue
        done[name] = replace(one.results(work.store), clinical_options=results.clinical_options)
        if name == _unadjusted(work.experiments[0]):
            # It also predicts subjects that the adjusted method does not score.
            rows = done[name].predictions
            rows = rows[rows["subject"].isin(set(results.predictions["subject"]))].reset_index(drop=True)
            done[name] = replace(done[name], title=name, predictions=rows)
    return done


def _baselines(main: Experiment) -> tuple[dict[str, Experiment], dict[str, str]]:
    """The simple baselines on the same folds, and those that this cohort does not allow.

    Where features are adjusted for sites or covariates, also the method without that.
    """
    compared, missing = {}, {}
    members = {member.method for member in main.settings.each}
    changes: dict[str, Any] = main.settings.each[0].shared  # the same subjects are scored
    if any(member.recorded for member in main.settings.each):
        changes[methods.REFERENCE] = "recorded"
    for name in simple.defaults():
        if {name} != members:
            try:
                settings = methods.for_cohort(main.cohort, name, changes=changes)
                compared[name] = replace(main, settings=settings, seeds=(0,), pretrain_on=None)
            except BadData as error:
                missing[name] = str(error)
    if main.settings.each[0].harmonises:
        compared[_unadjusted(main)] = replace(main, settings=main.settings.unadjusted)
    return compared, missing


def _unadjusted(main: Experiment) -> str:
    """Name of the same method without adjustment for sites and covariates."""
    return f"{main.settings.method}, unadjusted"


def _stays_in_process(work: Plan, where: Where) -> bool:
    """Whether the runs are done in this process, however long they take; ``jobs`` above 1 is refused if they must."""
    why = ""
    for experiment in work.experiments:
        cohorts = [one for one in (experiment.cohort, experiment.pretrain_on) if one is not None]
        if any(cohort.path is None or isinstance(cohort, CohortView) for cohort in cohorts):
            why = "workers open a cohort by its path; save it first: cohort.save(path)"
        for name in [one.backbone or one.method for one in experiment.settings.each if registered(one)]:
            why = f"{name} is known to this process only; put it in a file and name it path/to/file.py:NAME"
    if why and (where.jobs or 1) > 1:
        raise BadUse(f"jobs = {where.jobs}: {why}")
    return bool(why) or where.jobs == 1 or len(work.todo) < 2 or (where.jobs is None and bool(where.gpus))


def _choose_where(work: Plan, where: Where, in_process: bool, progress: bool) -> tuple[Where, Forecast | None]:
    """Where the runs are done, in workers or in this process, and their forecast where it is needed."""
    inline = replace(where, engine="inline", jobs=None)
    if not work.todo or (in_process and not progress):
        return inline, None
    expected = forecast(work, where)
    worthwhile = not in_process and (where.jobs is not None or sum(expected.seconds.values()) >= WORTHWHILE)
    expected.at_once = min(expected.at_once, len(work.todo)) if worthwhile else 1
    return (replace(where, jobs=expected.at_once) if expected.at_once > 1 else inline), expected
