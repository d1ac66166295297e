"""Reading a cohort's files: what they must look like, and whether they are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from bridgemil.cohort.records import SubjectRecord
from bridgemil.cohort.writing import ABOUT, FORMAT, SUBJECTS, TABLE, subject_name
from bridgemil.errors import BadData
from bridgemil.stored import StoredFolder
from bridgemil.stored.schema import Schema

ADVICE = "run the same `bridgemil prepare` again, or get the cohort again"
COLUMNS = {
    "subject": "text", "label": "text", "recordings": "texts", "recording_windows": "wholes", "sums": "numbers",
    "centred_squares": "numbers", "signal_hash": "text",
}  # fmt: skip
Rate = Annotated[FiniteFloat, Field(gt=0)]


class SourceFile(Schema):
    """A recording that was cut."""

    sfreq: Rate
    native_sfreq: Rate | None = None
    n_channels: int | None = Field(None, ge=1)  # this and the next two: earlier versions wrote none
    identity: int | None = Field(None, ge=1)
    day: int | None = Field(None, ge=0)
    reference: str | None = None


class Contents(Schema):
    """Hashes of what the cohort's own hash does not cover."""

    subjects: str  # of the table's bytes
    starts: dict[str, str]  # of where the windows begin; by subject


class CohortFile(Schema):
    """cohort.json."""

    source: str
    channels: list[str] = Field(min_length=1)
    sfreq: Rate
    n_times: int = Field(gt=0)
    native_sfreq: Rate | None = None
    folds: int = Field(ge=0)
    burn_in: int = Field(ge=0)
    settings: dict[str, Any]
    left_out: list[Any]
    notes: list[str]
    files: list[SourceFile]
    hash: str | None = None
    contents: Contents | None = None  # earlier versions wrote none


class RecordFile(Schema):
    """record.json of a subject."""

    subject: str
    label: str
    recordings: list[str]
    recording_windows: list[int]
    sums: list[float]
    centred_squares: list[float]
    signal_hash: str
    starts_hash: str | None = None
    recipe: str | None = None


def stored(path: Path) -> StoredFolder:
    """The cohort's folder, as it is read."""
    return StoredFolder(path, ADVICE)


def read_about(path: Path) -> dict[str, Any]:
    """The content of cohort.json."""
    about = stored(path).json(ABOUT)
    if about.get("format") != FORMAT:
        said = about.get("format")
        which = f"{said}" if isinstance(said, int) else "unknown"
        raise BadData(f"{path}: cohort format {which}, this version reads {FORMAT}; prepare it again")
    stored(path).fit(ABOUT, about, CohortFile)
    return about


def read_subjects(path: Path, about: dict[str, Any]) -> tuple[list[SubjectRecord], dict[str, dict[str, Any]]]:
    """The rows of subjects.parquet: records, and by subject what else is known."""
    folder, contents = stored(path), about.get("contents") or {}
    table = folder.table(TABLE, COLUMNS, contents.get("subjects"))
    records, columns = [], {}
    for row in table.to_pylist():
        record = SubjectRecord.from_row(row)
        sizes = {len(record.sums), len(record.centred_squares)}
        if sizes != {len(about["channels"])} or min(record.recording_windows, default=0) < 0 or not record.n_windows:
            raise folder.bad(TABLE, "its channels are not those of cohort.json, or it counts windows that cannot be")
        records.append(record)
        columns[record.subject] = {key: value for key, value in row.items() if key not in COLUMNS}
    if not records or len(columns) < len(records):
        raise folder.bad(TABLE, "names a subject twice, or none")
    return records, columns


def read_windows(
    path: Path, record: SubjectRecord, n_channels: int, n_times: int, *, any_order: bool = False
) -> NDArray[np.float32]:
    """A subject's windows, n x C x T, memory-mapped; hashed the first time a process asks for them.

    ``any_order`` accepts Fortran-ordered arrays, which earlier versions wrote if they were given some.
    """
    name = f"{SUBJECTS}/{subject_name(record.subject)}/windows.npy"
    shape = record.n_windows, n_channels, n_times
    return stored(path).array(name, "float32", shape, record.signal_hash, any_order=any_order)


def read_starts(path: Path, record: SubjectRecord, stated: str | None) -> NDArray[np.float64]:
    """Where a subject's windows begin, n, in seconds; ``stated`` is their hash, None if none was written."""
    name = f"{SUBJECTS}/{subject_name(record.subject)}/starts.npy"
    starts = np.array(stored(path).array(name, "float64", (record.n_windows,), stated))
    if not np.isfinite(starts).all():
        raise stored(path).bad(name, "holds values that are no times")
    return starts


def read_record(path: Path, subject: str) -> dict[str, Any]:
    """The content of a subject's record.json."""
    return stored(path).json(f"{SUBJECTS}/{subject_name(subject)}/record.json", RecordFile)


def is_whole(path: Path, record: SubjectRecord, n_times: int, starts_hash: str | None) -> bool:
    """Whether a subject's windows are there as they were written."""
    try:
        read_windows(path, record, len(record.sums), n_times)
        read_starts(path, record, starts_hash)
    except BadData:
        return False
    return True
