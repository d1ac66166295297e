"""The folder of a cohort: its files, and what an earlier call of ``prepare`` left there.

Each subject's folder is an artifact of its own, so that ``prepare`` resumes; the cohort is an artifact whose manifest
lists ``cohort.json``, ``subjects.parquet`` and the subjects' manifests.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.sources import Listing
from bridgemil.errors import BadData, BadUse, NotFound
from bridgemil.storage.artifact import MANIFEST, Artifact, array_checksum, is_artifact, new_artifact, write_manifest
from bridgemil.storage.files import Taken, link_or_copy, lock, new_file, refuse_link, remove, write_json, write_text

METADATA, TABLE, SUBJECTS = "cohort.json", "subjects.parquet", "subjects"
KIND, SUBJECT_KIND = "cohort", "subject"
WINDOWS, STARTS, RECORD = "windows.npy", "starts.npy", "record.json"
MARKER = ".bridgemil-cohort"  # says that a folder is ours to write in
ADVICE = "run the same `bridgemil prepare` again, or get the cohort again"


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
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        return cls(**values)

    @property
    def n_windows(self) -> int:
        """Windows in the bag."""
        return sum(self.recording_windows)


def describe(
    subject: str, label: str, windows: NDArray[np.float32], recordings: Sequence[str], recording_windows: Sequence[int]
) -> SubjectRecord:
    """Compute a subject's record from its windows (n_windows, n_channels, n_times), in microvolts.

    ``recordings`` are the names of the recordings in the order of their windows, ``recording_windows`` how many windows
    each of them has.
    """
    n, n_channels, n_times = windows.shape
    sums, squares = np.zeros(n_channels), np.zeros(n_channels)
    for channel in range(n_channels):
        values = windows[:, channel].astype(np.float64)
        sums[channel] = values.sum()
        squares[channel] = np.square(values - sums[channel] / max(n * n_times, 1)).sum()
    return SubjectRecord(
        subject, label, tuple(recordings), tuple(map(int, recording_windows)), tuple(sums.tolist()),
        tuple(squares.tolist()), array_checksum(windows),
    )  # fmt: skip


def default_folds(labels: Sequence[str]) -> int:
    """The default number of folds: 10, or the size of the smallest class if that is smaller."""
    return min(10, *(labels.count(label) for label in set(labels)))


def too_small(labels: Sequence[str]) -> list[str]:
    """A note on each class that cannot be split."""
    counts = sorted((name, labels.count(name)) for name in set(labels) if name)
    return [
        f"class {name!r} has {n} {'subject' if n == 1 else 'subjects'}: no split is possible, at least 3 are needed in "
        "every class (training, validation, test)"
        for name, n in counts
        if n < 3
    ]


def subject_name(subject: str) -> str:
    """A subject's folder; characters that file systems dislike are percent-encoded."""
    name = urllib.parse.quote(subject, safe=" +-_.@()")
    return name.replace(".", "%2E", 1) if name.startswith(".") else name


def subject_folder(cohort: Path, subject: str) -> Path:
    """Where a subject's windows lie."""
    return cohort / SUBJECTS / subject_name(subject)


def mark(cohort: Path, text: str = "") -> None:
    """Make the cohort's folder and mark it as ours; refuses one whose parts are links to elsewhere."""
    cohort.mkdir(parents=True, exist_ok=True)
    refuse_link(cohort / SUBJECTS, cohort / MARKER)
    if text or not (cohort / MARKER).exists():
        write_text(cohort / MARKER, text)


def write_subject(
    cohort: Path,
    subject: str,
    windows: NDArray[np.float32],
    starts: NDArray[np.float64],
    record: Mapping[str, Any],
) -> None:
    """Write one subject's folder; it appears complete or not at all."""
    mark(cohort)
    with new_artifact(subject_folder(cohort, subject), SUBJECT_KIND) as folder:
        np.save(folder / WINDOWS, np.ascontiguousarray(windows), allow_pickle=False)
        np.save(folder / STARTS, np.ascontiguousarray(starts), allow_pickle=False)
        write_json(folder / RECORD, record)


def link_subject(cohort: Path, source: Artifact, record: Mapping[str, Any]) -> None:
    """Write a subject's folder with the windows of another cohort's, which are not copied where that is possible."""
    mark(cohort)
    with new_artifact(subject_folder(cohort, str(record["subject"])), SUBJECT_KIND) as folder:
        for name in (WINDOWS, STARTS):
            link_or_copy(source.path(name), folder / name)
        write_json(folder / RECORD, record)


def write_cohort(cohort: Path, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write subjects.parquet (one row per subject), cohort.json (``metadata``) and, last, the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = list(dict.fromkeys(key for row in rows for key in row))
    with new_file(cohort / TABLE) as stream:
        pq.write_table(pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows]), stream)
    write_json(cohort / METADATA, metadata)
    subjects = [_manifest(str(row["subject"])) for row in rows]
    write_manifest(cohort, KIND, [METADATA, TABLE, *subjects])


def open_cohort(cohort: Path) -> Artifact:
    """The artifact of a finished cohort."""
    if not is_artifact(cohort):
        unfinished = (cohort / SUBJECTS).is_dir()
        advice = "its preparation was not finished: run the same `bridgemil prepare` again" if unfinished else (
            "make one with `bridgemil prepare SOURCE OUT`"
        )  # fmt: skip
        kind = BadData if cohort.exists() else NotFound
        raise kind(f"{cohort}: no cohort there (no {MANIFEST}); {advice}")
    return Artifact.open(cohort, KIND, ADVICE)


def read_subjects(artifact: Artifact) -> tuple[list[SubjectRecord], dict[str, dict[str, Any]]]:
    """The rows of subjects.parquet: records, and by subject what else is known."""
    own, records, columns = SubjectRecord.__dataclass_fields__, [], {}
    for row in artifact.table(TABLE).to_pylist():
        record = SubjectRecord.from_row(row)
        records.append(record)
        columns[record.subject] = {key: value for key, value in row.items() if key not in own}
    return records, columns


def open_subject(cohort: Path, subject: str, artifact: Artifact | None = None) -> Artifact:
    """The artifact of one subject; ``artifact`` is the cohort's, which must list it (None while it is prepared)."""
    if artifact is not None:
        artifact.path(_manifest(subject))
    return Artifact.open(subject_folder(cohort, subject), SUBJECT_KIND, ADVICE, named=True)


def _manifest(subject: str) -> str:
    return f"{SUBJECTS}/{subject_name(subject)}/{MANIFEST}"


def refuse_foreign(out: Path, listing: Listing) -> None:
    """Refuse an OUT that holds something else, or the recordings, or cannot be written: nothing may be lost."""
    out = out.absolute()
    lost = next((folder for folder in (out, *out.parents) if folder.is_symlink() and not folder.exists()), None)
    if lost is not None:
        raise BadUse(f"{lost}: is a link to itself or to nothing; remove it, or choose another OUT")
    existing = next(folder for folder in (out, *out.parents) if folder.exists())
    if not existing.is_dir():
        raise BadUse(f"{existing}: is a file; name a folder for the cohort")
    place, root = out.resolve(), listing.root.resolve()
    files = [recording.path.resolve() for recording in listing.recordings]
    if any(file.is_relative_to(place) for file in files):
        raise BadUse(f"{out}: holds the recordings themselves; choose another OUT")
    among = next((file for file in files if place.is_relative_to(file)
                  or (file.parent != root and place.is_relative_to(file.parent))), None)  # fmt: skip
    if among is not None:
        raise BadUse(f"{out}: lies among the recordings ({listing.name(among)}); choose an OUT outside of them")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise BadUse(f"{out}: exists and is no cohort; choose another OUT")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadUse(f"{existing}: you may not write there; choose another OUT")


@contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Hold the folder's lock; the operating system releases it when the process ends."""
    try:
        mark(out, "This folder is a bridgemil cohort; `bridgemil prepare` may replace what is in it.\n")
        with lock(out / ".lock", wait=False):
            yield
    except Taken:
        raise BadUse(f"{out}: another `prepare` is writing there") from None


def is_finished(out: Path, recipe: str, subjects: Mapping[str, str], overwrite: bool) -> bool:
    """Whether ``out`` already is this cohort, complete; refuses to replace another one without ``overwrite``.

    ``recipe`` identifies the cohort (its files and settings), ``subjects`` maps each subject to the recipe of its own.
    """
    refuse_link(out / METADATA, out / MANIFEST)
    other = "made from other files or settings; choose another OUT, or --overwrite"
    if not is_artifact(out):
        if not overwrite and not _is_of_these(out, subjects, damaged_too=True):
            raise BadUse(f"{out}: holds an unfinished cohort {other}")
        return False
    try:
        artifact = open_cohort(out)
        known, records = artifact.json(METADATA).get("recipe"), read_subjects(artifact)[0]
    except BadData:
        known, records = None, []
    if known == recipe:
        if all(_is_intact(out, record.subject) for record in records):
            return True
    elif known is not None and not overwrite:
        raise BadUse(f"{out}: holds a cohort {other}")
    elif not overwrite and not _is_of_these(out, subjects):
        raise BadUse(
            f"{out}: holds a cohort whose {METADATA} does not say how it was made (edited, damaged or saved from "
            "arrays), and subjects that are not known to be of these files and settings; choose another "
            "OUT, or --overwrite"
        )
    remove(out / MANIFEST)  # from here on it is an unfinished cohort
    return False


def _is_of_these(out: Path, subjects: Mapping[str, str], damaged_too: bool = False) -> bool:
    """Whether all subjects that are there were prepared by these recipes: nothing else may be lost.

    ``damaged_too`` accepts what is not complete, as an interrupted call leaves it.
    """
    by_folder = {subject_folder(out, subject).name: subject for subject in subjects}
    for folder in (out / SUBJECTS).iterdir() if (out / SUBJECTS).is_dir() else ():
        if folder.name.startswith(".") or (damaged_too and not is_artifact(folder)):
            continue
        subject = by_folder.get(folder.name)
        try:
            if subject is None or open_subject(out, subject).json(RECORD).get("recipe") != subjects[subject]:
                return False
        except BadData:
            if not damaged_too:
                return False
    return True


def _is_intact(out: Path, subject: str) -> bool:
    """Whether all files of a subject are as they were written."""
    try:
        return not open_subject(out, subject).verify()
    except BadData:
        return False


def already_done(out: Path, subjects: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
    """The records of subjects that an earlier call finished by the same recipe; other subjects' folders are removed."""
    done: dict[str, dict[str, Any] | None] = {}
    for subject, recipe in subjects.items():
        refuse_link(subject_folder(out, subject))
        if subject_folder(out, subject).is_dir() and _is_intact(out, subject):
            record = open_subject(out, subject).json(RECORD)
            if record.get("recipe") == recipe:
                done[subject] = record
    wanted = {subject_folder(out, subject).name for subject in done}
    for folder in (out / SUBJECTS).iterdir():
        if folder.name not in wanted and (is_artifact(folder) or folder.suffix == ".part"):
            remove(folder)
    return done
