"""How the windows of several subjects are numbered: subject after subject, recording after recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]  # numbers of windows, or of subjects


@dataclass(frozen=True)
class Layout:
    """Where recordings and subjects begin and end among the n numbered windows of S subjects (ends exclusive)."""

    recording_start: Index  # of each window's recording, n
    recording_end: Index  # n
    subject_start: Index  # of each subject, S
    subject_end: Index  # S

    @classmethod
    def of(cls, recording_windows: Sequence[Sequence[int]]) -> Layout:
        """Number windows through.

        Parameters
        ----------
        recording_windows
            For each subject, the number of windows of each of its recordings, in order.
        """
        lengths = np.array([n for subject in recording_windows for n in subject], dtype=np.int64)
        ends = np.cumsum(lengths)
        totals = np.cumsum([sum(subject) for subject in recording_windows], dtype=np.int64)
        return cls(
            np.repeat(ends - lengths, lengths),
            np.repeat(ends, lengths),
            np.concatenate([[0], totals[:-1]]).astype(np.int64),
            totals,
        )
