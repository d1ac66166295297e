"""Any BIDS folder: recordings by ``sub-*/**/eeg/*_eeg.*``, one label per subject from a column of participants.tsv."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.cohort.listing import Listing
from bridgemil.cohort.sources import SourceOptions
from bridgemil.errors import BadData, BadUse, Problem

if TYPE_CHECKING:
    import pandas as pd
    from mne_bids import BIDSPath

# Files that lie beside a recording under the same name and are not one.
SIDECARS = {".json", ".tsv", ".gz", ".fdt", ".vmrk", ".txt", ".md", ".html"}


def find(root: Path, options: SourceOptions) -> Listing:
    """List a BIDS folder's recordings with the labels of ``options.label``."""
    participants = read_participants(root)
    column = options.label
    if column is None or column not in participants.columns:
        asked = "--label COLUMN is needed" if column is None else f"participants.tsv has no column {column!r}"
        raise BadUse(f"{asked}; the columns are: {', '.join(participants.columns)}")

    listing = Listing("bids", root)
    paths = recordings(root, options)
    with_files = {f"sub-{path.subject}" for path in paths}
    for subject in sorted(with_files | set(participants.index)):
        if subject not in with_files:
            sought = _sought(options)
            listing.problems.append(Problem(f"listed in participants.tsv but has no EEG recording{sought}", subject))
        elif subject not in participants.index:
            listing.problems.append(Problem("missing label: has recordings but no row in participants.tsv", subject))
        elif not participants.at[subject, column]:
            listing.problems.append(Problem(f"missing label: {column} is empty or n/a in participants.tsv", subject))
        else:
            row = participants.loc[subject]
            listing.labels[subject] = str(row[column])
            listing.columns[subject] = {str(name): value for name, value in row.items()}
    for path in paths:
        if f"sub-{path.subject}" in listing.labels:
            add(listing, path)
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

    paths = mne_bids.find_matching_paths(
        root, datatypes="eeg", suffixes="eeg", tasks=options.task, sessions=options.session, ignore_nosub=True
    )
    names = {path.fpath for path in paths}
    found = [path for path in paths if path.fpath.suffix not in SIDECARS]
    # BrainVision keeps its samples in .eeg beside the .vhdr; a lone .eeg is a recording of another maker.
    found = [p for p in found if not (p.fpath.suffix == ".eeg" and p.fpath.with_suffix(".vhdr") in names)]
    if not found:
        raise BadData(f"{root}: no EEG recording{_sought(options)} below sub-*/**/eeg/")
    return sorted(found, key=lambda path: str(path.fpath))


def add(listing: Listing, path: BIDSPath) -> None:
    """List a BIDS recording with the sidecars that apply to it."""
    sidecars = [
        path.find_matching_sidecar(suffix=suffix, extension=".tsv", on_error="ignore")
        for suffix in ("channels", "events")
    ]
    channels, events = (None if file is None else Path(file) for file in sidecars)
    listing.add(f"sub-{path.subject}", path.fpath, channels, events)


def read_participants(root: Path) -> pd.DataFrame:
    """participants.tsv as strings, indexed by subject ('sub-...'); an empty string where a value is missing."""
    import pandas as pd

    path = root / "participants.tsv"
    if not path.is_file():
        raise BadData(f"{path}: not found; a BIDS folder has one (for other folders write a manifest CSV, see --help)")
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, encoding="utf-8-sig")
    if "participant_id" not in table.columns:
        raise BadData(f"{path}: has no column participant_id; the columns are: {', '.join(table.columns)}")
    table = table.apply(lambda column: column.str.strip()).replace({"n/a": "", "N/A": "", "NaN": "", "nan": ""})
    ids: Iterable[str] = table["participant_id"]
    table.index = pd.Index([name if name.startswith("sub-") else f"sub-{name}" for name in ids])
    twice = sorted(set(table.index[table.index.duplicated()]))
    if twice:
        raise BadData(f"{path}: subjects listed more than once", [Problem("has several rows", name) for name in twice])
    known: pd.DataFrame = table.drop(columns="participant_id")
    return known


def _sought(options: SourceOptions) -> str:
    words = [f"{name} {value!r}" for name, value in (("task", options.task), ("session", options.session)) if value]
    return f" with {' and '.join(words)}" if words else ""
