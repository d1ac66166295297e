"""``bridgemil predict``: class probabilities of new recordings."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.bundle.bundle import Bundle
    from bridgemil.bundle.prediction import RecordingPrediction

REPORT = "Write a page about each recording: page.html, page-2.html, …; or into a folder."
HIGHEST = {
    "gate": "windows with the highest attention weight",
    "contribution": "windows with the highest contribution to {}",
    "probability": "windows with the highest probability of {}",
}


def run(
    model: options.ModelFolder,
    recordings: Annotated[list[Path], typer.Argument(help="Recordings, or folders of them (BIDS or not).")],
    report: Annotated[Path | None, typer.Option(help=REPORT)] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a table, one row per recording.")] = None,
    coverage: options.Coverage = None,
    backbone: options.Code = None,
    threads: options.PredictThreads = None,
    *,
    reading: options.Reading,
) -> Any:
    """Predict class probabilities of new recordings, with reliability warnings.

    Example: `bridgemil predict alzheimer new/recording.edf --report page.html`

    Example: `bridgemil predict my.model recordings --csv predictions.csv`

    `alzheimer` is included in the package: Alzheimer's disease or healthy, from 19 electrodes, eyes closed.

    A recording is prepared as the training recordings were; electrodes are matched by name. A recording that cannot
    be used is refused with the reason and does not stop the others; the exit code is then 1. Of a recording that is out
    of distribution beyond the 99th percentile the prediction is withheld. Research use only.
    """
    from bridgemil.bundle.bundle import load
    from bridgemil.bundle.page import write_page
    from bridgemil.bundle.prediction import Refused, predict
    from bridgemil.errors import BadUse, Problem, grouped
    from bridgemil.parallel import torch_threads

    if csv is not None and (csv.is_dir() or not csv.parent.is_dir()):
        raise BadUse(f"--csv {csv}: " + ("is a folder; expected a file" if csv.is_dir() else f"no folder {csv.parent}"))
    rows: list[dict[str, Any]] = []
    pages: list[Path] = []
    refused: list[Problem] = []
    with torch_threads(threads):
        bundle = load(model, backbone=backbone)
        for found in predict(bundle, recordings, coverage=coverage, **reading.given()):
            rows.append(found.to_dict())
            if isinstance(found, Refused):
                refused.append(Problem(found.why, file=found.name))
                continue
            if len(rows) == len(refused) + 1:  # they concern predictions: where all are refused, there is none
                print_cautions(bundle)
            if report is not None:
                pages.append(_page(report, pages, found.recording.path))
                write_page(pages[-1], bundle, found)
                rows[-1]["page"] = str(pages[-1])
            print_prediction(found)
        if csv is not None:
            _write_csv(csv, rows, bundle)
            typer.echo(f"Table: {csv}")
        for page in pages:
            typer.echo(f"Page:  {page}")
    if refused:
        for line in grouped(refused):
            typer.echo(f"bridgemil: {line}", err=True)
        if len(rows) > 1:
            typer.echo(f"{len(refused)} of {len(rows)} recordings refused (above)", err=True)
    return rows, bool(refused)


def _page(report: Path, written: list[Path], recording: Path) -> Path:
    """Path of the next page: the file itself, then page-2.html; or in the folder, by the recording's name."""
    is_file = report.suffix.lower() in (".html", ".htm") and not report.is_dir()
    first = report if is_file else report / f"{recording.stem}.html"
    more = (first.with_name(f"{first.stem}-{number}{first.suffix}") for number in itertools.count(2))
    return next(page for page in itertools.chain([first], more) if page not in written)


def print_cautions(bundle: Bundle) -> None:
    """Print the cautions of a model."""
    from bridgemil.bundle.prediction import describe
    from bridgemil.report.terminal import print_warnings

    print_warnings(bundle.warnings)
    typer.echo(f"Model {bundle.title}. For all predictions:")
    for caution in describe(bundle)["cautions"]:
        typer.echo(f"  - {caution}")
    typer.echo("")


def print_prediction(found: RecordingPrediction, windows: bool = True) -> None:
    """Print the prediction of one recording: its warnings, probabilities and, unless they follow, its windows."""
    from bridgemil.report.explanation import top_windows

    typer.echo(found.name)
    for warning in found.warnings:
        typer.echo(f"  WARNING: {warning}")
    ranked = sorted(zip(found.bundle.classes, found.probabilities, strict=True), key=lambda pair: -pair[1])
    typer.echo("  " + "   ".join(f"{name} {p:.1%}" for name, p in ranked) + f"   ({found.bundle.calibration.sentence})")
    left = [f"{count} {why}" for why, count in found.recording.dropped.items() if count]
    dropped = f"; excluded: {', '.join(left)}" if left else ""
    typer.echo(f"  {found.set_sentence}")
    typer.echo(f"  out-of-distribution percentile: {found.percentile:.0f}")
    typer.echo(f"  {len(found.recording.windows)} windows used of {found.recording.seconds:.0f} s{dropped}")
    for ranking in found.rankings if windows else ():
        seconds = [row["second"] for row in top_windows(found.person, ranking)]
        top = ", ".join(f"{int(second // 60)}:{second % 60:04.1f}".removesuffix(".0") for second in seconds)
        typer.echo(f"  {HIGHEST[ranking.name].format(found.most_probable)}: {top}" if top else f"  {ranking.verdict}")
    typer.echo("")


def _write_csv(path: Path, rows: list[dict[str, Any]], bundle: Bundle) -> None:
    import pandas as pd

    from bridgemil.storage.files import write_text

    columns = ["file", "predicted", "prediction_set", *(f"p_{name}" for name in bundle.classes), "windows_used",
               "out_of_distribution_percentile", "warnings", "error", "model"]  # fmt: skip
    shown = [
        row
        | {f"p_{name}": p for name, p in (row["probabilities"] or {}).items()}
        | {"out_of_distribution_percentile": (row["out_of_distribution"] or {}).get("percentile")}
        | {name: " | ".join(row[name] or ()) for name in ("warnings", "prediction_set")}
        | {"model": bundle.title}
        for row in rows
    ]
    write_text(path, pd.DataFrame(shown, columns=columns).to_csv(index=False))
