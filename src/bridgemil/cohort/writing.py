"""Writing a cohort's files, each in one step."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.disk import new_file, new_folder, write_json

SUBJECTS = "subjects"
MARKER = ".bridgemil-cohort"  # says that a folder is ours to write in


def subject_folder(cohort: Path, subject: str) -> Path:
    """Where a subject's windows lie; characters that file systems dislike are percent-encoded."""
    name = urllib.parse.quote(subject, safe=" +-_.@()")
    return cohort / SUBJECTS / (name.replace(".", "%2E", 1) if name.startswith(".") else name)


def write_subject(
    cohort: Path,
    subject: str,
    windows: NDArray[np.float32],
    starts: NDArray[np.float64],
    record: Mapping[str, Any],
) -> None:
    """Write one subject's folder; it appears whole or not at all."""
    final = subject_folder(cohort, subject)
    cohort.mkdir(parents=True, exist_ok=True)
    (cohort / MARKER).touch()
    with new_folder(final) as partial:
        for name, array in (("windows.npy", windows), ("starts.npy", starts)):
            np.save(partial / name, array, allow_pickle=False)
        write_json(partial / "record.json", record)


def is_whole(cohort: Path, subject: str, n_windows: int, n_channels: int, n_times: int) -> bool:
    """Whether a subject's windows are there in full, by the file's size."""
    file = subject_folder(cohort, subject) / "windows.npy"
    return file.is_file() and file.stat().st_size > 4 * n_windows * n_channels * n_times


def write_cohort(cohort: Path, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write subjects.parquet, then cohort.json: the cohort exists once the latter does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = cohort / "subjects.parquet"
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with new_file(table) as stream:
        pq.write_table(pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows]), stream)
    write_json(cohort / "cohort.json", about)
