"""``bridgemil prepare``: recordings to a cohort."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options
from bridgemil.cohort.sources import PRESETS

CONDITION = "eyes_closed, eyes_open, a word, or a pattern: by the manifest's column, or in the file's name."
CLEAN = "Own function Raw -> Raw that cleans each recording before filtering; repeatable, in order."
SOURCE = "BIDS folder, manifest CSV (subject,label,file; see `bridgemil manifest`) or the folder of a preset."

select = partial(options.option, panel="Selection of recordings")
process = partial(options.option, panel="Preprocessing")
bad = partial(options.option, panel="Bad data")
CONVERTED = {
    "channels": options.names, "notch": options.names, "reference": options.names, "classes": options.mapping,
    "low": options.edge, "high": options.edge,
}  # fmt: skip


def run(
    source: Annotated[Path, typer.Argument(help=SOURCE)],
    out: Annotated[Path, typer.Argument(help="Folder for the cohort.")],
    preset: Annotated[str | None, select(help=f"{', '.join(PRESETS)}.")] = None,
    label: Annotated[str | None, select(help="Column of participants.tsv or the manifest with the diagnosis.")] = None,
    unlabelled: Annotated[bool, select("--unlabelled", help="No diagnoses; for inspect and audit only.")] = False,
    task: Annotated[str | None, select(help="Only this task: BIDS, a manifest's column or in the file's name.")] = None,
    condition: Annotated[str | None, select(help=CONDITION)] = None,
    session: Annotated[str | None, select(help="BIDS: only this session.")] = None,
    derivatives: Annotated[str | None, select(metavar="NAME", help="BIDS: recordings of derivatives/NAME.")] = None,
    desc: Annotated[str | None, select(help="Derivatives: only this desc (or proc) entity.")] = None,
    classes: Annotated[str | None, select(help="Classes to keep, with optional new names: A=AD,C=HC.")] = None,
    raw: Annotated[bool, select("--raw", help="adftd: the raw recordings, not the cleaned ones.")] = False,
    clean: Annotated[list[str] | None, process(metavar="FILE.py:NAME", help=CLEAN)] = None,
    montage: Annotated[str | None, process(metavar="NAME|TSV", help=options.MONTAGE)] = None,
    channels: Annotated[str | None, process(help="Electrodes, in order: Fp1,Fp2,...  [default: all shared]")] = None,
    low: Annotated[str | None, process(help="High-pass edge in Hz, or none.  [default: 0.5]")] = None,
    high: Annotated[str | None, process(help="Low-pass edge in Hz, or none.  [default: 45]")] = None,
    notch: Annotated[str | None, process(help="Notch frequencies in Hz: 50,100.")] = None,
    sfreq: Annotated[float | None, process(help="Sampling rate of the windows in Hz.  [default: 200]")] = None,
    reference: Annotated[str | None, process(help="Re-reference to average, or to channels: A1,A2.")] = None,
    recorded_reference: Annotated[str | None, process(help="Electrode that is itself the reference: Cz.")] = None,
    window_seconds: Annotated[float | None, process("--window", help="Window length in seconds.  [default: 1]")] = None,
    overlap: Annotated[float | None, process(help="Overlap of windows, 0 to below 1.  [default: 0]")] = None,
    folds: Annotated[int | None, process(help="Default folds.  [default: 10, or the smallest class]")] = None,
    burn_in: Annotated[int | None, process(help="Default burn-in epochs.  [default: 10]")] = None,
    bad_annotations: Annotated[str | None, bad(help="Windows at BAD, EDGE, boundary: drop or keep.")] = None,
    bad_channels: Annotated[str | None, bad(help="Marked bad, flat or NaN: stop, drop or interpolate.")] = None,
    duplicates: Annotated[str | None, bad(help="Duplicate recordings in one class: stop or keep-first.")] = None,
    reject_uv: Annotated[float | None, bad(help="Drop windows with a larger peak-to-peak amplitude, in µV.")] = None,
    allow_low_rate: Annotated[bool, bad("--allow-low-rate", help="Omit filters beyond Nyquist.")] = False,
    skip_bad: Annotated[bool, bad("--skip-bad", help="Exclude bad recordings, and list them.")] = False,
    jobs: options.Cores = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a cohort of other files or options.")] = False,
) -> Any:
    """Convert recordings into a cohort: validate, filter, resample, segment into windows, store per subject.

    Example: `bridgemil prepare ds004504 adftd.cohort --preset adftd`

    Example: `bridgemil prepare my-bids my.cohort --label group --classes patient,control`

    Example: `bridgemil prepare recordings/manifest.csv my.cohort --label Diagnosis --clean clean.py:clean`

    All files are validated before anything is written, and all problems are listed at once. If interrupted, the same
    command resumes.
    """
    given = {name: value for name, value in locals().items() if name not in ("source", "out")}
    chosen = {name: value for name, value in given.items() if value is not None and value is not False}
    chosen |= {name: convert(chosen[name]) for name, convert in CONVERTED.items() if name in chosen}
    from bridgemil.cohort.prepare import prepare

    cohort = prepare(source, out, **chosen)
    return options.show(cohort, f"Next: bridgemil inspect {out}")
