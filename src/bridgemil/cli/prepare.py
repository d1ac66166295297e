"""``bridgemil prepare``: recordings to a cohort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

NAME = "prepare"
SOURCES, CUTTING, BAD, RUNNING = "Which recordings", "How they are cut", "What to do with bad data", "Running"


def run(
    source: Annotated[Path, typer.Argument(help="BIDS folder, manifest CSV (subject,label,file) or preset's folder.")],
    out: Annotated[Path, typer.Argument(help="Folder to write the cohort to.")],
    preset: Annotated[str | None, typer.Option(help="adftd, mumtaz2017 or rockhill2021.", rich_help_panel=SOURCES)] = None,
    label: Annotated[str | None, typer.Option(help="Column of participants.tsv with the diagnosis.", rich_help_panel=SOURCES)] = None,
    task: Annotated[str | None, typer.Option(help="Only this BIDS task.", rich_help_panel=SOURCES)] = None,
    session: Annotated[str | None, typer.Option(help="Only this BIDS session.", rich_help_panel=SOURCES)] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to keep and their new names: A=AD,C=HC.", rich_help_panel=SOURCES)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="adftd: raw recordings, not the cleaned ones.", rich_help_panel=SOURCES)] = False,
    channels: Annotated[str | None, typer.Option(help="Electrodes to keep, in order: Fp1,Fp2,...  [default: all shared]", rich_help_panel=CUTTING)] = None,
    low: Annotated[str | None, typer.Option(help="High-pass edge in Hz, or none.  [default: 0.5]", rich_help_panel=CUTTING)] = None,
    high: Annotated[str | None, typer.Option(help="Low-pass edge in Hz, or none.  [default: 45]", rich_help_panel=CUTTING)] = None,
    notch: Annotated[str | None, typer.Option(help="Notch frequencies in Hz: 50,100.", rich_help_panel=CUTTING)] = None,
    sfreq: Annotated[float | None, typer.Option(help="Rate of the windows in Hz.  [default: 200]", rich_help_panel=CUTTING)] = None,
    reference: Annotated[str | None, typer.Option(help="Re-reference: average, or channels A1,A2.", rich_help_panel=CUTTING)] = None,
    window: Annotated[float | None, typer.Option(help="Window length in seconds.  [default: 1]", rich_help_panel=CUTTING)] = None,
    overlap: Annotated[float | None, typer.Option(help="Overlap of windows, 0 to below 1.  [default: 0]", rich_help_panel=CUTTING)] = None,
    folds: Annotated[int | None, typer.Option(help="Default folds of the cohort.  [default: 10, or the smallest class]", rich_help_panel=CUTTING)] = None,
    burn_in: Annotated[int | None, typer.Option(help="Default burn-in epochs of the cohort.  [default: 10]", rich_help_panel=CUTTING)] = None,
    bad_annotations: Annotated[str | None, typer.Option(help="Windows touching BAD, EDGE or boundary marks: drop or keep.", rich_help_panel=BAD)] = None,
    bad_channels: Annotated[str | None, typer.Option(help="Channels marked bad, flat or NaN: stop, drop or interpolate.", rich_help_panel=BAD)] = None,
    reject_uv: Annotated[float | None, typer.Option(help="Drop windows with a larger peak-to-peak, in µV.", rich_help_panel=BAD)] = None,
    allow_low_rate: Annotated[bool, typer.Option("--allow-low-rate", help="Leave filters beyond a recording's Nyquist out.", rich_help_panel=BAD)] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on without bad recordings and list them.", rich_help_panel=BAD)] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes.  [default: the cores available]", rich_help_panel=RUNNING)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a cohort made from other files or settings.", rich_help_panel=RUNNING)] = False,
    json: options.Json = False,
) -> None:
    """Turn recordings into a cohort: checked, filtered, resampled, cut into windows, stored per subject.

    Example: `bridgemil prepare ds004504 adftd.cohort --preset adftd`

    Example: `bridgemil prepare my-bids my.cohort --label group --classes patient,control`

    Everything is checked before anything is written, and all problems are listed at once. Interrupted, the same
    command goes on where it stopped.
    """
    from bridgemil.cohort.prepare import prepare

    given: dict[str, Any] = {
        "channels": options.names(channels),
        "low": options.edge(low),
        "high": options.edge(high),
        "notch": options.names(notch),
        "sfreq": sfreq,
        "reference": options.names(reference),
        "window_seconds": window,
        "overlap": overlap,
        "folds": folds,
        "burn_in": burn_in,
        "bad_annotations": bad_annotations,
        "bad_channels": bad_channels,
        "reject_uv": reject_uv,
        "allow_low_rate": allow_low_rate or None,
    }
    settings = {key: None if value == "none" else value for key, value in given.items() if value is not None}
    cohort = prepare(
        source, out, preset=preset, label=label, task=task, session=session, raw=raw, classes=options.mapping(classes),
        jobs=jobs, skip_bad=skip_bad, overwrite=overwrite, **settings,
    )  # fmt: skip
    from bridgemil.report.cohort_summary import print_summary, summary

    if json:
        options.print_json(summary(cohort))
    else:
        print_summary(cohort)
        typer.echo(f"\nNext: bridgemil inspect {out}")
