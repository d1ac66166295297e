"""The windows of some subjects as the training loop takes them: numbered consecutively and read when they are needed.

Of a cohort on disk nothing is held but some memory maps; the operating system keeps as many of their pages as memory
allows. Where the disk must be waited for, or on a GPU, the windows of the next step are read in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData
from bridgemil.parallel import machine_memory

BLOCK = 2048  # windows embedded at once where no gradient is kept
MAPS = 128  # memory maps open at once; each holds a file open
CHUNK_BYTES = 2**18  # read and normalised at once: it stays in the processor's cache
MEMORY_SHARE = 0.25  # of the machine's memory: windows that need more will not stay in it, so the disk is waited for

Index = NDArray[np.int64]  # numbers of windows, or of subjects
Scale = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation per channel (or feature)
Batch = TypeVar("Batch")
Windows = TypeVar("Windows")


def normalised(windows: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Windows (n x C x T, microvolts) minus the mean, divided by the standard deviation of their channel (C each)."""
    mean, std = (values.astype(np.float32)[:, None] for values in scale)
    result = np.subtract(windows, mean, dtype=np.float32)
    return np.divide(result, std, out=result)


@dataclass(frozen=True)
class Layout:
    """Where recordings and subjects begin and end among the n numbered windows of S subjects (ends exclusive).

    Windows are numbered subject by subject and recording by recording. Where windows were left out of a recording, the
    part after the gap counts as another recording.
    """

    recording_start: Index  # of each window's recording, n
    recording_end: Index  # n
    bounds: Index  # where each subject begins, then the end of the last, S + 1

    @classmethod
    def of(cls, stretches: Sequence[Sequence[int]]) -> Layout:
        """The layout of subjects, each given by its numbers of windows between gaps (``Cohort.stretches``)."""
        lengths = np.array([n for subject in stretches for n in subject], dtype=np.int64)
        ends = np.cumsum(lengths)
        bounds = np.cumsum([0, *map(sum, stretches)], dtype=np.int64)
        return cls(np.repeat(ends - lengths, lengths), np.repeat(ends, lengths), bounds)


class WindowSet:
    """The normalised windows of some subjects; none is read before it is asked for.

    Windows are numbered in the order of ``subjects`` and have the ``shape`` (C, T), or (F,) where ``arrays`` gives
    features of a front end (n x F float32, memory-mapped) to be read instead. They are scaled by ``scale``, mean and
    standard deviation per channel of the training subjects, unless it is None, or by a subject's own, ``scale_of``
    (harmonised features). ``y`` has the class of each subject, -1 of one without a label; ``sizes`` its windows.
    """

    def __init__(
        self,
        cohort: Cohort,
        subjects: Sequence[str],
        scale: Scale | None,
        arrays: Callable[[str], NDArray[np.float32]] | None = None,
        scale_of: Callable[[str], Scale | None] | None = None,
    ) -> None:
        records = [cohort.records[subject] for subject in subjects]
        self.subjects, self.n_classes = tuple(subjects), len(cohort.classes)
        self.sizes = tuple(record.n_windows for record in records)
        numbers = {name: number for number, name in enumerate(cohort.classes)}
        self.y = torch.tensor([numbers.get(record.label, -1) for record in records])
        self.layout = Layout.of([cohort.stretches(subject) for subject in subjects])
        self.shape: tuple[int, ...] = (len(cohort.channels), cohort.n_times)
        if arrays is not None:
            self.shape = tuple(arrays(subjects[0]).shape[1:])
        where = arrays or cohort.windows, self.subjects, self.sizes, self.shape
        self._opened = lru_cache(MAPS)(partial(_open, *where))
        per_channel = (-1, *(1 for _ in self.shape[1:]))

        def in_shape(scale: Scale | None) -> list[NDArray[np.float32]] | None:
            # Of a window: a subtraction that need not repeat a number over time is twice as fast.
            return scale and [np.broadcast_to(v.reshape(per_channel), self.shape).astype(np.float32) for v in scale]

        same = in_shape(scale)
        self._scales = [same if scale_of is None else in_shape(scale_of(subject)) for subject in subjects]
        self._chunk = max(1, CHUNK_BYTES // (4 * int(np.prod(self.shape))))

    def __len__(self) -> int:
        return int(self.layout.bounds[-1])

    @property
    def n_bytes(self) -> int:
        """Of all windows, if they were in memory."""
        return 4 * len(self) * int(np.prod(self.shape))

    @property
    def window_y(self) -> Tensor:
        """The inherited label of each window, n."""
        return torch.repeat_interleave(self.y, torch.tensor(self.sizes))

    def class_weights(self) -> Tensor:
        """Inverse frequency of each class among the subjects (K), one on average; zero for a class without subjects."""
        counts = torch.bincount(self.y, minlength=self.n_classes)
        return torch.where(counts > 0, len(self.y) / (self.n_classes * counts.clamp(min=1)), 0.0)

    def bag_index(self, i: int) -> Index:
        """The numbers of the i-th subject's windows."""
        return np.arange(self.layout.bounds[i], self.layout.bounds[i + 1])

    def take(self, index: Index) -> Tensor:
        """The windows of these numbers (n), in their order, read in that of the files: n x *shape, on the CPU."""
        windows = np.empty((len(index), *self.shape), dtype=np.float32)
        order = np.argsort(index, kind="stable")
        sorted_index = index[order]
        bounds = np.searchsorted(sorted_index, self.layout.bounds)
        for i in np.flatnonzero(np.diff(bounds)).tolist():
            array, places = self._opened(i), order[bounds[i] : bounds[i + 1]]
            rows = sorted_index[bounds[i] : bounds[i + 1]] - self.layout.bounds[i]
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                self._normalise(i, array[row], windows[place])
        return torch.from_numpy(windows)

    def blocks(self, i: int) -> Iterator[Tensor]:
        """The windows of the i-th subject in order, ``BLOCK`` at a time: each n x *shape, on the CPU."""
        array = self._opened.__wrapped__(i)  # not kept open
        for first in range(0, len(array), BLOCK):
            block = array[first : first + BLOCK]
            windows = np.empty(block.shape, dtype=np.float32)
            for start in range(0, len(block), self._chunk):
                self._normalise(i, block[start : start + self._chunk], windows[start : start + self._chunk])
            yield torch.from_numpy(windows)

    def _normalise(self, i: int, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
        if (scale := self._scales[i]) is not None:
            np.subtract(source, scale[0], out=target)
            np.divide(target, scale[1], out=target)
        else:
            target[...] = source


def _open(
    read: Callable[[str], NDArray[np.float32]], subjects: Sequence[str], sizes: Sequence[int], shape: tuple[int, ...],
    i: int,
) -> NDArray[np.float32]:  # fmt: skip
    """The array of the i-th subject; one of another shape is refused."""
    array = np.asarray(read(subjects[i]))  # a plain view of a memory map: faster to index
    expected = (sizes[i], *shape)
    if array.shape != expected or array.dtype != np.float32:
        raise BadData(
            f"{subjects[i]}: its array is {array.shape} of {array.dtype}, expected {expected} of float32; "
            "it does not belong to this cohort: make it again"
        )
    return array


def batches(order: Index, size: int) -> Iterator[Index]:
    """Mini-batches of these windows; the last may be smaller, but a single window is left out (BN needs two)."""
    for first in range(0, len(order), size):
        part = order[first : first + size]
        if len(part) > 1:
            yield part


def n_batches(n: int, size: int) -> int:
    """The number of ``batches``."""
    return n // size + (n % size > 1)


def reads_ahead(n_bytes: int, device_type: str) -> bool:
    """Whether to read the next step's windows while this one is computed; ``n_bytes`` are read in an epoch.

    On a GPU, or where the disk must be waited for. Elsewhere the thread only takes time from the computation: 10 % on
    two cores.
    """
    memory = machine_memory()
    return device_type == "cuda" or (memory is not None and n_bytes > MEMORY_SHARE * memory)


def read_steps(
    batches: Iterable[Batch], read: Callable[[Batch], Windows], *, ahead: bool
) -> Generator[tuple[Batch, Callable[[], Windows]], None, None]:
    """Each batch with a function that returns its windows, or raises the error of reading them.

    Batches are drawn here, in the caller's thread, so that random numbers never depend on ``ahead``. With ``ahead`` a
    thread reads one step ahead; it ends with the iterator.
    """
    if not ahead:
        for batch in batches:
            yield batch, partial(read, batch)
        return
    thread = ThreadPoolExecutor(1, "reading ahead")
    try:
        waiting: list[tuple[Batch, Callable[[], Windows]]] = []
        for batch in batches:
            waiting.append((batch, thread.submit(read, batch).result))
            if len(waiting) > 1:
                yield waiting.pop(0)
        yield from waiting
    finally:
        thread.shutdown(cancel_futures=True)
