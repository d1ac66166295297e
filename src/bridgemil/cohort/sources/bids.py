"""Any BIDS folder: recordings by ``sub-*/**/eeg/*_eeg.*``, one label per subject from a column of participants.tsv."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.cohort import formats
from bridgemil.cohort.listing import LeftOut, Listing
from bridgemil.cohort.sources import SourceOptions
from bridgemil.cohort.tables import read_table
from bridgemil.errors import BadData, BadUse, Problem

if TYPE_CHECKING:
    from mne_bids import BIDSPath

# Files that lie beside a recording under the same name and are not one.
SIDECARS = {".json", ".tsv", ".gz", ".fdt", ".vmrk", ".txt", ".md", ".html"}


def find(root: Path, options: SourceOptions) -> Listing:
    """List a BIDS folder's recordings with the labels of ``options.label``."""
    columns, participants = read_participants(root)
    column = options.label
    if column is None or column not in columns:
        asked = "--label COLUMN is needed" if column is None else f"participants.tsv has no column {column!r}"
        raise BadUse(f"{asked}; the columns are: {', '.join(columns)}")

    listing = Listing("bids", root)
    paths = recordings(root, options)
    with_files = {f"sub-{path.subject}" for path in paths}
    for subject in sorted(with_files | set(participants)):
        if subject not in with_files:
            sought = _sought(options)
            listing.problems.append(Problem(f"listed in participants.tsv but has no EEG recording{sought}", subject))
            listing.unusable_labels[subject] = participants[subject][column]
        elif subject not in participants:
            listing.problems.append(Problem("missing label: has recordings but no row in participants.tsv", subject))
        elif not participants[subject][column]:
            listing.problems.append(Problem(f"missing label: {column} is empty or n/a in participants.tsv", subject))
        else:
            listing.labels[subject] = participants[subject][column]
            listing.columns[subject] = participants[subject]
    for path in paths:
        if f"sub-{path.subject}" in listing.labels:
            add(listing, path)
    _list_unread(listing, options, paths)
    for entity in ("task", "session"):
        values = sorted({getattr(path, entity) for path in paths if getattr(path, entity)})
        if len(values) > 1:
            listing.notes.append(
                f"{len(values)} {entity}s are used together: {', '.join(values)} (narrow with --{entity})"
            )
    return listing


def recordings(root: Path, options: SourceOptions) -> list[BIDSPath]:
    """The EEG recordings of every subject, in the order of their names (session, task, run)."""
    import mne_bids

    try:
        paths = mne_bids.find_matching_paths(
            root, datatypes="eeg", suffixes="eeg", tasks=options.task, sessions=options.session, ignore_nosub=True
        )
    except ValueError as error:
        raise BadData(
            f"{root}: a file's name is not BIDS ({error}); rename it, or list the files in a manifest"
        ) from None
    names = {path.fpath for path in paths}
    found = [path for path in paths if path.fpath.suffix not in SIDECARS]
    # BrainVision keeps its samples in .eeg beside the .vhdr; a lone .eeg is a recording of another maker.
    found = [p for p in found if not (p.fpath.suffix == ".eeg" and p.fpath.with_suffix(".vhdr") in names)]
    if not found:
        raise BadData(f"{root}: no EEG recording{_sought(options)} below sub-*/**/eeg/; {formats.sentence()}")
    return sorted(found, key=lambda path: _natural(str(path.fpath)))


def add(listing: Listing, path: BIDSPath) -> None:
    """List a BIDS recording with the sidecars that apply to it."""
    sidecars = [
        path.find_matching_sidecar(suffix=suffix, extension=extension, on_error="ignore")
        for suffix, extension in (("channels", ".tsv"), ("events", ".tsv"), ("eeg", ".json"))
    ]
    channels, events, about = (None if file is None else Path(file) for file in sidecars)
    listing.add(f"sub-{path.subject}", path.fpath, channels, events, about)


def read_participants(root: Path) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The columns of participants.tsv, and its rows by subject ('sub-...')."""
    path = root / "participants.tsv"
    if not path.is_file():
        raise BadData(f"{path}: not found; a BIDS folder has one (for other folders write a manifest CSV, see --help)")
    columns, rows = read_table(path)
    if "participant_id" not in columns:
        raise BadData(f"{path}: has no column participant_id; the columns are: {', '.join(columns)}")
    participants: dict[str, dict[str, str]] = {}
    twice = []
    for row in rows:
        name = row.pop("participant_id")
        subject = name if name.startswith("sub-") else f"sub-{name}"
        if subject in participants:
            twice.append(Problem("has several rows", subject))
        participants[subject] = row
    if twice:
        raise BadData(f"{path}: subjects listed more than once", twice)
    return [column for column in columns if column != "participant_id"], participants


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which run-2 stands before run-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _list_unread(listing: Listing, options: SourceOptions, taken: list[BIDSPath]) -> None:
    """Say which files look like recordings but were not taken."""
    used = {path.fpath for path in taken}
    for file in sorted(listing.root.glob("sub-*/**/*")):
        if formats.is_recording(file) and file not in used:
            why = (
                f"not of the task or session asked for{_sought(options)}"
                if _sought(options)
                else "its place or name is not sub-*/**/eeg/*_eeg.*"
            )
            listing.left_out.append(LeftOut(listing.name(file), why))


def _sought(options: SourceOptions) -> str:
    words = [f"{name} {value!r}" for name, value in (("task", options.task), ("session", options.session)) if value]
    return f" with {' and '.join(words)}" if words else ""
