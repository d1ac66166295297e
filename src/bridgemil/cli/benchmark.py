"""``bridgemil benchmark``: a grid of runs, on this machine or a Ray cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

NAME = "benchmark"

running = partial(typer.Option, rich_help_panel="Where to run")
ALL_METHODS = "bandpower,majority_vote,additive,attention,millet,timemil,supcon,masked,bridgemil"


def run(
    cohorts: Annotated[list[Path], typer.Argument(help="Cohort folders.", metavar="COHORT")],
    methods: Annotated[str, typer.Option(help="Methods and ablations, comma-separated.")] = ALL_METHODS,
    backbones: Annotated[str, typer.Option(help="Backbones, comma-separated.")] = "eegnet",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; they share one split.")] = 5,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = "laptop",
    out: Annotated[Path, typer.Option(help="Folder for the runs; what is finished there is not run again.")] = Path(
        "runs"
    ),
    folds: Annotated[int | None, typer.Option(help="Folds.  [default: each cohort's own]")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A single setting: stage1.epochs=5.")] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only say what is done and what remains.")] = False,
    engine: Annotated[str, running(help="local (processes of this machine) or ray.")] = "local",
    jobs: Annotated[
        int | None, running(min=1, help="Runs at a time.  [default: as many as cores or GPUs allow]")
    ] = None,
    threads: Annotated[int, running(min=1, help="Threads (Ray: CPUs) of each run.")] = 1,
    gpus_per_run: Annotated[float, running(help="Share of a GPU each run takes, where there are any.")] = 1.0,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    address: Annotated[str | None, running(help="ray: the cluster's address.  [default: one on this machine]")] = None,
    json: options.Json = False,
) -> None:
    """Run every method on every backbone and cohort, and go on where an interrupted or killed call stopped.

    Example: `bridgemil benchmark adftd.cohort --methods attention,bridgemil --backbones eegnet,mtdnet --seeds 5`

    A failed run is kept with its error and tried again by the next call; it does not stop the others.
    """
    from bridgemil.engine.benchmark import Where, benchmark, plan
    from bridgemil.evaluation.progress import duration

    where = Where(engine, jobs, threads, device, gpus_per_run, address)
    chosen = options.names(methods) or (), options.names(backbones) or ()
    grid = plan(cohorts, *chosen, seeds, budget, out, folds=folds, settings=options.settings(set_ or []))
    done = len(grid.jobs) - len(grid.todo)
    if not json:
        before = sum((out / "failed" / f"{job.identity}.json").is_file() for job in grid.todo)
        again = f" ({before} failed before)" if before else ""
        left = duration(sum(grid.expected(where).values()))
        words = f"{len(grid.jobs)} runs: {done} done, {len(grid.todo)} to do{again}; about {left} of computing"
        typer.echo(words, err=True)
    content: dict[str, Any] = {"runs": len(grid.jobs), "done": done, "todo": len(grid.todo), "out": str(out)}
    if plan_only:
        if json:
            options.print_json(content)
        return
    outcome = benchmark(grid, where, progress=not json)
    failed = [
        {"identity": job.identity, "run": str(job), "error": outcome.failed[job.identity]}
        for job in grid.jobs
        if job.identity in outcome.failed
    ]
    if json:
        now = {"done": done + outcome.done, "todo": len(failed), "failed": failed, "seconds": outcome.seconds}
        options.print_json(content | now)
    else:
        typer.echo(f"{outcome.done} runs done in {duration(outcome.seconds)}, {len(failed)} failed")
        for one in failed:
            typer.echo(f"  failed: {one['run']}: {(one['error'].splitlines() or [''])[-1]}", err=True)
        typer.echo(f"\nNext: bridgemil report {out}")
    if failed:
        raise typer.Exit(1)
