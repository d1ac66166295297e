"""The normalised windows of some subjects, as the loops take them: one array, subject after subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bridgemil.cohort.store import Cohort
from bridgemil.learning.objectives.pairs import Layout

BLOCK = 2048  # windows embedded at once where no gradient is kept
Scale = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation per channel


@dataclass(frozen=True)
class WindowSet:
    """Windows of several subjects, numbered through."""

    subjects: tuple[str, ...]
    x: Tensor  # n x C x T, on the CPU
    y: Tensor  # the class of each subject
    sizes: tuple[int, ...]  # windows of each subject
    layout: Layout
    n_classes: int

    @classmethod
    def load(cls, cohort: Cohort, subjects: Sequence[str], scale: Scale) -> WindowSet:
        """Read and normalise these subjects' windows by a scale that was fitted on the training subjects."""
        records = [cohort.records[subject] for subject in subjects]
        mean, std = (values.astype(np.float32)[:, None] for values in scale)
        sizes = tuple(record.n_windows for record in records)
        x = np.empty((sum(sizes), len(cohort.channels), cohort.n_times), dtype=np.float32)
        first = 0
        for subject, size in zip(subjects, sizes, strict=True):
            part = x[first : first + size]
            np.subtract(cohort.windows(subject), mean, out=part)
            np.divide(part, std, out=part)
            first += size
        y = torch.tensor([cohort.classes.index(record.label) for record in records])
        layout = Layout.of([record.recording_windows for record in records])
        return cls(tuple(subjects), torch.from_numpy(x), y, sizes, layout, len(cohort.classes))

    def bag(self, i: int) -> Tensor:
        """The windows of the i-th subject."""
        return self.x[int(self.layout.subject_start[i]) : int(self.layout.subject_end[i])]

    def bag_index(self, subjects: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of these subjects' windows, one subject after the other."""
        return np.concatenate([np.arange(self.layout.subject_start[i], self.layout.subject_end[i]) for i in subjects])

    @property
    def window_y(self) -> Tensor:
        """The inherited label of each window."""
        return torch.repeat_interleave(self.y, torch.tensor(self.sizes))

    def class_weights(self) -> Tensor:
        """Inverse frequency of each class among the subjects, one on average; a class nobody has weighs nothing."""
        counts = torch.bincount(self.y, minlength=self.n_classes)
        return torch.where(counts > 0, len(self.y) / (self.n_classes * counts.clamp(min=1)), 0.0)


def batches(order: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Mini-batches of these windows; the last may be smaller, but a single window is left out (BN needs two)."""
    for first in range(0, len(order), size):
        part = order[first : first + size]
        if len(part) > 1:
            yield part


def n_batches(n: int, size: int) -> int:
    """How many ``batches`` there are."""
    return n // size + (n % size > 1)


@torch.no_grad()
def in_blocks(module: nn.Module, x: Tensor, device: torch.device) -> Tensor:
    """Apply a module in evaluation mode to many windows, a block at a time."""
    module.eval()
    return torch.cat([module(part.to(device)) for part in x.split(BLOCK)])
