"""The folder of a cohort: writing and reading its files.

Each subject's folder is an artifact of its own, so that ``prepare`` resumes; the cohort is an artifact whose manifest
lists ``cohort.json``, ``subjects.parquet`` and the subjects' manifests.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.records import SubjectRecord
from bridgemil.errors import BadData, NotFound
from bridgemil.storage.artifact import MANIFEST, Artifact, is_artifact, new_artifact, write_manifest
from bridgemil.storage.files import new_file, refuse_link, write_json, write_text

METADATA, TABLE, SUBJECTS = "cohort.json", "subjects.parquet", "subjects"
KIND, SUBJECT_KIND = "cohort", "subject"
WINDOWS, STARTS, RECORD = "windows.npy", "starts.npy", "record.json"
MARKER = ".bridgemil-cohort"  # says that a folder is ours to write in
ADVICE = "run the same `bridgemil prepare` again, or get the cohort again"


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


def write_cohort(cohort: Path, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write subjects.parquet, cohort.json and the manifest: the cohort exists once the manifest does.

    Parameters
    ----------
    cohort
        The folder.
    metadata
        The content of cohort.json.
    rows
        One row per subject.
    """
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
    """The artifact of one subject.

    Parameters
    ----------
    cohort, subject
        The cohort's folder, and who it is.
    artifact
        Of the cohort, which must list the subject's manifest; None while it is being prepared.
    """
    if artifact is not None:
        artifact.path(_manifest(subject))
    return Artifact.open(subject_folder(cohort, subject), SUBJECT_KIND, ADVICE, named=True)


def is_whole(cohort: Path, subject: str) -> bool:
    """Whether all files of a subject are as they were written."""
    try:
        return not open_subject(cohort, subject).verify()
    except BadData:
        return False


def _manifest(subject: str) -> str:
    return f"{SUBJECTS}/{subject_name(subject)}/{MANIFEST}"
