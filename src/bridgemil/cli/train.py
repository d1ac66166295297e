"""``bridgemil train``: a calibrated model for new recordings, with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

SINGLE = "Fit one model on all subjects (recipe paper: one fold selects the epoch), not the mean of the folds' models."
REFERENCE = "Recording reference (A1-A2); `predict` warns of recordings that state another."


def run(
    cohort: options.CohortFolder,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    evaluation: options.Evaluation,
    seed: options.Seed = 0,
    single: Annotated[bool, typer.Option("--single", help=SINGLE)] = False,
    name: options.ModelName = None,
    recorded_reference: Annotated[str | None, typer.Option(help=REFERENCE)] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for the runs.  [default: OUT.runs]")] = None,
    overwrite: options.Overwrite = False,
    *,
    training: options.Training,
    progress: bool,
) -> Any:
    """Cross-validate a method and train a calibrated model for new recordings, with a model card.

    Example: `bridgemil train adftd.cohort --out adftd.model --method tangent`

    The model is the mean of the folds' models, calibrated on held-out predictions. If interrupted, the same command
    resumes. Research use only.
    """
    from bridgemil.bundle.bundle import not_better_than_chance
    from bridgemil.bundle.training import train
    from bridgemil.report.terminal import print_results

    trained = train(
        cohort, out, seed=seed, single=single, name=name, recorded_reference=recorded_reference, runs=runs,
        overwrite=overwrite, progress=progress, **evaluation._asdict(), **training.protocol(),
    )  # fmt: skip
    metadata, results = trained.bundle.metadata, trained.results
    print_results([results], list(results.baselines.values()))
    before, after = (metadata["calibration"]["error"][when] for when in ("before", "after"))
    typer.echo(
        f"\nCalibration: {metadata['calibration']['sentence']}\n  ({metadata['calibration']['why']}).\n"
        f"  Error {before['value']:.3f} before; {after['value']:.3f} after, cross-fitted: each fold is calibrated as\n"
        "  the other folds alone would choose, whatever is kept "
        f"(95 % {after['ci95'][0]:.3f} to {after['ci95'][1]:.3f}; "
        f"under perfect calibration: {after['expected_if_calibrated']:.3f})."
    )
    if doubt := not_better_than_chance(metadata["performance"]):
        typer.echo(f"WARNING: {doubt}")
    typer.echo(f"\nModel: {out} ({metadata['trained']})\nCard:  {out / 'card.md'}\nRuns:  {trained.runs}")
    after_that = f"bridgemil predict {out} RECORDING"
    if trained.bundle.model.sites:
        after_that = f"bridgemil adapt {out} RECORDINGS of healthy subjects --out {out}2"
    if not trained.bundle.model.facts.preparation:
        after_that = f"bundle.load({str(out)!r}).probabilities(windows) in Python: it was trained on arrays"
    typer.echo(f"{metadata['notice']}\nNext:  {after_that}")
    keys = ("name", "ensemble", "classes", "performance", "calibration", "notice")
    content = {"model": str(out), "checksum": trained.bundle.checksum, "runs": str(trained.runs)}
    content |= {key: metadata[key] for key in keys}
    return lambda: content | {"warnings": results.warnings, "evaluation": results.to_dict()}
