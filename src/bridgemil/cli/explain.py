"""``bridgemil explain``: what the prediction of one held-out person rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.models import ModelFacts
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import HeldOut

NAME = "explain"
RUN = "The run, by the beginning of its name, where a method is not enough."
COHORT = "The cohort, if it is no longer where the run found it."


def run(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, from `evaluate` or `benchmark`.")],
    subject: Annotated[str, typer.Option(help="Whom.")],
    out: Annotated[Path | None, typer.Option(help="The page.  [default: RUNS/explain/SUBJECT.html]")] = None,
    csv: Annotated[Path | None, typer.Option(help="Folder for windows.csv, pairs.csv and electrodes.csv.")] = None,
    method: Annotated[str | None, typer.Option(help="Which method.  [default: the only network]")] = None,
    run_: Annotated[str | None, typer.Option("--run", help=RUN)] = None,
    cohort: Annotated[Path | None, typer.Option(help=COHORT)] = None,
    json: options.Json = False,
) -> None:
    """Say which seconds, electrodes and bands mattered for one held-out person, and whether that says anything.

    Example: `bridgemil explain runs --subject sub-005 --csv sub-005`

    The model is the one that did not see this person. Ends with a page to open. Research use only.
    """
    from bridgemil.errors import BadData, BadUse
    from bridgemil.report.explanation import explain
    from bridgemil.report.held_out import find
    from bridgemil.runs import RunStore

    if (runs / "model.json").is_file():
        raise BadUse(
            f"{runs}: is a model, not a folder of runs; use `bridgemil predict {runs} RECORDING --report PAGE`"
        )
    if not runs.is_dir():
        raise BadData(f"{runs}: no such folder")
    held = find(RunStore(runs), subject, method=method, run=run_, cohort=cohort)
    model = held.model()
    explanation = explain(model, held.person, *held.background(model))
    page = out or runs / "explain" / f"{_file_name(subject)}.html"
    warnings = _write(page, held, model.facts, explanation)
    files = [page, *([] if csv is None else explanation.write_csv(csv))]
    if json:
        about = {"model": held.title, "run": held.identity, "fold": held.about["fold"], "seed": held.about["seed"]}
        content: dict[str, Any] = explanation.for_json() | about | {"warnings": warnings}
        options.print_json(content | {"files": [str(file) for file in files], "research_use_only": True})
        return
    _print(held, explanation, warnings)
    typer.echo(f"\nFiles: {', '.join(str(file) for file in files)}")


def _write(page: Path, held: HeldOut, facts: ModelFacts, explanation: Explanation) -> list[str]:
    """Write the page; returns its warnings."""
    from bridgemil.report.held_out import bands_beside, calibration, doubts
    from bridgemil.report.pages.subject_page import write_subject_page

    predictions, name = held.predictions(), explanation.classes[explanation.predicted]
    p = float(explanation.probabilities[explanation.predicted])
    warnings = doubts(predictions)
    write_subject_page(
        page,
        explanation,
        facts,
        sentence=held.sentence,
        warnings=warnings,
        calibration=[calibration(predictions, held.person.name, name, p).sentence],
        bands=bands_beside(held.cohort, held.about["train"], held.person.bag),
        provenance={
            "Run": held.identity,
            "Cohort": f"{held.about['cohort']['path'] or 'in memory'} ({held.cohort.hash[:12]})",
            "Settings": held.about["settings_hash"][:12],
        },
    )
    return warnings


def _print(held: HeldOut, explanation: Explanation, warnings: list[str]) -> None:
    from bridgemil.report.pages import RESEARCH

    for line in warnings:
        typer.echo(f"WARNING: {line}")
    typer.echo(held.sentence)
    if held.others:
        typer.echo(f"Also held out by: {'; '.join(held.others)}")
    said = explanation.for_json()
    shares = ", ".join(f"{name} {p:.1%}" for name, p in said["probabilities"].items())
    typer.echo(f"Said: {said['predicted']} ({shares}); on record: {held.person.label}.")
    for ranking in explanation.rankings:
        for sentence in ranking.sentences:
            typer.echo(sentence)
        top = ", ".join(f"{row['second']:g} s ({row['value']:.3g})" for row in said["top_windows"][ranking.name])
        typer.echo(f"Highest {ranking.name}: {top}")
    for line in _strongest(explanation):
        typer.echo(line)
    for note in explanation.notes:
        typer.echo(note)
    typer.echo(RESEARCH)


def _strongest(explanation: Explanation, most: int = 3) -> list[str]:
    """The strongest patterns of the predicted class, in words."""
    table = explanation.electrodes
    if table.empty:
        return []
    rows = table[table["class"] == explanation.classes[explanation.predicted]]
    words = {"own": "Strength at the electrode", "coupling": "Moving together", "power": "Relative band power"}
    lines = []
    for name in words:
        if name in rows:
            top = rows.loc[rows[name].abs().sort_values(ascending=False).index[:most]]
            listed = ", ".join(f"{row['electrode']} {row['band']} ({row[name]:+.3g})" for _, row in top.iterrows())
            lines.append(f"{words[name]}, strongest patterns: {listed}")
    return lines


def _file_name(subject: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in subject)
