"""How the windows of several subjects are numbered: subject after subject, recording after recording.

Where windows were left out of a recording, what follows counts as another recording.
"""

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
    def of(cls, stretches: Sequence[Sequence[int]]) -> Layout:
        """Number windows through.

        Parameters
        ----------
        stretches
            For each subject, how many windows follow one another without a gap, in order (``Cohort.stretches``).
        """
        lengths = np.array([n for subject in stretches for n in subject], dtype=np.int64)
        ends = np.cumsum(lengths)
        totals = np.cumsum([sum(subject) for subject in stretches], dtype=np.int64)
        return cls(
            np.repeat(ends - lengths, lengths),
            np.repeat(ends, lengths),
            np.concatenate([[0], totals[:-1]]).astype(np.int64),
            totals,
        )
