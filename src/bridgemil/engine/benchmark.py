"""Plan a grid of runs, run it, and tabulate its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.audit import guard
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.execute import Outcome, Where, execute, only_scheduler
from bridgemil.engine.forecast import Forecast, forecast, say_auditing
from bridgemil.engine.plan import Plan, grid
from bridgemil.errors import BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.methods import BACKBONE, BUDGET, Settings, changed_from_budget, flat
from bridgemil.runs import RunStore

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("seed", "fold", "accuracy", "selected_epoch", "seconds", "threads", "device", "results_version")  # of a run


def plan(
    cohorts: Sequence[Cohort | str | Path],
    methods: Sequence[str],
    backbones: Sequence[str] = (BACKBONE,),
    seeds: int | Sequence[int] = 1,
    budget: str = BUDGET,
    out: str | Path = "runs",
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    progress: bool = False,
    **options: Any,
) -> Plan:
    """Which runs a grid has, and which of them ``out`` already holds.

    Parameters
    ----------
    cohorts, methods, backbones
        Every method is run on every backbone and cohort (on disk).
    seeds, budget, out, **options
        As for ``bridgemil.evaluate``.
    vary
        Gives settings several values, each of which is run: ``{"stage2.retention": [0, 1e-5]}``.
    progress
        Say on standard error which cohort is being audited.
    """
    opened = [cohort if isinstance(cohort, Cohort) else Cohort.open(cohort) for cohort in cohorts]
    for cohort in opened:
        if cohort.path is None:
            raise BadUse("workers open a cohort by its path; save a cohort made in memory first: cohort.save(path)")
    protocol = Protocol(seeds=seeds, budget=budget, **options)
    experiments = grid(opened, methods, backbones, protocol, vary)
    splits = {experiment.cohort: [experiment.split] for experiment in experiments}
    found = guard(splits, out, protocol.accept_risk, say_auditing if progress else None)
    audited = [replace(experiment, warnings=found[experiment.cohort.hash]) for experiment in experiments]
    return Plan(audited, RunStore(Path(out)))


def benchmark(
    grid_plan: Plan, where: Where | None = None, *, progress: bool = True, expected: Forecast | None = None
) -> Outcome:
    """Do what remains of a plan, by default on this machine's idle cores. Interrupted or killed, the same call resumes.

    Progress is shown on standard error; ``expected`` is the forecast, if it was made before.
    """
    where = where or Where()
    with only_scheduler(grid_plan.store):
        grid_plan.note()
        grid_plan.look()
        choosing = where.engine == "local" and where.jobs is None  # by the memory that the runs need
        if expected is None and grid_plan.todo and (progress or choosing):
            expected = forecast(grid_plan, where)
        if expected is not None and where.engine == "local":
            where = replace(where, jobs=expected.at_once)
        return execute(grid_plan, where, expected if progress else None)


def collect(store: RunStore) -> pd.DataFrame:
    """The finished runs of a folder, one row each.

    Settings in which runs differ from their method, recipe and budget are columns: ``stage2.retention``.
    """
    import pandas as pd

    rows, every, changed = [], [], set[str]()
    for identity in sorted(store.finished()):
        metadata = store.metadata(identity)
        settings, split = metadata["settings"], metadata["split"] or {}
        changed |= set(changed_from_budget(Settings.model_validate(settings), metadata["cohort"]["burn_in"]))
        every.append(flat(settings))
        rows.append(
            {
                "identity": identity,
                "cohort": Path(metadata["cohort"]["path"]).name or "(in memory)",
                "cohort_hash": metadata["cohort"]["hash"],
                **{key: settings[key] for key in ("method", "backbone", "budget", "recipe")},
                "settings_hash": metadata["settings_hash"],
                "split": split.get("hash"),
                "part": split.get("part", ""),
                **{key: metadata[key] for key in COLUMNS},
            }
        )
    for row, values in zip(rows, every, strict=True):
        row |= {key: values.get(key) for key in sorted(changed)}
    return pd.DataFrame(rows)
