"""``bridgemil explain``: what the prediction of a held-out subject, or of a new recording, depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options
from bridgemil.cli.predict import print_cautions, print_prediction

if TYPE_CHECKING:
    from bridgemil.report.explanation import Explanation

    Explained = tuple[Explanation, Path, dict[str, Any]]  # its page, and what else there is for programs

RUN = "The run, by the beginning of its name, if the method is not sufficient."
COHORT = "The cohort, if it has been moved since the run."
OUT = "The page.  [default: RUNS/explain/SUBJECT[-METHOD][-RUN].html; of a recording NAME.html]"
SOURCE = "A folder of runs, from `evaluate` or `benchmark`; or a model, from `train` or of the package (alzheimer)."


def run(
    runs: Annotated[Path, typer.Argument(metavar="RUNS|MODEL", help=SOURCE)],
    recording: Annotated[Path | None, typer.Argument(help="For a model: a new recording.")] = None,
    subject: Annotated[str | None, typer.Option(help="For runs: the held-out subject.")] = None,
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    csv: Annotated[Path | None, typer.Option(help="Folder for windows.csv, pairs.csv and electrodes.csv.")] = None,
    method: Annotated[str | None, typer.Option(help="For runs: the method.  [default: the only network]")] = None,
    run_: Annotated[str | None, typer.Option("--run", help=RUN)] = None,
    cohort: Annotated[Path | None, typer.Option(help=COHORT)] = None,
    backbone: options.Code = None,
    *,
    reading: options.Reading,
) -> Any:
    """Which windows, electrodes and bands a prediction depends on, and whether that can be determined.

    Example: `bridgemil explain runs --subject sub-005 --csv sub-005`

    Example: `bridgemil explain alzheimer new/recording.edf --out page.html`

    For runs, the model is one that was not trained on this subject. Writes an HTML page. Research use only.
    """
    from bridgemil.bundle.bundle import SHIPPED
    from bridgemil.errors import BadUse, NotFound
    from bridgemil.report.templating import RESEARCH

    of_runs = {"subject": subject, "method": method, "run": run_, "cohort": cohort}
    is_model = (runs / "bundle.json").is_file() or (not runs.exists() and str(runs) in SHIPPED)
    if is_model and recording is None:
        raise BadUse(f"{runs} is a model: name a recording, `bridgemil explain {runs} RECORDING`")
    if (runs / "model.json").is_file():
        raise BadUse(f"{runs}: is the model of one run, not a folder of runs; `bridgemil train` makes a model for "
                     "`bridgemil predict` and `bridgemil explain`")  # fmt: skip
    if not is_model and not runs.is_dir():
        raise NotFound(f"{runs}: no such folder, and no model of the package ({', '.join(SHIPPED)})")
    if not is_model and (recording is not None or subject is None):
        raise BadUse(f"{runs} is a folder of runs, not a model: give --subject ID, and no recording")
    others = of_runs if is_model else reading._asdict()
    if given := [name.replace("_", "-") for name, value in others.items() if value is not None]:
        kinds = ("folders of runs", "model") if is_model else ("new recordings", "folder of runs")
        raise BadUse(f"--{given[0]} is for {kinds[0]}, and {runs} is a {kinds[1]}")
    if recording is not None:
        explanation, page, more = _recording(runs, recording, out, backbone, reading.given())
    else:
        explanation, page, more = _subject(runs, of_runs, out, backbone)
    files = [str(file) for file in (page, *([] if csv is None else explanation.write_csv(csv)))]
    _print(explanation, files, "" if is_model else RESEARCH)
    return explanation.to_dict() | more | {"files": files, "research_use_only": True}


def _subject(runs: Path, choice: dict[str, Any], out: Path | None, backbone: str | None) -> Explained:
    """Explain the prediction of a held-out subject: the explanation, its page, and what else there is for programs."""
    from bridgemil.report.explanation import explain
    from bridgemil.report.held_out import find, observed_frequency, reliability_warnings
    from bridgemil.report.pages.subject import subject_page
    from bridgemil.report.templating import write
    from bridgemil.report.terminal import print_warnings
    from bridgemil.runs import find_store

    held = find(find_store(runs), **choice)
    model, metadata, predictions = held.model(backbone=backbone), held.metadata, held.predictions()
    explanation = explain(model, held.person, *held.background(model))
    predicted = explanation.classes[explanation.predicted]
    p = float(explanation.probabilities[explanation.predicted])
    warnings = reliability_warnings(predictions)
    names = [choice[key] for key in ("subject", "method", "run")]  # another choice, another page
    page = out or runs / "explain" / f"{'-'.join(_file_name(name) for name in names if name)}.html"
    provenance = {
        "Run": held.identity,
        "Cohort": f"{metadata['cohort']['path'] or 'in memory'} ({held.cohort.hash[:12]})",
        "Settings": metadata["settings_hash"][:12],
    }
    text = subject_page(
        explanation, model.facts, sentence=held.sentence, warnings=warnings,
        calibration=[observed_frequency(predictions, held.person.name, predicted, p)],
        bands=held.bands(model.facts.settings), provenance=provenance, audit_warnings=held.warnings,
    )  # fmt: skip
    write(page, text)
    print_warnings(held.warnings)
    shares = ", ".join(f"{name} {p:.1%}" for name, p in explanation.to_dict()["probabilities"].items())
    lines = [*(f"WARNING: {line}" for line in warnings), held.sentence]
    lines += [f"Also held out by: {'; '.join(held.others)}"] if held.others else []
    typer.echo("\n".join([*lines, f"Predicted: {predicted} ({shares}); recorded diagnosis: {held.person.label}."]))
    more = {"model": held.title, "run": held.identity, "warnings": warnings, "audit_warnings": held.warnings}
    return explanation, page, more | {key: metadata[key] for key in ("fold", "seed")}


def _recording(model: Path, recording: Path, out: Path | None, backbone: str | None, how: dict[str, Any]) -> Explained:
    """Explain the prediction of a new recording; the page is that of ``predict --report``."""
    from bridgemil.bundle.bundle import load
    from bridgemil.bundle.page import explain_recording, write_page
    from bridgemil.bundle.prediction import RecordingPrediction, predict
    from bridgemil.errors import BadData, BadUse

    bundle = load(model, backbone=backbone)
    answers = list(predict(bundle, [recording], **how))
    for found in answers:
        if not isinstance(found, RecordingPrediction):
            raise BadData(f"{found.name}: {found.why}")
    if len(answers) > 1:
        raise BadUse(f"{recording} holds {len(answers)} recordings: name one (of many, `bridgemil predict … --report`)")
    found = answers[0]
    assert isinstance(found, RecordingPrediction)
    explanation = explain_recording(bundle, found)
    page = out or Path(f"{_file_name(found.recording.path.stem)}.html")
    write_page(page, bundle, found, explanation)
    print_cautions(bundle)
    print_prediction(found, windows=False)
    return explanation, page, found.to_dict()


def _print(explanation: Explanation, files: list[str], notice: str, most: int = 3) -> None:
    """Print the windows, and the strongest patterns of the predicted class, one line per quantity."""
    content, lines = explanation.to_dict(), list[str]()
    for ranking in explanation.rankings:
        top = ", ".join(f"{row['second']:g} s ({row['value']:.3g})" for row in content["top_windows"][ranking.name])
        lines += [*ranking.sentences, f"Highest: {top}" if top else ""]
    table = explanation.electrodes
    titles = {"own": "Log-variance", "coupling": "Covariance with other electrodes", "power": "Relative band power"}
    for name in [name for name in titles if name in table and not table.empty]:
        rows = table[table["class"] == explanation.classes[explanation.predicted]]
        strongest = rows.loc[rows[name].abs().sort_values(ascending=False).index[:most]]
        listed = ", ".join(f"{row['electrode']} {row['band']} ({row[name]:+.3g})" for _, row in strongest.iterrows())
        lines.append(f"{titles[name]}, strongest patterns: {listed}")
    lines = [line for line in (*lines, *explanation.notes, notice) if line]
    typer.echo("\n".join([*lines, "", f"Files: {', '.join(files)}"]))


def _file_name(subject: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in subject)
