"""``bridgemil evaluate``: subject-level cross-validation of one method."""

from __future__ import annotations

from pathlib import Path

import typer

from bridgemil.cli import options


def run(
    cohort: options.CohortFolder,
    method: options.Method = options.METHOD,
    backbone: options.Backbone = options.BACKBONE,
    frozen: options.Frozen = False,
    recipe: options.Recipe = None,
    seeds: options.Seeds = 1,
    budget: options.Budget = options.BUDGET,
    out: options.Out = Path("runs"),
    set_: options.Set = None,
    tune: options.Tune = None,
    folds: options.Folds = None,
    split: options.Split = None,
    groups: options.Groups = None,
    leave_out: options.LeaveOut = None,
    split_seed: options.SplitSeed = 0,
    pretrain_on: options.PretrainOn = None,
    adjust: options.Adjust = None,
    bags: options.Bags = "subject",
    device: options.Device = "auto",
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    baselines: options.Baselines = True,
    accept_risk: options.AcceptRisk = None,
    positive: options.Positive = None,
    operating_point: options.OperatingPoint = None,
    prevalence: options.Prevalence = None,
    json: options.Json = False,
) -> None:
    """Cross-validate a method over subjects, with confidence intervals, the chance level and baselines.

    Example: `bridgemil evaluate adftd.cohort --method bridgemil --backbone eegnet --seeds 1 --budget laptop --out runs`

    Each subject is held out once; normalisation, Stage 1 and model selection do not use it. If interrupted, the same
    command resumes, also within a fold.
    """
    given = options.arguments(locals(), adjust=options.names(adjust) or (), tune=options.values(tune, "--tune"))
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.parallel import peak_memory
    from bridgemil.report.terminal import print_results

    results = evaluate(**given)
    if json:
        options.print_json(results.to_dict() | {"out": str(out)})
        return
    print_results([results], list(results.baselines.values()))
    for name, why in results.missing_baselines.items():
        typer.echo(f"Not compared with {name}: {why}")
    peak = peak_memory()
    memory = "" if peak is None else f"\nPeak memory: {peak / 1e9:.1f} GB (largest process)"
    typer.echo(f"{memory}\nRuns: {out}\nNext: bridgemil report {out}")
