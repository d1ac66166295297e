"""``bridgemil study``: the paper's studies on your own cohort, and how many more people you need."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.studies import Findings

NAME = "study"

single = partial(typer.Option, rich_help_panel="Of single studies")
running = partial(typer.Option, rich_help_panel="Where to run")
ABOUT = {  # a test compares the names
    "reliability": "windows against the diagnosis they inherit, RQ2",
    "scarcity": "fewer people or fewer windows, RQ3",
    "representation": "pictures of the windows after each stage, RQ4",
    "ablation": "bridgemil without its parts",
    "sensitivity": "one setting at a time",
    "learning_curve": "how many more people do I need",
}
NAMES = ", ".join(f"{name} ({sentence})" for name, sentence in ABOUT.items()) + "."


def run(
    name: Annotated[str, typer.Argument(help=NAMES, metavar="NAME", show_default=False)],
    cohorts: Annotated[list[Path], typer.Argument(help="Cohort folders.", metavar="COHORT")],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures; what is finished is not run again.")],
    backbone: Annotated[str, typer.Option(help=options.BACKBONES)] = options.BACKBONE,
    recipe: Annotated[str | None, typer.Option(help=options.RECIPES)] = None,
    budget: Annotated[str, typer.Option(help="How long to train: paper, laptop or demo.")] = options.BUDGET,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds of weights and sampling.")] = 1,
    split_seeds: Annotated[int, typer.Option(min=1, help="How many times subjects are dealt to folds anew.")] = 1,
    folds: Annotated[int | None, typer.Option(help="Folds.  [default: each cohort's own]")] = None,
    groups: Annotated[str | None, typer.Option(help="Column whose groups stay in one fold (site, family).")] = None,
    accept_risk: options.AcceptRisk = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A single setting: stage1.epochs=5.")] = None,
    truth: Annotated[
        Path | None, typer.Option(help="The folder `bridgemil synth` wrote: is the evidence found?")
    ] = None,
    vary: Annotated[
        list[str] | None, single(help="sensitivity: a setting and its values, stage2.retention=0,1e-5,1e-2.")
    ] = None,
    method: Annotated[str | None, single(help="sensitivity, learning_curve: which method.")] = None,
    variants: Annotated[str | None, single(help="ablation: which, comma-separated.  [default: all]")] = None,
    top: Annotated[
        str | None, single(help="reliability: K of Top-K, comma-separated.  [default: 20,50,100,200]")
    ] = None,
    nested: Annotated[
        bool | None, single("--nested", help="reliability: gates of models that saw no test subject; ten times dearer.")
    ] = None,
    sizes: Annotated[str | None, single(help="learning_curve: numbers of training subjects, comma-separated.")] = None,
    draws: Annotated[int | None, single(min=1, help="learning_curve: draws of each number of subjects.")] = None,
    engine: Annotated[str, running(help="local (processes of this machine), inline (this process) or ray.")] = "local",
    jobs: Annotated[
        int | None, running(min=1, help="Runs at a time.  [default: as many as idle cores, memory or GPUs allow]")
    ] = None,
    threads: Annotated[int, running(min=1, help="Threads (Ray: CPUs) of each run.")] = 1,
    gpus_per_run: Annotated[float, running(help="Share of a GPU each run takes, where there are any.")] = 1.0,
    device: Annotated[str, running(help="auto, cpu or cuda.")] = "auto",
    address: Annotated[str | None, running(help="ray: the cluster's address.  [default: one on this machine]")] = None,
    json: options.Json = False,
) -> None:
    """Do one of the paper's studies on your cohorts; interrupted or killed, the same command goes on.

    Example: `bridgemil study ablation my.cohort --out studies --split-seeds 5`

    Writes OUT/NAME: findings.md, a CSV of every table, figures as PNG and SVG. The runs are in OUT/runs.
    """
    from bridgemil import studies
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.engine.execute import Where

    chosen: dict[str, Any] = {
        "vary": options.values(vary) if vary else None,
        "method": method,
        "variants": options.names(variants),
        "top": options.numbers(top, "--top"),
        "nested": nested,
        "sizes": options.numbers(sizes, "--sizes"),
        "draws": draws,
    }
    context = studies.StudyContext(
        tuple(Cohort.open(path) for path in cohorts), out, backbone, recipe, budget, tuple(range(seeds)),
        tuple(range(split_seeds)), folds, groups, tuple(accept_risk or ()), options.settings(set_ or []), chosen, truth,
        Where(engine, jobs, threads, device, gpus_per_run, address), not json,
    )  # fmt: skip
    findings = studies.study(name, context)
    if json:
        options.print_json(findings.to_dict() | {"folder": str(out / name)})
    else:
        _say(findings, out / name)


def _say(findings: Findings, folder: Path) -> None:
    from bridgemil.report.terminal import print_warnings

    print_warnings(findings.warnings)
    typer.echo(f"\n{findings.title}\n")
    for sentence in findings.sentences:
        typer.echo(f"  {sentence}")
    for table_name, table in findings.tables.items():
        typer.echo(f"\n{table_name.replace('_', ' ')}\n{findings.plain(table)}")
    for note in findings.footnotes:
        typer.echo(f"\nNote: {note}")
    typer.echo(f"\nWritten: {folder / 'findings.md'}, with {', '.join(f'{name}.png' for name in findings.figures)}")
