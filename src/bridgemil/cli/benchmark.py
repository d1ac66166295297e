"""``bridgemil benchmark``: a grid of runs, on this machine or a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

VARY = "Run several values of a setting: stage2.retention=0,1e-5; repeatable."


def run(
    cohorts: options.CohortFolders,
    methods: Annotated[
        str, typer.Option(help="Methods, ablations, pipelines (file.py:NAME), ensembles (A+B); comma-separated.")
    ] = options.ALL_METHODS,
    backbones: Annotated[str, typer.Option(help=f"Comma-separated: {options.BACKBONES}")] = options.BACKBONE,
    seeds: options.Seeds = 5,
    out: options.Out = Path("runs"),
    vary: Annotated[list[str] | None, options.option(help=VARY)] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only list what is done and what remains.")] = False,
    *,
    training: options.Training,
    execution: options.Execution,
    progress: bool,
) -> Any:
    """Run every method on every backbone and cohort; an interrupted or killed command resumes.

    Example: `bridgemil benchmark adftd.cohort --methods attention,bridgemil --backbones eegnet,mtdnet --seeds 5`

    The error of a failed run is stored, and the next call repeats the run; other runs continue.
    """
    from bridgemil.engine.benchmark import benchmark, plan
    from bridgemil.engine.execute import Where
    from bridgemil.engine.forecast import duration, forecast
    from bridgemil.report.terminal import print_warnings

    where = Where(*execution)
    grid = plan(
        cohorts, options.names(methods) or (), options.names(backbones) or (), seeds, out=out,
        vary=options.values(vary), progress=progress, **training.protocol(),
    )  # fmt: skip
    done = len(grid.jobs) - len(grid.todo)
    expected = forecast(grid, where) if progress else None
    if expected is not None:
        typer.echo(str(expected), err=True)
        before = sum((out / "failed" / f"{job.identity}.json").is_file() for job in grid.todo)
        if before:
            typer.echo(f"{before} of them failed before and are repeated", err=True)
    print_warnings(grid.warnings)
    content = {"runs": len(grid.jobs), "done": done, "todo": len(grid.todo), "out": str(out), "warnings": grid.warnings}
    if plan_only:
        return content
    outcome = benchmark(grid, where, progress=progress, expected=expected)
    failed = [
        {"identity": job.identity, "run": str(job), "error": outcome.failed[job.identity]}
        for job in grid.jobs
        if job.identity in outcome.failed
    ]
    if grid.todo:
        typer.echo(f"{outcome.done} runs done in {duration(outcome.seconds)}, {len(failed)} failed")
    _print_failures(failed, out)
    if done + outcome.done:
        typer.echo(f"\nNext: bridgemil report {out}")
    now = {"done": done + outcome.done, "todo": len(failed), "failed": failed, "seconds": outcome.seconds}
    return content | now, bool(failed)


def _print_failures(failed: list[dict[str, str]], out: Path) -> None:
    """Print each distinct error once."""
    errors: dict[str, list[str]] = {}
    for one in failed:
        errors.setdefault((one["error"].splitlines() or [""])[-1], []).append(one["run"])
    for message, runs in errors.items():
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        typer.echo(f"  failed: {runs[0]}{more}: {message}", err=True)
    if failed:
        typer.echo(f"Errors are stored in {out / 'failed'}; the same command repeats these runs.", err=True)
