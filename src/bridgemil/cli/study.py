"""``bridgemil study``: the paper's studies on your own cohort, and the expected gain of more subjects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil import studies
from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.studies import Findings


PANEL = "Of single studies"
# Kind of a study's own option: its type on the command line, and how its value is parsed
KINDS: dict[str, tuple[Any, Callable[[Any, str], Any]]] = {
    "text": (str, lambda value, _: value),
    "number": (int, lambda value, _: value),
    "flag": (bool, lambda value, _: value),
    "names": (str, lambda value, _: options.names(value)),
    "numbers": (str, options.numbers),
    "values": (list[str], lambda value, _: options.values(value) if value else None),
}


def run(
    name: Annotated[str, typer.Argument(help=f"{studies.STUDIES.describe()}.", metavar="NAME", show_default=False)],
    cohorts: options.CohortFolders,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures; finished runs are reused.")],
    backbone: options.Backbone = options.BACKBONE,
    recipe: options.Recipe = None,
    budget: options.Budget = options.BUDGET,
    seeds: options.Seeds = 1,
    split_seeds: Annotated[int, typer.Option(min=1, help="Number of assignments of subjects to folds.")] = 1,
    folds: options.Folds = None,
    groups: options.Groups = None,
    accept_risk: options.AcceptRisk = None,
    set_: options.Set = None,
    truth: Annotated[Path | None, typer.Option(help="Folder of `bridgemil synth`, to compare its evidence.")] = None,
    *,
    execution: options.Execution,
    progress: bool,
    **own: Any,
) -> Any:
    """Run one of the paper's studies on your cohorts; interrupted or killed, the same command resumes.

    Example: `bridgemil study ablation my.cohort --out studies --split-seeds 5`

    Writes OUT/NAME: findings.md, a CSV of every table, figures as PNG and SVG. The runs are in OUT/runs.
    """
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.engine.execute import Where
    from bridgemil.evaluation.protocol import Protocol

    flags = studies.flags()
    chosen = {key: KINDS[flags[key][0].kind][1](value, f"--{key}") for key, value in own.items() if value is not None}
    protocol = Protocol(
        backbone=backbone, recipe=recipe, budget=budget, settings=options.settings(set_), seeds=seeds, folds=folds,
        groups=groups, accept_risk=accept_risk or (),
    )  # fmt: skip
    where = Where(*execution)
    opened, splits = tuple(Cohort.open(path) for path in cohorts), tuple(range(split_seeds))
    context = studies.StudyContext(opened, out, protocol, splits, chosen, truth, where, progress)
    findings = studies.study(name, context)
    _print(findings, out / name)
    return findings.to_dict() | {"folder": str(out / name)}


_SHARED = inspect.signature(run, eval_str=True)


def with_options() -> inspect.Signature:
    """The signature of ``run`` with every study's own options, as typer reads it."""
    parameters = [p for p in _SHARED.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for name, (option, of) in studies.flags().items():
        flag, least = f"--{name.replace('_', '-')}", 1 if option.kind == "number" else None
        text = f"{', '.join(of)}: {option.help}"
        kind: Any = KINDS[option.kind][0] | None
        annotation = Annotated[kind, options.option(flag, panel=PANEL, help=text, min=least)]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return _SHARED.replace(parameters=parameters)


run.__signature__ = with_options()  # type: ignore[attr-defined]


def _print(findings: Findings, folder: Path) -> None:
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
