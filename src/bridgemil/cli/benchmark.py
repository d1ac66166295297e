"""``bridgemil benchmark``: a grid of runs, on this machine or a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options


def run(
    cohorts: options.CohortFolders,
    methods: Annotated[
        str, typer.Option(help="Methods, ablations, pipelines (file.py:NAME), ensembles (A+B); comma-separated.")
    ] = options.ALL_METHODS,
    backbones: Annotated[str, typer.Option(help=f"Comma-separated: {options.BACKBONES}")] = options.BACKBONE,
    frozen: options.Frozen = False,
    recipe: options.Recipe = None,
    seeds: options.Seeds = 5,
    budget: options.Budget = options.BUDGET,
    out: options.Out = Path("runs"),
    folds: options.Folds = None,
    split: options.Split = None,
    groups: options.Groups = None,
    split_seed: options.SplitSeed = 0,
    pretrain_on: options.PretrainOn = None,
    set_: options.Set = None,
    vary: options.Vary = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only list what is done and what remains.")] = False,
    engine: options.Engine = "local",
    jobs: options.Jobs = None,
    threads: options.Threads = 1,
    gpus_per_run: options.Gpus = 1.0,
    device: options.Device = "auto",
    address: options.Address = None,
    accept_risk: options.AcceptRisk = None,
    json: options.Json = False,
) -> None:
    """Run every method on every backbone and cohort; an interrupted or killed command resumes.

    Example: `bridgemil benchmark adftd.cohort --methods attention,bridgemil --backbones eegnet,mtdnet --seeds 5`

    The error of a failed run is stored, and the next call repeats the run; other runs continue.
    """
    from bridgemil.engine.benchmark import benchmark, expect, plan
    from bridgemil.engine.execute import Where
    from bridgemil.engine.forecast import duration
    from bridgemil.report.terminal import print_warnings

    where = Where(engine, jobs, threads, device, gpus_per_run, address)
    grid = plan(
        cohorts, options.names(methods) or (), options.names(backbones) or (), seeds, budget, out, recipe=recipe,
        folds=folds, split=split, groups=groups, split_seed=split_seed, pretrain_on=pretrain_on, frozen=frozen,
        settings=options.settings(set_), vary=options.values(vary), accept_risk=accept_risk or (), progress=not json,
    )  # fmt: skip
    done = len(grid.jobs) - len(grid.todo)
    expected = None if json else expect(grid, where)
    if expected is not None:
        typer.echo(str(expected), err=True)
        before = sum((out / "failed" / f"{job.identity}.json").is_file() for job in grid.todo)
        if before:
            typer.echo(f"{before} of them failed before and are repeated", err=True)
    if not json:
        print_warnings(grid.warnings)
    content = {"runs": len(grid.jobs), "done": done, "todo": len(grid.todo), "out": str(out), "warnings": grid.warnings}
    if plan_only:
        if json:
            options.print_json(content)
        return
    outcome = benchmark(grid, where, progress=not json, expected=expected)
    failed = [
        {"identity": job.identity, "run": str(job), "error": outcome.failed[job.identity]}
        for job in grid.jobs
        if job.identity in outcome.failed
    ]
    if json:
        now = {"done": done + outcome.done, "todo": len(failed), "failed": failed, "seconds": outcome.seconds}
        options.print_json(content | now)
    else:
        if grid.todo:
            typer.echo(f"{outcome.done} runs done in {duration(outcome.seconds)}, {len(failed)} failed")
        _print_failures(failed, out)
        if done + outcome.done:
            typer.echo(f"\nNext: bridgemil report {out}")
    if failed:
        raise typer.Exit(1)


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
