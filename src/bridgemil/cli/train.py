"""``bridgemil train``: a calibrated model for new recordings, with its card."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options
from bridgemil.cli.evaluate import BASELINES, SET

if TYPE_CHECKING:
    from bridgemil.bundle.training import Trained

NAME = "train"

folding = partial(typer.Option, rich_help_panel="Folds")
running = partial(typer.Option, rich_help_panel="Running")
SINGLE = "One model on everyone (recipe paper: one fold selects the epoch), not the mean of the folds' models."
REFERENCE = "What the recordings were made against (A1-A2): `predict` warns of recordings that say another."
RUNS = "Folder for the runs of the evaluation.  [default: OUT.runs]"


def run(
    cohort: Annotated[Path, typer.Argument(help="A cohort folder.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help=options.METHODS)] = options.METHOD,
    backbone: Annotated[str, typer.Option(help=options.BACKBONES)] = options.BACKBONE,
    recipe: Annotated[str | None, typer.Option(help=options.RECIPES)] = None,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = options.BUDGET,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, sampling and dropout.")] = 0,
    single: Annotated[bool, typer.Option("--single", help=SINGLE)] = False,
    name: Annotated[str | None, typer.Option(help="What to call it.  [default: the folder's name]")] = None,
    recorded_reference: Annotated[str | None, typer.Option(help=REFERENCE)] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=SET)] = None,
    folds: Annotated[int | None, folding(help="Folds.  [default: the cohort's own]")] = None,
    split: Annotated[Path | None, folding(help="A split written by `bridgemil folds`.")] = None,
    groups: Annotated[str | None, folding(help="Column whose groups stay in one fold (site, family).")] = None,
    split_seed: Annotated[int, folding(help="Deals subjects to folds; not the seed of the weights.")] = 0,
    runs: Annotated[Path | None, running(help=RUNS)] = None,
    overwrite: Annotated[bool, running("--overwrite", help="Replace another model in OUT.")] = False,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    baselines: Annotated[bool, running("--baselines/--no-baselines", help=BASELINES)] = True,
    accept_risk: options.AcceptRisk = None,
    positive: options.Positive = None,
    prevalence: options.Prevalence = None,
    json: options.Json = False,
) -> None:
    """Cross-validate a method, then make a calibrated model of it for new recordings, with its card.

    Example: `bridgemil train adftd.cohort --out adftd.model --method tangent`

    The model is the mean of the folds' models, calibrated with what each said of people it had not seen. Interrupted,
    the same command goes on where it stopped. Research use only.
    """
    from bridgemil.bundle.bundle import not_better_than_chance
    from bridgemil.bundle.training import train
    from bridgemil.report.terminal import print_results

    trained = train(
        cohort, out, method, backbone, recipe=recipe, budget=budget, seed=seed, single=single, folds=folds,
        split=split, groups=groups, split_seed=split_seed, runs=runs, name=name, device=device, threads=threads,
        jobs=jobs, baselines=baselines, overwrite=overwrite, progress=not json,
        settings=options.settings(set_ or []),
        accept_risk=accept_risk or (), recorded_reference=recorded_reference, positive=positive, prevalence=prevalence,
    )  # fmt: skip
    if json:
        options.print_json(to_dict(trained, out))
        return
    print_results([trained.results], list(trained.results.baselines.values()))
    metadata = trained.bundle.metadata
    before, after = (metadata["calibration"]["error"][when] for when in ("before", "after"))
    typer.echo(
        f"\nCalibration: {metadata['calibration']['sentence']}.\n  error {before['value']:.3f} before, "
        f"{after['value']:.3f} after, cross-fitted (95 % {after['ci95'][0]:.3f} to {after['ci95'][1]:.3f}; under "
        f"perfect calibration: {after['expected_if_calibrated']:.3f})"
    )
    doubt = not_better_than_chance(metadata["performance"])
    if doubt:
        typer.echo(f"WARNING: {doubt}")
    typer.echo(f"\nModel: {out} ({metadata['trained']})\nCard:  {out / 'card.md'}\nRuns:  {trained.runs}")
    after_that = f"bridgemil predict {out} RECORDING"
    if not trained.bundle.model.facts.preparation:
        after_that = f"bundle.load({str(out)!r}).probabilities(windows) in Python: it was trained on arrays"
    typer.echo(f"{metadata['notice']}\nNext:  {after_that}")


def to_dict(trained: Trained, out: Path) -> dict[str, Any]:
    """What ``train --json`` prints."""
    metadata = trained.bundle.metadata
    keys = ("name", "ensemble", "classes", "performance", "calibration", "notice")
    return {
        "model": str(out),
        "checksum": trained.bundle.checksum,
        "runs": str(trained.runs),
        **{key: metadata[key] for key in keys},
        "warnings": trained.results.warnings,
        "evaluation": trained.results.to_dict(),
    }
