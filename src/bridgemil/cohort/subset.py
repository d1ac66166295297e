"""A subset of the windows of a cohort: the last fifth of every recording, or the windows with the highest weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import SubjectRecord, describe
from bridgemil.errors import BadUse

Kept = Mapping[str, Sequence[int]]  # the numbers of the windows kept of a subject; who is not named keeps all


class CohortSubset(Cohort):
    """Some windows of a cohort; nothing is copied on disk.

    Windows that were neighbours stay neighbours: where some are left out between two others, a new piece begins, as if
    it were another recording.

    Parameters
    ----------
    whole
        The cohort.
    kept
        By subject, the numbers of the windows that stay, ascending; who is not named keeps all.
    """

    def __init__(self, whole: Cohort, kept: Kept) -> None:
        self.whole = whole
        self._rows = {subject: _checked(whole, subject, rows) for subject, rows in kept.items()}
        shortened = {subject: _shortened(whole.records[subject], rows) for subject, rows in self._rows.items()}
        super().__init__([*(whole.records | shortened).values()], whole.metadata, whole._columns, whole.path)
        self._measured: dict[str, SubjectRecord] = {}

    def windows(self, subject: str) -> NDArray[np.float32]:
        """The windows that are kept of a subject, n x C x T in microvolts."""
        return self.part(subject, self.whole.windows(subject))

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """Where each kept window begins, in seconds from the start of its recording."""
        return self.part(subject, self.whole.window_starts(subject))

    def window_numbers(self, subject: str) -> NDArray[np.int64]:
        """The numbers of the kept windows among all of the subject's."""
        return self.part(subject, self.whole.window_numbers(subject))

    def save(self, path: str | Path) -> Cohort:
        """Refused: a cohort on disk holds all windows."""
        raise BadUse(f"{path}: a subset of a cohort is not saved; save the cohort itself")

    def part(self, subject: str, values: NDArray[Any]) -> NDArray[Any]:
        """Of an array with a row for each of the subject's windows, the rows of those that are kept."""
        rows = self._rows.get(subject)
        if rows is None:
            return values
        if rows[-1] - rows[0] + 1 == len(rows):  # a stretch need not be copied
            return values[rows[0] : rows[-1] + 1]
        chosen: NDArray[Any] = values[rows]
        return chosen

    def _sums(self, subject: str) -> SubjectRecord:
        if subject not in self._rows:
            return self.whole.records[subject]
        if subject not in self._measured:
            own, windows = self.records[subject], self.windows(subject)
            self._measured[subject] = describe(subject, own.label, windows, own.recordings, own.recording_windows)
        return self._measured[subject]


def subset(cohort: Cohort, kept: Kept) -> Cohort:
    """The cohort with some windows only; the cohort itself where nothing is left out."""
    return CohortSubset(cohort, kept) if kept else cohort


def _checked(cohort: Cohort, subject: str, rows: Sequence[int]) -> NDArray[np.int64]:
    if subject not in cohort.records:
        raise BadUse(f"windows are kept of {subject}, who is not in the cohort")
    numbers, n = np.asarray(rows, dtype=np.int64), cohort.records[subject].n_windows
    if not len(numbers) or (np.diff(numbers) < 1).any() or numbers[0] < 0 or numbers[-1] >= n:
        raise BadUse(f"{subject}: the windows to keep must be some of 0 to {n - 1}, ascending, each once")
    return numbers


def _shortened(record: SubjectRecord, rows: NDArray[np.int64]) -> SubjectRecord:
    """Without sums: they are measured when they are needed."""
    ends = np.cumsum(record.recording_windows)
    recording = np.searchsorted(ends, rows, side="right")
    begins = np.flatnonzero(np.append(True, (np.diff(rows) > 1) | (np.diff(recording) > 0)))
    lengths = np.diff(np.append(begins, len(rows)))
    digest = hashlib.sha256(f"{record.signal_hash} {rows.tolist()}".encode()).hexdigest()
    names = tuple(record.recordings[i] for i in recording[begins].tolist()) if record.recordings else ()
    return SubjectRecord(record.subject, record.label, names, tuple(lengths.tolist()), (), (), digest)
