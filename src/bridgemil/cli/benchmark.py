"""``bridgemil benchmark``: a grid of runs, on this machine or a Ray cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "benchmark"

folding = partial(typer.Option, rich_help_panel="Folds")
running = partial(typer.Option, rich_help_panel="Where to run")


def run(
    cohorts: Annotated[list[Path], typer.Argument(help="Cohort folders.", metavar="COHORT")],
    methods: Annotated[
        str, typer.Option(help="Methods, ablations, ensembles (A+B); comma-separated.")
    ] = options.ALL_METHODS,
    backbones: Annotated[str, typer.Option(help=f"Comma-separated: {options.BACKBONES}")] = options.BACKBONE,
    recipe: Annotated[str | None, typer.Option(help=options.RECIPES)] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; they share one split.")] = 5,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = options.BUDGET,
    out: Annotated[Path, typer.Option(help="Folder for the runs; what is finished there is not run again.")] = Path(
        "runs"
    ),
    folds: Annotated[int | None, folding(help="Folds.  [default: each cohort's own]")] = None,
    split: Annotated[Path | None, folding(help="A split written by `bridgemil folds`, for one cohort.")] = None,
    groups: Annotated[str | None, folding(help="Column whose groups stay in one fold (site, family).")] = None,
    split_seed: Annotated[int, folding(help="Deals subjects to folds; not the seed of the weights.")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A single setting: stage1.epochs=5.")] = None,
    vary: Annotated[
        list[str] | None, typer.Option(help="Several values of a setting, each run: stage2.retention=0,1e-5.")
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only say what is done and what remains.")] = False,
    engine: Annotated[str, running(help="local (processes of this machine), inline (this process) or ray.")] = "local",
    jobs: Annotated[
        int | None, running(min=1, help="Runs at a time.  [default: as many as idle cores, memory or GPUs allow]")
    ] = None,
    threads: Annotated[int, running(min=1, help="Threads (Ray: CPUs) of each run.")] = 1,
    gpus_per_run: Annotated[float, running(help="Share of a GPU each run takes, where there are any.")] = 1.0,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    address: Annotated[str | None, running(help="ray: the cluster's address.  [default: one on this machine]")] = None,
    accept_risk: options.AcceptRisk = None,
    json: options.Json = False,
) -> None:
    """Run every method on every backbone and cohort, and go on where an interrupted or killed call stopped.

    Example: `bridgemil benchmark adftd.cohort --methods attention,bridgemil --backbones eegnet,mtdnet --seeds 5`

    A failed run is kept with its error and tried again by the next call; it does not stop the others.
    """
    from bridgemil.engine.benchmark import benchmark, expect, plan
    from bridgemil.engine.execute import Where
    from bridgemil.engine.forecast import duration
    from bridgemil.report.terminal import print_warnings

    where = Where(engine, jobs, threads, device, gpus_per_run, address)
    chosen = options.names(methods) or (), options.names(backbones) or ()
    how: dict[str, Any] = {"folds": folds, "split": split, "groups": groups, "split_seed": split_seed}
    how |= {
        "settings": options.settings(set_ or []),
        "vary": options.values(vary or []),
        "accept_risk": accept_risk or (),
        "progress": not json,
    }
    grid = plan(cohorts, *chosen, seeds, budget, out, recipe=recipe, **how)
    done = len(grid.jobs) - len(grid.todo)
    expected = None if json else expect(grid, where)
    if expected is not None:
        typer.echo(str(expected), err=True)
        before = sum((out / "failed" / f"{job.identity}.json").is_file() for job in grid.todo)
        if before:
            typer.echo(f"{before} of them failed before, and are tried again", err=True)
    if not json:
        print_warnings(grid.warnings)
    content: dict[str, Any] = {"runs": len(grid.jobs), "done": done, "todo": len(grid.todo), "out": str(out)}
    content["warnings"] = grid.warnings
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
        if failed:
            _say_failures([(one["run"], one["error"]) for one in failed], out)
        if done + outcome.done:
            typer.echo(f"\nNext: bridgemil report {out}")
    if failed:
        raise typer.Exit(1)


def _say_failures(failed: Sequence[tuple[str, str]], out: Path) -> None:
    """Each error once."""
    errors: dict[str, list[str]] = {}
    for run_, words in failed:
        errors.setdefault((words.splitlines() or [""])[-1], []).append(run_)
    for words, runs in errors.items():
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        typer.echo(f"  failed: {runs[0]}{more}: {words}", err=True)
    typer.echo(f"Errors are kept in {out / 'failed'}; the same command tries these runs again.", err=True)
