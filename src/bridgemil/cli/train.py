"""``bridgemil train``: a calibrated model for new recordings, with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

SINGLE = (
    "Fit one model on all subjects (recipe paper: one fold selects the epoch) instead of averaging the folds' models."
)
REFERENCE = "Recording reference (A1-A2); `predict` warns of recordings that state another."


def run(
    cohort: options.CohortFolder,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: options.Method = options.METHOD,
    backbone: options.Backbone = options.BACKBONE,
    frozen: options.Frozen = False,
    recipe: options.Recipe = None,
    budget: options.Budget = options.BUDGET,
    seed: options.Seed = 0,
    single: Annotated[bool, typer.Option("--single", help=SINGLE)] = False,
    name: Annotated[str | None, typer.Option(help="Name of the model.  [default: the folder's name]")] = None,
    recorded_reference: Annotated[str | None, typer.Option(help=REFERENCE)] = None,
    set_: options.Set = None,
    folds: options.Folds = None,
    split: options.Split = None,
    groups: options.Groups = None,
    bags: options.Bags = "subject",
    split_seed: options.SplitSeed = 0,
    pretrain_on: options.PretrainOn = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for the runs.  [default: OUT.runs]")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another model in OUT.")] = False,
    device: options.Device = "auto",
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    baselines: options.Baselines = True,
    accept_risk: options.AcceptRisk = None,
    positive: options.Positive = None,
    prevalence: options.Prevalence = None,
    json: options.Json = False,
) -> None:
    """Cross-validate a method and train a calibrated model for new recordings, with a model card.

    Example: `bridgemil train adftd.cohort --out adftd.model --method tangent`

    The model is the mean of the folds' models, calibrated on held-out predictions. If interrupted, the same command
    resumes. Research use only.
    """
    given = options.arguments(locals())
    from bridgemil.bundle.bundle import not_better_than_chance
    from bridgemil.bundle.training import train
    from bridgemil.report.terminal import print_results

    trained = train(**given)
    if json:
        keys = ("name", "ensemble", "classes", "performance", "calibration", "notice")
        content = {"model": str(out), "checksum": trained.bundle.checksum, "runs": str(trained.runs)}
        content |= {key: trained.bundle.metadata[key] for key in keys}
        options.print_json(content | {"warnings": trained.results.warnings, "evaluation": trained.results.to_dict()})
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
