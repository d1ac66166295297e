"""What is known of a subject without reading its signal: whose windows, how many, their sums and their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        """Read a record.

        Parameters
        ----------
        row
            A row of subjects.parquet, or the content of a record.json; further keys are ignored.
        """
        values: dict[str, Any] = {}
        for key in cls.__dataclass_fields__:
            values[key] = tuple(row[key]) if isinstance(row[key], list) else row[key]
        return cls(**values)

    @property
    def n_windows(self) -> int:
        """Windows in the bag."""
        return sum(self.recording_windows)


def describe(
    subject: str, label: str, windows: NDArray[np.float32], recordings: Sequence[str], recording_windows: Sequence[int]
) -> SubjectRecord:
    """Compute a subject's record from its windows.

    Parameters
    ----------
    subject, label
        Who it is, and the diagnosis.
    windows : shape (n_windows, n_channels, n_times)
        The bag, in microvolts.
    recordings
        Names of the recordings, in the order of their windows.
    recording_windows
        How many windows each of them gave.
    """
    n, n_channels, n_times = windows.shape
    sums, squares = np.zeros(n_channels), np.zeros(n_channels)
    for channel in range(n_channels):
        values = windows[:, channel].astype(np.float64)
        sums[channel] = values.sum()
        squares[channel] = np.square(values - sums[channel] / max(n * n_times, 1)).sum()
    digest = hashlib.sha256(f"{windows.shape}".encode())
    digest.update(np.ascontiguousarray(windows).data)
    return SubjectRecord(
        subject, label, tuple(recordings), tuple(map(int, recording_windows)), tuple(sums.tolist()),
        tuple(squares.tolist()), digest.hexdigest(),
    )  # fmt: skip


def default_folds(labels: Sequence[str]) -> int:
    """k = 10, or the size of the smallest class if that is smaller.

    Parameters
    ----------
    labels
        One diagnosis a subject.
    """
    return min(10, *(labels.count(label) for label in set(labels)))
