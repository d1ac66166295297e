"""``bridgemil evaluate``: subject-level cross-validation of one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

TUNE = "Choose among values of a setting within the training subjects of each fold: stage2.lr=1e-3,5e-3; repeatable."
LEAVE_OUT = "Column, such as site: each of its values is the test set once."
ADJUST = "Remove the linear effect of these columns on the features, estimated on training controls: age,sex."


def run(
    cohort: options.CohortFolder,
    evaluation: options.Evaluation,
    seeds: options.Seeds = 1,
    out: options.Out = Path("runs"),
    tune: Annotated[list[str] | None, options.option(help=TUNE)] = None,
    leave_out: Annotated[str | None, options.option(help=LEAVE_OUT, panel=options.FOLDS)] = None,
    adjust: Annotated[str | None, options.option(help=ADJUST)] = None,
    operating_point: options.OperatingPoint = None,
    *,
    training: options.Training,
    progress: bool,
) -> Any:
    """Cross-validate a method over subjects, with confidence intervals, the chance level and baselines.

    Example: `bridgemil evaluate adftd.cohort --method bridgemil --backbone eegnet --seeds 1 --budget laptop --out runs`

    Each subject is held out once; normalisation, Stage 1 and model selection do not use it. If interrupted, the same
    command resumes, also within a fold.
    """
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.parallel import peak_memory
    from bridgemil.report.terminal import print_results

    own: dict[str, Any] = {"adjust": options.names(adjust) or (), "tune": options.values(tune, "--tune")}
    results = evaluate(
        cohort, seeds=seeds, out=out, leave_out=leave_out, operating_point=operating_point, progress=progress, **own,
        **evaluation._asdict(), **training.protocol(),
    )  # fmt: skip
    print_results([results], list(results.baselines.values()))
    for name, why in results.missing_baselines.items():
        typer.echo(f"Not compared with {name}: {why}")
    peak = peak_memory()
    memory = "" if peak is None else f"\nPeak memory: {peak / 1e9:.1f} GB (largest process)"
    typer.echo(f"{memory}\nRuns: {out}\nNext: bridgemil report {out}")
    return lambda: results.to_dict() | {"out": str(out)}
