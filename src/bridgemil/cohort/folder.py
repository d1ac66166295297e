"""The folder of a cohort: its files, and what an earlier call of ``prepare`` left there.

Each subject's folder is an artifact of its own, so that ``prepare`` resumes; the cohort is an artifact whose manifest
lists ``cohort.json``, ``subjects.parquet`` and the subjects' manifests.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import Listing
from bridgemil.errors import BadData, BadUse, NotFound
from bridgemil.storage.artifact import MANIFEST, Artifact, array_checksum, is_artifact, new_artifact, write_manifest
from bridgemil.storage.files import Taken, link_or_copy, lock, new_file, refuse_link, remove, write_json, write_text

METADATA, TABLE, SUBJECTS = "cohort.json", "subjects.parquet", "subjects"
KIND, SUBJECT_KIND = "cohort", "subject"
WINDOWS, STARTS, RECORD = "windows.npy", "starts.npy", "record.json"
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names that Windows keeps for itself
MARKER = ".bridgemil-cohort"  # says that a folder is ours to write in
ADVICE = "run the same `bridgemil prepare` again, or get the cohort again"
OTHER = "{}: holds subjects made from other files or settings; choose another OUT, or --overwrite"


@dataclass(frozen=True)
class SubjectRecord:
    """What is known of one subject without reading its signal."""

    subject: str
    label: str
    recordings: tuple[str, ...]  # names of the files, in the order of their windows
    recording_windows: tuple[int, ...]  # windows from each recording; the bag runs on across them
    sums: tuple[float, ...]  # per channel, over all windows and time
    centred_squares: tuple[float, ...]  # per channel: sum of (x - own mean)^2
    signal_hash: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> SubjectRecord:
        """From a row of subjects.parquet or the content of a record.json; further keys are ignored."""
        values: dict[str, Any] = {key: row[key] for key in cls.__dataclass_fields__}
        values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**values)

    @property
    def n_windows(self) -> int:
        """Windows in the bag."""
        return sum(self.recording_windows)


def describe(
    subject: str, label: str, windows: NDArray[np.float32], recordings: Sequence[str], recording_windows: Sequence[int]
) -> SubjectRecord:
    """The record of a subject, from its windows (n_windows, n_channels, n_times) in microvolts."""
    sums, squares = [], []
    for channel in range(windows.shape[1]):  # a double-precision copy of one channel at a time
        values = windows[:, channel].astype(np.float64)
        sums.append(float(values.sum()))
        squares.append(float(np.square(values - sums[-1] / max(values.size, 1)).sum()))
    lengths, checksum = tuple(map(int, recording_windows)), array_checksum(windows)
    return SubjectRecord(subject, label, tuple(recordings), lengths, tuple(sums), tuple(squares), checksum)


def default_folds(labels: Sequence[str]) -> int:
    """The default number of folds: 10, or the size of the smallest class if that is smaller."""
    return min(10, *(labels.count(label) for label in set(labels)))


def class_notes(labels: Sequence[str]) -> list[str]:
    """Notes on labels ('' where there is none) of fewer than two classes, and on each class that cannot be split."""
    counts = {name: labels.count(name) for name in sorted(set(labels) - {""})}
    notes = []
    if len(counts) < 2:
        what = f"one class only ({', '.join(counts)})" if counts else "no labels"
        notes.append(f"{what}: `evaluate` and `train` need at least two classes; `inspect` and `audit` work")
    needed = "no split is possible, at least 3 are needed in every class (training, validation, test)"
    small = {name: n for name, n in counts.items() if n < 3}
    return notes + [f"class {name!r} has {n} subject{'' if n == 1 else 's'}: {needed}" for name, n in small.items()]


def subject_folder(cohort: Path, subject: str) -> Path:
    """The folder of a subject; what a file system does not allow in names is percent-encoded."""
    name = urllib.parse.quote(subject, safe=" +-_.@()")
    if name.startswith(".") or DEVICE.fullmatch(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith((".", " ")):  # which Windows drops
        name = f"{name[:-1]}%{ord(name[-1]):02X}"
    return cohort / SUBJECTS / name


def mark(cohort: Path) -> None:
    """Make and mark the cohort's folder; refuses one whose parts are links to elsewhere."""
    cohort.mkdir(parents=True, exist_ok=True)
    refuse_link(cohort / SUBJECTS, cohort / MARKER)
    if not (cohort / MARKER).exists():
        write_text(cohort / MARKER, "A bridgemil cohort: `bridgemil prepare` may replace what is in this folder.\n")


def write_subject(cohort: Path, record: Mapping[str, Any], windows: Any, starts: Any) -> None:
    """Write one subject's folder; it appears complete or not at all.

    ``windows`` and ``starts`` are arrays, or files of another cohort, which are linked where that is possible.
    """
    mark(cohort)
    with new_artifact(subject_folder(cohort, str(record["subject"])), SUBJECT_KIND) as folder:
        for name, content in ((WINDOWS, windows), (STARTS, starts)):
            if isinstance(content, Path):
                link_or_copy(content, folder / name)
            else:
                np.save(folder / name, np.ascontiguousarray(content), allow_pickle=False)
        write_json(folder / RECORD, record)


def write_cohort(cohort: Path, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write subjects.parquet (one row per subject), cohort.json (``metadata``) and, last, the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = list(dict.fromkeys(key for row in rows for key in row))
    with new_file(cohort / TABLE) as stream:
        pq.write_table(pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows]), stream)
    write_json(cohort / METADATA, metadata)
    folders = [subject_folder(cohort, str(row["subject"])).name for row in rows]
    write_manifest(cohort, KIND, [METADATA, TABLE, *(f"{SUBJECTS}/{name}/{MANIFEST}" for name in folders)])


def open_cohort(cohort: Path) -> Artifact:
    """The artifact of a finished cohort."""
    if not is_artifact(cohort):
        advice = "make one with `bridgemil prepare SOURCE OUT`"
        if (cohort / SUBJECTS).is_dir():
            advice = "its preparation was not finished: run the same `bridgemil prepare` again"
        kind = BadData if cohort.exists() else NotFound
        raise kind(f"{cohort}: no cohort there (no {MANIFEST}); {advice}")
    return Artifact.open(cohort, KIND, ADVICE)


def read_subjects(artifact: Artifact) -> tuple[list[SubjectRecord], dict[str, dict[str, Any]]]:
    """The rows of subjects.parquet: records, and by subject what else is known."""
    own, rows = SubjectRecord.__dataclass_fields__, artifact.table(TABLE).to_pylist()
    columns = {row["subject"]: {key: value for key, value in row.items() if key not in own} for row in rows}
    return [SubjectRecord.from_row(row) for row in rows], columns


def open_subject(cohort: Artifact, subject: str) -> Artifact:
    """The artifact of one subject of a finished cohort, which must list it."""
    folder = subject_folder(cohort.root, subject)
    cohort.path(f"{SUBJECTS}/{folder.name}/{MANIFEST}")
    return Artifact.open(folder, SUBJECT_KIND, ADVICE, named=True)


def refuse_foreign(out: Path, listing: Listing) -> None:
    """Refuse an OUT that holds something else, or the recordings, or cannot be written: nothing may be lost."""
    out = out.absolute()
    existing = next(folder for folder in (out, *out.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        raise BadUse(f"{existing}: is a file or a link to nothing, not a folder; remove it, or choose another OUT")
    place, root = out.resolve(), listing.root.resolve()
    files = [recording.path.resolve() for recording in listing.recordings]
    if any(file.is_relative_to(place) for file in files):
        raise BadUse(f"{out}: holds the recordings themselves; choose another OUT")
    for file in files:
        if place.is_relative_to(file) or (file.parent != root and place.is_relative_to(file.parent)):
            raise BadUse(f"{out}: lies among the recordings ({listing.name(file)}); choose an OUT outside of them")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise BadUse(f"{out}: exists and is no cohort; choose another OUT")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadUse(f"{existing}: you may not write there; choose another OUT")


@contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system releases it when the process ends."""
    try:
        mark(out)
        with lock(out / ".lock", wait=False):
            yield
    except Taken:
        raise BadUse(f"{out}: another `prepare` is writing there") from None


def refuse_other(out: Path, settings: PrepareSettings, overwrite: bool) -> None:
    """Refuse a finished cohort of other settings before anything is done: ``is_finished`` would do so later."""
    with suppress(BadData):
        if not overwrite and open_cohort(out).json(METADATA)["settings"] != settings.model_dump(mode="json"):
            raise BadUse(OTHER.format(out))


def is_finished(out: Path, recipe: str, subjects: Mapping[str, str], overwrite: bool) -> bool:
    """Whether ``out`` already is this cohort, complete; refuses to replace another one without ``overwrite``.

    ``recipe`` identifies the cohort (its files and settings), ``subjects`` maps each subject to the recipe of its own.
    """
    refuse_link(out / METADATA, out / MANIFEST)
    known = None
    with suppress(BadData):
        artifact = open_cohort(out)
        known, records = artifact.json(METADATA).get("recipe"), read_subjects(artifact)[0]
        if known == recipe and all(_record(subject_folder(out, r.subject), compare=True) for r in records):
            return True
    if known != recipe and not overwrite and (known is not None or _holds_others(out, subjects)):
        raise BadUse(OTHER.format(out))
    remove(out / MANIFEST)  # from here on it is an unfinished cohort
    return False


def _record(folder: Path, compare: bool = False) -> dict[str, Any] | None:
    """The record in a subject's folder; None if it is damaged (with ``compare`` all its files are compared)."""
    try:
        artifact = Artifact.open(folder, SUBJECT_KIND, ADVICE, named=True)
        return None if compare and artifact.verify() else artifact.json(RECORD)
    except BadData:
        return None


def _holds_others(out: Path, subjects: Mapping[str, str]) -> bool:
    """Whether a complete subject is there that was not prepared by these recipes: it must not be lost."""
    recipes = {subject_folder(out, subject).name: recipe for subject, recipe in subjects.items()}
    found = {folder.name: _record(folder) for folder in (out / SUBJECTS).glob("[!.]*") if is_artifact(folder)}
    return any(name not in recipes or (one and one.get("recipe") != recipes[name]) for name, one in found.items())


def already_done(out: Path, subjects: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
    """The records of subjects that an earlier call finished by the same recipe; other subjects' folders are removed."""
    refuse_link(*(subject_folder(out, subject) for subject in subjects))
    done: dict[str, dict[str, Any] | None] = {}
    for subject, recipe in subjects.items():
        record = _record(subject_folder(out, subject), compare=True)
        if record and record.get("recipe") == recipe:
            done[subject] = record
    wanted = {subject_folder(out, subject).name for subject in done}
    for folder in (out / SUBJECTS).iterdir():
        if folder.name not in wanted and (is_artifact(folder) or folder.suffix == ".part"):
            remove(folder)
    return done
