"""Run a grid and gather its results: a row a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.audit import guard, keep
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.engine.execute import Where, execute
from bridgemil.engine.forecast import Forecast, forecast
from bridgemil.engine.plan import Job, Plan, grid
from bridgemil.engine.scheduler import Outcome, only_scheduler
from bridgemil.errors import BadUse
from bridgemil.methods import BACKBONE, BUDGET
from bridgemil.parallel import device_of
from bridgemil.runs import RunStore, open_store

if TYPE_CHECKING:
    import pandas as pd


def plan(
    cohorts: Sequence[Cohort | str | Path],
    methods: Sequence[str],
    backbones: Sequence[str] = (BACKBONE,),
    seeds: int | Sequence[int] = 1,
    budget: str = BUDGET,
    out: str | Path = "runs",
    *,
    recipe: str | None = None,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    accept_risk: Sequence[str] = (),
    watch: Callable[[str], None] | None = None,
) -> Plan:
    """Which runs a grid has, and which of them ``out`` already holds. The arguments are those of ``evaluate``.

    ``vary`` gives settings several values, each of which is run: ``{"stage2.retention": [0, 1e-5]}``.
    ``watch`` is called with the name of each cohort that has to be audited first.
    """
    opened = [cohort if isinstance(cohort, Cohort) else Cohort.open(cohort) for cohort in cohorts]
    for cohort in opened:
        if cohort.path is None:
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
    how: dict[str, Any] = {"folds": folds, "split": split, "groups": groups, "split_seed": split_seed}
    experiments = grid(opened, methods, backbones, seeds, budget, recipe=recipe, **how, changes=settings, vary=vary)
    found = guard({experiment.cohort: [experiment.split] for experiment in experiments}, out, accept_risk, watch)
    audited = [replace(experiment, warnings=found[experiment.cohort.hash]) for experiment in experiments]
    return Plan(audited, RunStore(Path(out)))


def benchmark(
    grid_plan: Plan,
    where: Where | None = None,
    *,
    progress: bool = True,
    expected: Forecast | None = None,
) -> Outcome:
    """Do what remains of a plan. Interrupted or killed, the same call resumes.

    Parameters
    ----------
    grid_plan
        From ``plan``.
    where
        This machine's idle cores by default.
    progress
        Show progress on standard error.
    expected
        The forecast of the runs, if ``expect`` was asked before.
    """
    where = where or Where()
    open_store(grid_plan.store.root)
    with only_scheduler(grid_plan.store):
        for cohort in grid_plan.cohorts.values():
            keep(cohort, grid_plan.store.root)
        grid_plan.note()
        grid_plan.look()
        choosing = where.engine == "local" and where.jobs is None  # by the memory that the runs need
        if expected is None and grid_plan.todo and (progress or choosing):
            expected = expect(grid_plan, where)
        if expected is not None and where.engine == "local":
            where = replace(where, jobs=expected.at_once)
        return execute(grid_plan, where, expected, progress=progress)


def expect(grid_plan: Plan, where: Where) -> Forecast:
    """Forecast what remains of a plan.

    Parameters
    ----------
    grid_plan
        From ``plan``.
    where
        On what it will run.
    """
    device = device_of(where.device if where.engine != "ray" else "auto")
    expected = forecast(grid_plan, device, where.threads)
    expected.at_once = where.at_once(expected.memory)
    return expected


def collect(store: RunStore, jobs: Sequence[Job] | None = None) -> pd.DataFrame:
    """Finished runs, a row each: of these jobs, or all that the folder holds.

    Settings in which runs differ from their method, recipe and budget are columns: ``stage2.retention``.
    """
    import pandas as pd

    wanted = store.finished()
    if jobs is not None:
        wanted &= {job.identity for job in jobs}
    rows, chosen = [], []
    for identity in sorted(wanted):
        about = store.metadata(identity)
        chosen.append(_settings(about))
        settings, split = about["settings"], about.get("split") or {}  # another version's run may have none
        rows.append(
            {
                "identity": identity,
                "cohort": Path(about["cohort"]["path"]).name or "(in memory)",
                "cohort_hash": about["cohort"]["hash"],
                "method": settings["method"],
                "backbone": settings["backbone"],
                "budget": settings["budget"],
                "recipe": settings.get("recipe"),
                "settings_hash": about["settings_hash"],
                "split": split.get("hash"),
                "part": split.get("part", ""),
                "seed": about["seed"],
                "fold": about["fold"],
                "accuracy": about["accuracy"],
                "selected_epoch": about["selected_epoch"],
                "seconds": about["seconds"],
                "threads": about["threads"],
                "device": about["device"],
                "results_version": about["results_version"],
            }
        )
    changed = sorted({key for usual, _ in chosen for key in usual})
    for row, (_, values) in zip(rows, chosen, strict=True):
        row |= {key: values.get(key) for key in changed}
    return pd.DataFrame(rows)


def _settings(about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the user set of a run's settings, and all of them, flat; nothing of a version that had others."""
    from pydantic import ValidationError

    from bridgemil import methods

    try:
        settings = methods.Settings.model_validate(about["settings"])
    except ValidationError:
        return {}, {}
    return methods.changed_from_budget(settings, about["cohort"].get("burn_in")), methods.flat(about["settings"])
