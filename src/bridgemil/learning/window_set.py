"""The normalised windows of some subjects, as the loops take them: numbered through, and read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bridgemil.cohort.cohort import Cohort
from bridgemil.learning.layout import Index, Layout
from bridgemil.learning.reading import BagReader, Scale

BLOCK = 2048  # windows embedded at once where no gradient is kept


@dataclass(frozen=True)
class WindowSet:
    """Windows of several subjects; what is held are their numbers, not the windows."""

    subjects: tuple[str, ...]
    y: Tensor  # the class of each subject
    sizes: tuple[int, ...]  # windows of each subject
    layout: Layout
    n_classes: int
    raw_shape: tuple[int, int]  # channels and samples of the cohort's windows, also where features stand for them
    reader: BagReader = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        cohort: Cohort,
        subjects: Sequence[str],
        scale: Scale | None,
        arrays: Callable[[str], NDArray[np.float32]] | None = None,
    ) -> WindowSet:
        """The windows of these subjects; none is read yet.

        Parameters
        ----------
        cohort
            On disk or in memory.
        subjects
            Ids, in the order in which their windows are numbered.
        scale
            Mean and standard deviation per channel (C each, microvolts), fitted on the training subjects; None leaves
            the windows as they are.
        arrays
            ``arrays(subject)`` gives the array to read instead of the cohort's windows, n x F or n x C x T float32, a
            row a window: a front end's features, memory-mapped.
        """
        records = [cohort.records[subject] for subject in subjects]
        sizes = tuple(record.n_windows for record in records)
        y = torch.tensor([cohort.classes.index(record.label) for record in records])
        layout = Layout.of([cohort.stretches(subject) for subject in subjects])
        raw_shape = (len(cohort.channels), cohort.n_times)
        shape = raw_shape if arrays is None else tuple(arrays(subjects[0]).shape[1:])
        starts = np.append(layout.subject_start, layout.subject_end[-1])
        reader = BagReader(arrays or cohort.windows, subjects, starts, shape, scale)
        return cls(tuple(subjects), y, sizes, layout, len(cohort.classes), raw_shape, reader)

    def __len__(self) -> int:
        """Windows of all subjects."""
        return int(self.layout.subject_end[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one window: (C, T), or (F,) for features."""
        return self.reader.shape

    @property
    def n_bytes(self) -> int:
        """Of all windows, if they were in memory."""
        return 4 * len(self) * int(np.prod(self.shape))

    def take(self, index: Index) -> Tensor:
        """The normalised windows of these numbers (n), in the order of ``index``: n x *shape, on the CPU."""
        return torch.from_numpy(self.reader.take(index))

    def bag(self, i: int) -> Tensor:
        """All windows of the i-th subject: n x *shape, on the CPU."""
        return torch.from_numpy(self.reader.span(i, 0, self.sizes[i]))

    def blocks(self, i: int) -> Iterator[Tensor]:
        """The windows of the i-th subject in order, ``BLOCK`` at a time: each n x *shape, on the CPU."""
        for first in range(0, self.sizes[i], BLOCK):
            yield torch.from_numpy(self.reader.span(i, first, min(first + BLOCK, self.sizes[i])))

    def bag_index(self, subjects: Index) -> Index:
        """The numbers of these subjects' windows, one subject after the other."""
        return np.concatenate([np.arange(self.layout.subject_start[i], self.layout.subject_end[i]) for i in subjects])

    @property
    def window_y(self) -> Tensor:
        """The inherited label of each window, n."""
        return torch.repeat_interleave(self.y, torch.tensor(self.sizes))

    def class_weights(self) -> Tensor:
        """Inverse frequency of each class among the subjects (K), one on average; a class nobody has weighs nothing."""
        counts = torch.bincount(self.y, minlength=self.n_classes)
        return torch.where(counts > 0, len(self.y) / (self.n_classes * counts.clamp(min=1)), 0.0)


def batches(order: Index, size: int) -> Iterator[Index]:
    """Mini-batches of these windows; the last may be smaller, but a single window is left out (BN needs two)."""
    for first in range(0, len(order), size):
        part = order[first : first + size]
        if len(part) > 1:
            yield part


def n_batches(n: int, size: int) -> int:
    """How many ``batches`` there are."""
    return n // size + (n % size > 1)
