"""``bridgemil predict``: what a trained model says of new recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.bundle.prediction import RecordingSaid

NAME = "predict"
BAD = "Electrodes that are flat or marked bad: stop or interpolate.  [default: as in training]"
CODE = "Your own code again, if the model was trained with it."
MODEL = "A model folder, from `bridgemil train`, or a model of the package: alzheimer."
REPORT = (
    "Write a page about the recording, page.html; of several: page-2.html and so on, or, if it is a folder, into it."
)


def run(
    model: Annotated[Path, typer.Argument(help=MODEL)],
    recordings: Annotated[list[Path], typer.Argument(help="Recordings, or folders of them (BIDS or not).")],
    report: Annotated[Path | None, typer.Option(help=REPORT)] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a table too, a row a recording.")] = None,
    bad_channels: Annotated[str | None, typer.Option(help=BAD)] = None,
    backbone: Annotated[str | None, typer.Option(help=CODE)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads.  [default: the cores available]")] = None,
    json: options.Json = False,
) -> None:
    """Class probabilities for new recordings, after whatever speaks against believing them.

    Example: `bridgemil predict alzheimer new/recording.edf --report page.html`

    Example: `bridgemil predict my.model recordings --csv said.csv`

    `alzheimer` comes with the package: Alzheimer's disease or healthy, from 19 electrodes, eyes closed; its card says
    what it is worth. Any other model is yours, from `bridgemil train`.

    A recording is prepared as the training recordings were, electrodes matched by name. One that cannot be judged is
    refused with the reason, and does not stop the others; the exit code is 1 then. Research use only.
    """
    from bridgemil.bundle.page import write_page
    from bridgemil.bundle.prediction import Refused, predict
    from bridgemil.bundle.store import NOTICE, load
    from bridgemil.errors import BadUse
    from bridgemil.evaluation.estimate import torch_threads

    if csv is not None and (csv.is_dir() or not csv.parent.is_dir()):
        raise BadUse(f"--csv {csv}: " + ("is a folder; name a file" if csv.is_dir() else f"no folder {csv.parent}"))
    rows: list[dict[str, Any]] = []
    pages: list[Path] = []
    refused = 0
    with torch_threads(threads):
        bundle = load(model, backbone=backbone)
        for said in predict(bundle, recordings, bad_channels=bad_channels):
            rows.append(said.for_machines())
            if isinstance(said, Refused):
                refused += 1
                typer.echo(f"bridgemil: {said.name}: {said.why}", err=True)
                continue
            if report is not None:
                pages.append(_page(report, pages, said.recording.path))
                write_page(pages[-1], bundle, said)
                rows[-1]["page"] = str(pages[-1])
            if not json:
                print_said(said)
    if csv is not None:
        _write_csv(csv, rows, bundle.classes)
    if json:
        options.print_json(rows)
    else:
        typer.echo(f"{bundle.title}: {NOTICE}")
        if csv is not None:
            typer.echo(f"Table: {csv}")
        for page in pages:
            typer.echo(f"Page:  {page}")
    if refused:
        if not json and len(rows) > 1:
            typer.echo(f"{refused} of {len(rows)} recordings could not be judged (above)", err=True)
        raise typer.Exit(1)


def _page(report: Path, written: list[Path], recording: Path) -> Path:
    """Where the next page goes: the file itself, then page-2.html; or into the folder, by the recording's name."""
    if report.suffix.lower() in (".html", ".htm") and not report.is_dir():
        first, more = report, len(written) + 1
        return first if more == 1 else first.with_name(f"{first.stem}-{more}{first.suffix}")
    first = report / f"{recording.stem}.html"
    more = 2
    while first in written:
        first, more = report / f"{recording.stem}-{more}.html", more + 1
    return first


def print_said(said: RecordingSaid) -> None:
    """What a bundle says of one recording: warnings, probabilities, windows."""
    typer.echo(said.name)
    for warning in said.warnings:
        typer.echo(f"  WARNING: {warning}")
    ranked = sorted(zip(said.classes, said.probabilities, strict=True), key=lambda pair: -pair[1])
    typer.echo("  " + "   ".join(f"{name} {p:.1%}" for name, p in ranked) + f"   ({said.calibration})")
    left = [f"{count} {why}" for why, count in said.recording.dropped.items() if count]
    dropped = f"; left out: {', '.join(left)}" if left else ""
    like = f"farther from the training people than {said.percentile:.0f} % of them are from each other"
    typer.echo(f"  {len(said.recording.windows)} windows used of {said.recording.seconds:.0f} s{dropped}; {like}")
    _print_windows(said)
    typer.echo("")


def _print_windows(said: RecordingSaid) -> None:
    windows = said.windows
    if windows is None:
        return
    most, least, against = (
        ", ".join(_clock(float(said.recording.starts[i])) for i in rows)
        for rows in (windows.most(), windows.least(), windows.against())
    )
    if windows.by == "gate":
        flat = " (they hardly differ: they explain nothing)" if windows.flat else ""
        typer.echo(f"  windows let in most: {most}; least: {least}{flat}")
    else:
        other = f"against: {against}" if against else f"least: {least}"
        typer.echo(f"  windows that spoke most for {said.predicted}: {most}; {other}")


def _clock(second: float) -> str:
    """Minutes and seconds from the recording's start."""
    whole = f"{int(second // 60)}:{second % 60:04.1f}"
    return whole.removesuffix(".0") if whole.endswith(".0") else whole


def _write_csv(path: Path, rows: list[dict[str, Any]], classes: tuple[str, ...]) -> None:
    import csv
    import io

    from bridgemil.disk import write_text

    columns = ["file", "predicted", *(f"p_{name}" for name in classes), "windows_used", "unlike_training_percentile",
               "warnings", "error", "model"]  # fmt: skip
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        p = row["probabilities"] or {}
        shown = row | {"warnings": " | ".join(row["warnings"])}
        writer.writerow(shown | {f"p_{name}": p.get(name, "") for name in classes})
    write_text(path, text.getvalue())
