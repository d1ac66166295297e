"""``bridgemil reproduce``: the paper's tables and studies, from its public data sets to a report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.engine.plan import Plan
    from bridgemil.studies import StudyContext

PRESETS = ("adftd", "mumtaz2017", "rockhill2021")
TABLE = "table1"
STUDIES = {  # of the paper, and the cohorts it used
    "reliability": PRESETS,
    "scarcity": ("adftd",),
    "representation": ("rockhill2021",),
    "ablation": PRESETS,
    "sensitivity": ("adftd",),
}
BACKBONES = "eegnet,conformer,lcadnet,dsainet,mtdnet"


def run(
    data: Annotated[Path, typer.Option(help=f"Folder that holds {', '.join(PRESETS)}, or some of them.")],
    out: Annotated[Path, typer.Option(help="Folder for cohorts, runs, tables and figures; what is done is reused.")],
    only: Annotated[
        str | None, typer.Option(help=f"Parts, comma-separated: {', '.join((TABLE, *STUDIES))}.  [default: all]")
    ] = None,
    methods: Annotated[str, typer.Option(help="Methods of Table 1, comma-separated.")] = options.ALL_METHODS,
    backbones: Annotated[str, typer.Option(help="Backbones of Table 1, comma-separated.")] = BACKBONES,
    seeds: options.Seeds = 5,
    budget: options.Budget = "paper",
    folds: options.Folds = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Prepare, then only print the plan.")] = False,
    accept_risk: options.AcceptRisk = None,
    *,
    execution: options.Execution,
    progress: bool,
) -> Any:
    """Prepare the paper's data sets, run its table and studies with its recipe, and write a report.

    Example: `bridgemil reproduce --data data --out reproduced --plan`

    Each data set is in a folder of its name, as `bridgemil download adftd data/adftd` leaves it. The plan has the hours
    that remain, from steps of every network timed on this machine. Interrupted or killed, the same command resumes.
    """
    from bridgemil.cli import report
    from bridgemil.engine.benchmark import benchmark, plan
    from bridgemil.engine.execute import Where
    from bridgemil.errors import one_of
    from bridgemil.evaluation.protocol import Protocol
    from bridgemil.studies import StudyContext, study

    parts = options.names(only) or (TABLE, *STUDIES)
    for part in parts:
        one_of("--only", part, (TABLE, *STUDIES))
    where = Where(*execution)
    how: dict[str, Any] = {"seeds": seeds, "budget": budget, "recipe": "paper", "folds": folds}
    how["accept_risk"] = accept_risk or ()
    cohorts = _prepared(data, out, progress)
    grid = [*cohorts.values()], options.names(methods) or (), options.names(backbones) or ()
    table = plan(*grid, out=out / "runs", **how)
    protocol = Protocol(backbone="eegnet", **how)
    contexts = {
        name: StudyContext(tuple(used), out, protocol, where=where, progress=progress)
        for name, presets in STUDIES.items()
        if name in parts and (used := [cohorts[preset] for preset in presets if preset in cohorts])
    }
    planned = _planned(table if TABLE in parts else None, contexts, where.threads)
    _print_plan(planned)
    if plan_only:
        return {"plan": planned}
    if TABLE in parts and (failed := benchmark(table, where, progress=progress).failed):
        where_to = out / "runs" / "failed"
        typer.echo(f"{len(failed)} runs failed; errors are in {where_to}, the same command repeats them", err=True)
        raise typer.Exit(1)
    found = {name: study(name, context) for name, context in contexts.items()}
    for name, findings in found.items():
        typer.echo(f"\n{name}")
        for sentence in findings.sentences:
            typer.echo(f"  {sentence}")
    content = report.run(out / "runs", html=True, progress=progress)
    studies = "".join(f", {out / name / 'findings.md'}" for name in contexts)
    typer.echo(f"\nReport: {out / 'runs' / 'report' / 'report.html'}{studies}")
    return content


def _prepared(data: Path, out: Path, show: bool) -> dict[str, Cohort]:
    """The cohorts of the data sets that are there; those that are not are named."""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.errors import NotFound

    found = [preset for preset in PRESETS if (data / preset).is_dir()]
    if not found:
        raise NotFound(f"{data}: holds none of {', '.join(PRESETS)}; run `bridgemil download adftd {data / 'adftd'}`")
    for preset in PRESETS:
        if preset not in found:
            typer.echo(f"not in {data}: {preset}; its columns and studies are left out", err=True)
    return {name: prepare(data / name, out / f"{name}.cohort", preset=name, progress=show) for name in found}


def _planned(table: Plan | None, contexts: dict[str, StudyContext], threads: int) -> list[dict[str, Any]]:
    """Runs that remain of every part, with hours on the processor and, where there is one, on the GPU."""
    import torch

    from bridgemil.engine.execute import Where
    from bridgemil.engine.forecast import forecast

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    plans = {TABLE: table, **{name: _first_runs(name, context) for name, context in contexts.items()}}
    seen, rows = set[str](), []
    for name, plan in plans.items():
        if plan is None:
            continue
        plan.todo = [job for job in plan.todo if job.identity not in seen]
        seen |= {job.identity for job in plan.todo}
        hours = dict.fromkeys(devices, 0.0)
        if plan.todo:
            alone = {device: Where("inline", None, threads, device) for device in devices}  # one run at a time
            hours = {device: forecast(plan, where).left() / 3600 for device, where in alone.items()}
        cohorts = sorted({Path(job.cohort).stem for job in plan.jobs})
        rows.append({"part": name, "cohorts": cohorts, "runs": len(plan.jobs), "todo": len(plan.todo), "hours": hours})
    return rows


def _print_plan(rows: list[dict[str, Any]]) -> None:
    from bridgemil.report.tables import Sheet
    from bridgemil.report.terminal import print_sheets

    devices = list(rows[0]["hours"])
    shown = [
        [row["part"], ", ".join(row["cohorts"]), str(row["runs"]), str(row["todo"]),
         *(f"{row['hours'][device]:.1f}" for device in devices)]
        for row in rows
    ]  # fmt: skip
    notes = [
        "Hours of one run at a time. Runs that parts share are counted once.",
        "Of a study only the first runs are known; later ones depend on their results.",
        *([] if "cuda" in devices else ["No GPU here: hours on one are not estimated."]),
    ]
    columns = ["part", "cohorts", "runs", "to do", *(f"{name.upper()} hours" for name in devices)]
    print_sheets([Sheet("Runs that remain", columns, shown, after=notes)])


class _PlannedError(Exception):
    """Ends a study when its first runs are known."""


def _first_runs(name: str, context: StudyContext) -> Plan | None:
    """The runs that a study asks for first."""
    from bridgemil.engine.plan import Experiment, Plan
    from bridgemil.evaluation.results import Results
    from bridgemil.studies import STUDIES as REGISTRY
    from bridgemil.studies import StudyContext

    asked: list[Experiment] = []

    class Planning(StudyContext):
        def perform(self, experiments: Sequence[Experiment]) -> list[Results]:
            asked.extend(experiments)
            raise _PlannedError

    with suppress(_PlannedError):
        REGISTRY.load(name).perform(Planning(context.cohorts, context.out, context.protocol))
    return Plan(asked, context.store) if asked else None
