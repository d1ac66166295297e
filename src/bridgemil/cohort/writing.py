"""Writing a cohort's files, each in one step, and none through a link."""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.disk import new_file, new_folder, refuse_link, write_text
from bridgemil.stored import file_hash, write_sealed

FORMAT = 1
ABOUT, TABLE, SUBJECTS = "cohort.json", "subjects.parquet", "subjects"
MARKER = ".bridgemil-cohort"  # says that a folder is ours to write in


def subject_name(subject: str) -> str:
    """A subject's folder; characters that file systems dislike are percent-encoded."""
    name = urllib.parse.quote(subject, safe=" +-_.@()")
    return name.replace(".", "%2E", 1) if name.startswith(".") else name


def subject_folder(cohort: Path, subject: str) -> Path:
    """Where a subject's windows lie."""
    return cohort / SUBJECTS / subject_name(subject)


def mark(cohort: Path, words: str = "") -> None:
    """Make the cohort's folder and say that it is ours; refuses one whose parts are links to elsewhere."""
    cohort.mkdir(parents=True, exist_ok=True)
    refuse_link(cohort / SUBJECTS, cohort / MARKER)
    if words or not (cohort / MARKER).exists():
        write_text(cohort / MARKER, words)


def write_subject(
    cohort: Path,
    subject: str,
    windows: NDArray[np.float32],
    starts: NDArray[np.float64],
    record: Mapping[str, Any],
) -> None:
    """Write one subject's folder; it appears whole or not at all."""
    final = subject_folder(cohort, subject)
    mark(cohort)
    with new_folder(final) as partial:
        for name, array in (("windows.npy", windows), ("starts.npy", starts)):
            np.save(partial / name, np.ascontiguousarray(array), allow_pickle=False)
        write_sealed(partial / "record.json", {**record, "starts_hash": array_hash(starts)})


def array_hash(array: NDArray[Any]) -> str:
    """Of an array's shape and numbers, as that of a subject's signal."""
    digest = hashlib.sha256(f"{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_cohort(
    cohort: Path,
    about: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    starts: Mapping[str, str] | None = None,
) -> None:
    """Write subjects.parquet, then cohort.json: the cohort exists once the latter does.

    Parameters
    ----------
    cohort
        The folder.
    about
        What cohort.json says.
    rows
        A row a subject.
    starts
        By subject, the hash of where its windows begin; who is not named is not checked.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = cohort / TABLE
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with new_file(table) as stream:
        pq.write_table(pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows]), stream)
    contents = {"subjects": file_hash(table), "starts": dict(starts or {})}
    write_sealed(cohort / ABOUT, {**about, "contents": contents})
