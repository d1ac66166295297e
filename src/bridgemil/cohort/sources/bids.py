"""Any BIDS folder: recordings by ``sub-*/**/eeg/*_eeg.*``, one label per subject from a column of participants.tsv.

Or a derivative of it: recordings that others have cleaned, below ``derivatives/NAME``, and what they say of how.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.cohort import formats
from bridgemil.cohort.formats import Unusable
from bridgemil.cohort.sources import LeftOut, Listing, SourceOptions
from bridgemil.cohort.tables import columns_named, natural_key, read_json, read_table
from bridgemil.errors import BadData, BadUse, Problem, did_you_mean, plain

if TYPE_CHECKING:
    from mne_bids import BIDSPath

STATED = ("Name", "Version", "Description", "CodeURL")  # of each program in a derivative's GeneratedBy
MOST_CHARACTERS = 500  # of a stated text
# Files that lie beside a recording under the same name and are not one.
SIDECARS = {".json", ".tsv", ".gz", ".fdt", ".vmrk", ".txt", ".md", ".html"}


def find(root: Path, options: SourceOptions) -> Listing:
    """List a BIDS folder's recordings with the labels of ``options.label``; without labels no table is needed."""
    column, columns, participants = options.label, list[str](), dict[str, dict[str, str]]()
    if not options.unlabelled or (root / "participants.tsv").is_file():
        columns, participants = read_participants(root, column)
    if not options.unlabelled:
        alike = columns_named(column or "", columns)
        if len(alike) != 1:
            asked = "--label COLUMN is needed" if column is None else f"participants.tsv has no column {column!r}"
            hint = did_you_mean(column or "", columns)
            raise BadUse(f"{asked} (or --unlabelled); the columns are: {', '.join(columns)}{hint}")
        column = alike[0]

    listing, place = Listing("bids", root), root
    if options.derivatives is not None:
        place = root / "derivatives" / options.derivatives
        listing.provenance = _provenance(place, options)
        if not listing.provenance["generated_by"]:
            unstated = "its dataset_description.json has no GeneratedBy: how the recordings were cleaned is not known"
            listing.notes.append(f"derivative {options.derivatives}: {unstated}")
    paths = recordings(place, options)
    with_files = {f"sub-{path.subject}" for path in paths}
    for subject in sorted(with_files | set(participants)):
        row = participants.get(subject, {})
        label = row.get(column or "", "")
        if subject not in with_files:
            nothing = f"listed in participants.tsv but has no EEG recording{_sought(options)}"
            listing.problems.append(Problem(absent(place / subject) or nothing, subject))
            listing.unusable_labels[subject] = label
        elif label or column is None:
            listing.labels[subject] = label
            listing.columns[subject] = row
        else:
            why = f"{column} is empty or n/a" if row else "has recordings but no row"
            listing.problems.append(Problem(f"missing label: {why} in participants.tsv", subject))
    for path in paths:
        if f"sub-{path.subject}" in listing.labels:
            add(listing, path)
    _list_unread(listing, place, options, paths)
    for entity in ("task", "session"):
        values = sorted({getattr(path, entity) for path in paths} - {None})
        if len(values) > 1:
            together = f"{len(values)} {entity}s are used together: {', '.join(values)}"
            listing.notes.append(f"{together} (narrow with --{entity})")
    return listing


def recordings(root: Path, options: SourceOptions) -> list[BIDSPath]:
    """The EEG recordings of every subject, in the order of their names (session, task, run)."""
    import mne_bids

    for entity, value in (("task", options.task), ("session", options.session)):
        if value is not None and not value.isalnum():
            raise BadUse(f"--{entity}: a BIDS {entity} has letters and digits only (rest, 01), got {value!r}")
    refuse_loops(root)
    kinds = {"suffixes": "eeg"} if options.derivatives is None else {"suffixes": ["eeg", "raw"], "check": False}
    try:
        paths = mne_bids.find_matching_paths(
            root, datatypes="eeg", tasks=options.task, sessions=options.session, ignore_nosub=True, **kinds
        )
    except ValueError as error:
        why = " ".join(str(error).split())
        advice = "rename it, or list the files in a manifest"
        raise BadData(f"{root}: a file's name is not BIDS ({why}); {advice}") from None
    names = {path.fpath for path in paths}
    found = [path for path in paths if path.fpath.suffix not in SIDECARS]
    # BrainVision keeps its samples in .eeg beside the .vhdr; a lone .eeg is a recording of another maker.
    found = [p for p in found if not (p.fpath.suffix == ".eeg" and p.fpath.with_suffix(".vhdr") in names)]
    if options.derivatives is not None:
        found = _of_one_kind(found, options)
    if not found:
        if absent(root, "sub-*/**/eeg/*_eeg.*"):
            raise BadData(f"{root}: the recordings below sub-*/**/eeg/ cannot be read: {formats.ABSENT}")
        raise BadData(f"{root}: no EEG recording{_sought(options)} below sub-*/**/eeg/; {formats.FORMATS_READ}")
    return sorted(found, key=lambda path: natural_key(str(path.fpath)))


def refuse_loops(root: Path) -> None:
    """Refuse a link in a subject's folder that leads back to a folder above it: the search would never end."""
    top = root.absolute()
    for folder, names, _ in os.walk(top, followlinks=True):
        place = Path(folder)
        if place != top and place.is_symlink() and place.resolve() in {parent.resolve() for parent in place.parents}:
            raise BadData(f"{place}: is a link that leads back to a folder it lies in; take it away")
        names[:] = [name for name in names if (name.startswith("sub-") if place == top else not name.startswith("."))]


def absent(folder: Path, pattern: str = "**/*_eeg.*") -> str:
    """What to say of a subject (or of all) whose recordings are links to content that was not fetched; '' otherwise."""
    return formats.ABSENT if any(map(formats.is_missed, folder.glob(pattern))) else ""


def add(listing: Listing, path: BIDSPath) -> None:
    """List a BIDS recording with the sidecars that apply to it; that several do is a problem."""
    try:
        sidecars = [_sidecar(path, ending) for ending in ("channels.tsv", "events.tsv", "eeg.json")]
        listing.add(f"sub-{path.subject}", path.fpath, *sidecars)
    except Unusable as error:
        listing.problems.append(Problem(str(error), f"sub-{path.subject}", listing.name(path.fpath)))


def _sidecar(path: BIDSPath, ending: str) -> Path | None:
    """The sidecar in force by BIDS's rule: nothing in its name that the recording's lacks, and the nearest folder's."""
    here, recording = Path(path.fpath).parent, _entities(path.fpath.name)
    root = Path(path.root or here)
    for folder in (level for level in (here, *here.parents) if level.is_relative_to(root) and level.is_dir()):
        names = [file.name for file in sorted(folder.iterdir()) if f"_{file.name}".endswith(f"_{ending}")]
        applying = [name for name in names if _entities(name) <= recording]
        most = max((len(_entities(name)) for name in applying), default=0)
        best = [name for name in applying if len(_entities(name)) == most]
        if len(best) > 1:
            raise Unusable(f"{' and '.join(best)} both apply to it; keep one, or name them apart")
        if best:
            return folder / best[0]
    return None


def _entities(name: str) -> set[str]:
    """The parts of a BIDS file's name before the last: sub-01, task-rest."""
    return set(name.split("_")[:-1])


def read_participants(root: Path, label: str | None = None) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The columns of participants.tsv, and its rows by subject ('sub-...'); ``label`` names the diagnosis's."""
    path = root / "participants.tsv"
    if not path.is_file():
        raise BadData(f"{path}: not found; a BIDS folder has one (for other folders write a manifest CSV, see --help)")
    columns, rows = read_table(path, used=("participant_id", *([label] if label else [])))
    if "participant_id" not in columns:
        raise BadData(f"{path}: has no column participant_id; the columns are: {', '.join(columns)}")
    participants: dict[str, dict[str, str]] = {}
    twice = []
    for _, row in rows:
        name = row.pop("participant_id")
        subject = name if name.startswith("sub-") else f"sub-{name}"
        if subject in participants:
            twice.append(Problem("has several rows", subject))
        participants[subject] = row
    if twice:
        raise BadData(f"{path}: subjects listed more than once", twice)
    return [column for column in columns if column != "participant_id"], participants


def _list_unread(listing: Listing, place: Path, options: SourceOptions, taken: list[BIDSPath]) -> None:
    """Say which files look like recordings but were not taken."""
    used, entities = {path.fpath for path in taken}, (("task", options.task), ("ses", options.session))
    parts = [f"{entity}-{value}_" for entity, value in entities if value]
    for file in sorted(place.glob("sub-*/**/*")):
        if formats.is_missed(file) and file.stem.endswith("_eeg") and all(part in file.name for part in parts):
            if (subject := file.relative_to(place).parts[0]) in listing.labels:
                listing.problems.append(Problem(formats.ABSENT, subject, listing.name(file)))
        elif file.suffix.lower() in formats.FORMATS and formats.is_irregular(file):
            listing.left_out.append(LeftOut(listing.name(file), formats.IRREGULAR))
        elif formats.is_recording(file) and file not in used:
            asked = _sought(options)
            why = f"not among those{asked}" if asked else "its place or name is not sub-*/**/eeg/*_eeg.*"
            listing.left_out.append(LeftOut(listing.name(file), why))


def _sought(options: SourceOptions) -> str:
    words = [f"{name} {value!r}" for name in ("task", "session", "desc") if (value := getattr(options, name))]
    return f" with {' and '.join(words)}" if words else ""


def _provenance(place: Path, options: SourceOptions) -> dict[str, Any]:
    """What dataset_description.json of a derivative states: its name, and the programs that generated it."""
    if not place.is_dir():
        folders = sorted(path.name for path in place.parent.glob("*") if path.is_dir())
        found = ", ".join(name for name in folders if not name.startswith((".", "sub-"))) or "none"
        raise BadUse(f"--derivatives {options.derivatives}: no such folder; the derivatives there are: {found}")
    description = place / "dataset_description.json"
    try:
        content = read_json(description if description.is_file() else None)
    except Unusable as error:
        raise BadData(f"{place}: {error}") from None
    programs = content.get("GeneratedBy") or content.get("PipelineDescription") or []
    programs = [one for one in (programs if isinstance(programs, list) else [programs]) if isinstance(one, dict)]
    generated = [{key: plain(str(one[key]))[:MOST_CHARACTERS] for key in STATED if one.get(key)} for one in programs]
    name = plain(str(content.get("Name") or ""))[:MOST_CHARACTERS]
    known = {"derivative": options.derivatives, "desc": options.desc, "name": name}
    return {key: value for key, value in known.items() if value} | {"generated_by": generated}


def _of_one_kind(paths: Sequence[BIDSPath], options: SourceOptions) -> list[BIDSPath]:
    """The recordings of the desc (or proc) asked for; several kinds of one recording are never used together."""
    kinds = {path.fpath: str(path.description or path.processing or "") for path in paths}
    found = sorted(set(kinds.values()))
    listed = ", ".join(name or "none" for name in found)
    if options.desc is not None and options.desc not in found:
        raise BadUse(f"--desc {options.desc}: the recordings of {options.derivatives} have desc {listed}")
    if options.desc is None and len(found) > 1:
        raise BadUse(f"--derivatives {options.derivatives}: has recordings of desc {listed}; choose one with --desc")
    return [path for path in paths if options.desc in (None, kinds[path.fpath])]


def derivative_sentence(provenance: dict[str, Any]) -> str:
    """``derivative clean (PyPREP 0.4.3)``; empty if the recordings are no derivative."""
    if not provenance:
        return ""
    programs = [" ".join(filter(None, (one.get("Name"), one.get("Version")))) for one in provenance["generated_by"]]
    desc = f", desc-{provenance['desc']}" if "desc" in provenance else ""
    return f"derivative {provenance['derivative']}{desc} ({', '.join(programs) or 'generated by an unstated program'})"
