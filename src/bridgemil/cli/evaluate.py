"""``bridgemil evaluate``: subject-level cross-validation of one method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.cohort.folds import FoldPlan
    from bridgemil.cohort.store import Cohort
    from bridgemil.evaluation.estimate import Estimate
    from bridgemil.evaluation.results import Results

NAME = "evaluate"

folding = partial(typer.Option, rich_help_panel="Folds")
running = partial(typer.Option, rich_help_panel="Running")
FLOOR = "Evaluate band power on the same folds too, to compare with."
METHODS = (
    "majority_vote, additive, attention, millet, timemil, supcon, masked, bridgemil, bandpower; or an ablation: "
    "wo_variance_covariance, wo_nearby, wo_subbag, wo_retention, supervised."
)
BACKBONES = "eegnet, conformer, lcadnet, dsainet, mtdnet or braindecode:MODEL."
OUT = "Folder for the runs; what is finished there is not run again."
SET = "A single setting: stage1.epochs=5, stage2.retention=0."


def run(
    cohort: Annotated[Path, typer.Argument(help="A cohort folder.")],
    method: Annotated[str, typer.Option(help=METHODS)] = "bridgemil",
    backbone: Annotated[str, typer.Option(help=BACKBONES)] = "eegnet",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; they share one split.")] = 1,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = "laptop",
    out: Annotated[Path, typer.Option(help=OUT)] = Path("runs"),
    set_: Annotated[list[str] | None, typer.Option("--set", help=SET)] = None,
    folds: Annotated[int | None, folding(help="Folds.  [default: the cohort's own]")] = None,
    split: Annotated[Path | None, folding(help="A split written by `bridgemil folds`.")] = None,
    groups: Annotated[str | None, folding(help="Column whose groups stay in one fold (site, family).")] = None,
    split_seed: Annotated[int, folding(help="Deals subjects to folds; not the seed of the weights.")] = 0,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, running(min=1, help="Threads.  [default: the cores available]")] = None,
    floor: Annotated[bool, running("--floor/--no-floor", help=FLOOR)] = True,
    json: options.Json = False,
) -> None:
    """Cross-validate a method over subjects, and say how sure the number is.

    Example: `bridgemil evaluate adftd.cohort --method bridgemil --backbone eegnet --seeds 1 --budget laptop --out runs`

    Every subject is held out once; normalisation, Stage 1 and selection never see it. Interrupted, the same command
    goes on where it stopped, in the middle of a fold.
    """
    from bridgemil.cohort.store import Cohort
    from bridgemil.evaluation.protocol import evaluate, fold_plan
    from bridgemil.report.results_table import against_floor, print_results

    opened = Cohort.open(cohort)
    plan = fold_plan(opened, folds, split, groups, split_seed)
    below, why = _floor(opened, plan) if floor and method != "bandpower" else (None, "")
    results = evaluate(
        opened, method, backbone, seeds, budget, out, split=plan, device=device, threads=threads, progress=not json,
        announce=None if json else _announce, settings=options.settings(set_ or []),
    )  # fmt: skip
    if json:
        content: dict[str, Any] = results.for_machines() | {"out": str(out)}
        if below is not None:
            content["bandpower"] = below.for_machines()["accuracy"] | {"sentence": against_floor(results, below)}
        options.print_json(content)
        return
    print_results([results], below)
    if why:
        typer.echo(f"No floor to compare with: {why}")
    typer.echo(f"\nRuns: {out}")


def _floor(cohort: Cohort, plan: FoldPlan) -> tuple[Results | None, str]:
    """Band power on the same folds, or why it cannot be had."""
    from bridgemil.errors import BadData
    from bridgemil.evaluation.protocol import evaluate

    try:
        return evaluate(cohort, "bandpower", split=plan, progress=False), ""
    except BadData as error:
        return None, str(error)


def _announce(one: Estimate, todo: int, every: int) -> None:
    from bridgemil.evaluation.progress import duration

    done = f", {every - todo} are done" if every > todo else ""
    typer.echo(
        f"{every} runs{done}: about {duration(one.seconds)} each, {duration(one.seconds * todo)} in all, "
        f"{one.memory / 1e9:.1f} GB of memory",
        err=True,
    )
