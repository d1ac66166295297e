"""``bridgemil evaluate``: subject-level cross-validation of one method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "evaluate"

folding = partial(typer.Option, rich_help_panel="Folds")
running = partial(typer.Option, rich_help_panel="Running")
BASELINES = "Evaluate the simple baselines on the same folds too, to compare with."
OUT = "Folder for the runs; what is finished there is not run again."
SET = "A single setting: stage1.epochs=5, stage2.retention=0, backbone_options.depth=3."


def run(
    cohort: Annotated[Path, typer.Argument(help="A cohort folder.")],
    method: Annotated[str, typer.Option(help=options.METHODS)] = options.METHOD,
    backbone: Annotated[str, typer.Option(help=options.BACKBONES)] = options.BACKBONE,
    recipe: Annotated[str | None, typer.Option(help=options.RECIPES)] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; they share one split.")] = 1,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = options.BUDGET,
    out: Annotated[Path, typer.Option(help=OUT)] = Path("runs"),
    set_: Annotated[list[str] | None, typer.Option("--set", help=SET)] = None,
    folds: Annotated[int | None, folding(help="Folds.  [default: the cohort's own]")] = None,
    split: Annotated[Path | None, folding(help="A split written by `bridgemil folds`.")] = None,
    groups: Annotated[str | None, folding(help="Column whose groups stay in one fold (site, family).")] = None,
    split_seed: Annotated[int, folding(help="Deals subjects to folds; not the seed of the weights.")] = 0,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    baselines: Annotated[bool, running("--baselines/--no-baselines", help=BASELINES)] = True,
    accept_risk: options.AcceptRisk = None,
    positive: options.Positive = None,
    operating_point: options.OperatingPoint = None,
    prevalence: options.Prevalence = None,
    json: options.Json = False,
) -> None:
    """Cross-validate a method over subjects, and say how sure the number is.

    Example: `bridgemil evaluate adftd.cohort --method bridgemil --backbone eegnet --seeds 1 --budget laptop --out runs`

    Every subject is held out once; normalisation, Stage 1 and selection never see it. Interrupted, the same command
    goes on where it stopped, in the middle of a fold.
    """
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.parallel import peak_memory
    from bridgemil.report.terminal import print_results

    results = evaluate(
        cohort, method, backbone, seeds, budget, out, recipe=recipe, folds=folds, split=split, groups=groups,
        split_seed=split_seed, device=device, threads=threads, jobs=jobs, baselines=baselines, progress=not json,
        settings=options.settings(set_ or []),
        accept_risk=accept_risk or (), positive=positive, operating_point=operating_point, prevalence=prevalence,
    )  # fmt: skip
    if json:
        options.print_json(results.to_dict() | {"out": str(out)})
        return
    print_results([results], list(results.baselines.values()))
    for name, why in results.missing_baselines.items():
        typer.echo(f"Not compared with {name}: {why}")
    peak = peak_memory()
    memory = "" if peak is None else f"\nPeak memory: {peak / 1e9:.1f} GB (largest process)"
    typer.echo(f"{memory}\nRuns: {out}\nNext: bridgemil report {out}")
