"""``bridgemil explain``: what the prediction of a held-out subject, or of a new recording, depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options
from bridgemil.cli.predict import BAD, CODE, print_cautions, print_prediction

if TYPE_CHECKING:
    from bridgemil.bundle.bundle import Bundle
    from bridgemil.bundle.prediction import RecordingPrediction
    from bridgemil.models import ModelFacts
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import HeldOut

NAME = "explain"
RUN = "The run, by the beginning of its name, where a method is not enough."
COHORT = "The cohort, if it is no longer where the run found it."
OUT = "The page.  [default: RUNS/explain/SUBJECT[-METHOD][-RUN].html; of a recording NAME.html]"
SOURCE = "A folder of runs, from `evaluate` or `benchmark`; or a model, from `train` or of the package (alzheimer)."


def run(
    runs: Annotated[Path, typer.Argument(metavar="RUNS|MODEL", help=SOURCE)],
    recording: Annotated[Path | None, typer.Argument(help="Of a model: a new recording.")] = None,
    subject: Annotated[str | None, typer.Option(help="Of runs: whom.")] = None,
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    csv: Annotated[Path | None, typer.Option(help="Folder for windows.csv, pairs.csv and electrodes.csv.")] = None,
    method: Annotated[str | None, typer.Option(help="Of runs: which method.  [default: the only network]")] = None,
    run_: Annotated[str | None, typer.Option("--run", help=RUN)] = None,
    cohort: Annotated[Path | None, typer.Option(help=COHORT)] = None,
    bad_channels: Annotated[str | None, typer.Option(help=f"Of a recording: {BAD[0].lower()}{BAD[1:]}")] = None,
    backbone: Annotated[str | None, typer.Option(help=CODE)] = None,
    json: options.Json = False,
) -> None:
    """Which windows, electrodes and bands a prediction depends on, and whether that can be said at all.

    Example: `bridgemil explain runs --subject sub-005 --csv sub-005`

    Example: `bridgemil explain alzheimer new/recording.edf --out page.html`

    Of runs, the model is the one that did not see this person. Ends with a page to open. Research use only.
    """
    from bridgemil.bundle.bundle import SHIPPED
    from bridgemil.errors import BadUse, NotFound
    from bridgemil.report.explanation import explain
    from bridgemil.report.held_out import find
    from bridgemil.runs import find_store

    if (runs / "bundle.json").is_file() or (not runs.exists() and str(runs) in SHIPPED):
        if recording is None:
            raise BadUse(f"{runs} is a model: name a recording, `bridgemil explain {runs} RECORDING`")
        for name, value in (("--subject", subject), ("--method", method), ("--run", run_), ("--cohort", cohort)):
            if value is not None:
                raise BadUse(f"{name} is of folders of runs, and {runs} is a model")
        _explain_recording(runs, recording, out, csv, json, bad_channels, backbone)
        return
    if (runs / "model.json").is_file():
        raise BadUse(f"{runs}: is the model of one run, not a folder of runs; `bridgemil train` makes a model for "
                     "`bridgemil predict` and `bridgemil explain`")  # fmt: skip
    if not runs.is_dir():
        raise NotFound(f"{runs}: no such folder, and no model of the package ({', '.join(SHIPPED)})")
    if recording is not None or subject is None:
        raise BadUse(f"{runs} is no model but a folder of runs: say whom, --subject ID, and no recording")
    if bad_channels is not None:
        raise BadUse(f"--bad-channels is of new recordings, and {runs} is a folder of runs")
    held = find(find_store(runs), subject, method=method, run=run_, cohort=cohort)
    model = held.model(backbone=backbone)
    explanation = explain(model, held.person, *held.background(model))
    chosen = "-".join(_file_name(word) for word in (subject, method, run_) if word)  # another choice, another page
    page = out or runs / "explain" / f"{chosen}.html"
    warnings = _write(page, held, model.facts, explanation)
    files = [page, *([] if csv is None else explanation.write_csv(csv))]
    if json:
        about = {"model": held.title, "run": held.identity, "fold": held.about["fold"], "seed": held.about["seed"]}
        content: dict[str, Any] = explanation.for_json() | about
        content |= {"warnings": warnings, "audit_warnings": held.warnings}
        options.print_json(content | {"files": [str(file) for file in files], "research_use_only": True})
        return
    _print(held, explanation, warnings)
    typer.echo(f"\nFiles: {', '.join(str(file) for file in files)}")


def _explain_recording(
    model: Path,
    recording: Path,
    out: Path | None,
    csv: Path | None,
    json: bool,
    bad_channels: str | None,
    backbone: str | None,
) -> None:
    """The page of a new recording, as ``predict --report`` writes it, and its numbers."""
    from bridgemil.bundle.bundle import load
    from bridgemil.bundle.page import explain_recording, write_page
    from bridgemil.bundle.prediction import RecordingPrediction, predict
    from bridgemil.errors import BadData, BadUse

    bundle, answers = load(model, backbone=backbone), list[RecordingPrediction]()
    for found in predict(bundle, [recording], bad_channels=bad_channels):
        if not isinstance(found, RecordingPrediction):
            raise BadData(f"{found.name}: {found.why}")
        answers.append(found)
    if len(answers) > 1:
        raise BadUse(f"{recording} holds {len(answers)} recordings: name one (of many, `bridgemil predict … --report`)")
    (found,) = answers
    explanation = explain_recording(bundle, found)
    page = out or Path(f"{_file_name(found.recording.path.stem)}.html")
    write_page(page, bundle, found, explanation)
    files = [page, *([] if csv is None else explanation.write_csv(csv))]
    if json:
        content = explanation.for_json() | found.to_dict()
        options.print_json(content | {"files": [str(file) for file in files], "research_use_only": True})
        return
    _print_recording(bundle, found, explanation)
    typer.echo(f"\nFiles: {', '.join(str(file) for file in files)}")


def _print_recording(bundle: Bundle, found: RecordingPrediction, explanation: Explanation) -> None:
    print_cautions(bundle)
    print_prediction(found)
    _print_rest(explanation)


def _write(page: Path, held: HeldOut, facts: ModelFacts, explanation: Explanation) -> list[str]:
    """Write the page; returns its warnings."""
    from bridgemil.report.held_out import bands_beside, calibration, doubts
    from bridgemil.report.pages.subject import subject_page
    from bridgemil.report.templating import write

    predictions, name = held.predictions(), explanation.classes[explanation.predicted]
    p = float(explanation.probabilities[explanation.predicted])
    warnings = doubts(predictions)
    text = subject_page(
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
        audit_warnings=held.warnings,
    )
    write(page, text)
    return warnings


def _print(held: HeldOut, explanation: Explanation, warnings: list[str]) -> None:
    from bridgemil.report.templating import RESEARCH
    from bridgemil.report.terminal import print_warnings

    print_warnings(held.warnings)
    for line in warnings:
        typer.echo(f"WARNING: {line}")
    typer.echo(held.sentence)
    if held.others:
        typer.echo(f"Also held out by: {'; '.join(held.others)}")
    content = explanation.for_json()
    shares = ", ".join(f"{name} {p:.1%}" for name, p in content["probabilities"].items())
    typer.echo(f"Predicted: {content['predicted']} ({shares}); on record: {held.person.label}.")
    _print_rest(explanation)
    typer.echo(RESEARCH)


def _print_rest(explanation: Explanation) -> None:
    content = explanation.for_json()
    for ranking in explanation.rankings:
        for sentence in ranking.sentences:
            typer.echo(sentence)
        top = ", ".join(f"{row['second']:g} s ({row['value']:.3g})" for row in content["top_windows"][ranking.name])
        if top:
            typer.echo(f"Highest: {top}")
    for line in _strongest(explanation):
        typer.echo(line)
    for note in explanation.notes:
        typer.echo(note)


def _strongest(explanation: Explanation, most: int = 3) -> list[str]:
    """The strongest patterns of the predicted class, in words."""
    table = explanation.electrodes
    if table.empty:
        return []
    rows = table[table["class"] == explanation.classes[explanation.predicted]]
    titles = {"own": "Log-variance", "coupling": "Covariance with other electrodes", "power": "Relative band power"}
    lines = []
    for name in titles:
        if name in rows:
            top = rows.loc[rows[name].abs().sort_values(ascending=False).index[:most]]
            listed = ", ".join(f"{row['electrode']} {row['band']} ({row[name]:+.3g})" for _, row in top.iterrows())
            lines.append(f"{titles[name]}, strongest patterns: {listed}")
    return lines


def _file_name(subject: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in subject)
