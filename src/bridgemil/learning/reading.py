"""Reading windows by number from arrays that need not fit into memory, and reading ahead of a loop where that pays.

Of a cohort on disk nothing is held but some memory maps; the operating system keeps of their pages what memory allows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData
from bridgemil.learning.layout import Index
from bridgemil.parallel import machine_memory

MAPS = 128  # memory maps open at once; each holds a file open
CHUNK_BYTES = 2**18  # read and normalised at once: it stays in the processor's cache
MEMORY_SHARE = 0.25  # of the machine's memory: windows that need more will not stay in it, so the disk is waited for

Scale = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation per channel (or feature)
Batch = TypeVar("Batch")
Windows = TypeVar("Windows")


def normalised(windows: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Windows (n x C x T, microvolts) less the mean and divided by the deviation of their channel (C each)."""
    mean, std = (values.astype(np.float32)[:, None] for values in scale)
    result = np.subtract(windows, mean, dtype=np.float32)
    return np.divide(result, std, out=result)


class BagReader:
    """Windows of several subjects, read when they are asked for and normalised on the way.

    Parameters
    ----------
    arrays
        ``arrays(subject)`` opens a subject's windows: float32, n x *shape, memory-mapped or in memory.
    subjects
        Ids, S of them.
    starts
        The number of each subject's first window, S + 1; the last entry is the number of all windows.
    shape
        Of one window: (C, T) in microvolts, or (F,) features.
    scale
        Mean and standard deviation per channel; None leaves the windows as they are.
    """

    def __init__(
        self,
        arrays: Callable[[str], NDArray[np.float32]],
        subjects: Sequence[str],
        starts: Index,
        shape: tuple[int, ...],
        scale: Scale | None,
    ) -> None:
        self._arrays, self._subjects, self._starts, self.shape = arrays, tuple(subjects), starts, shape
        per_channel = (-1, *(1 for _ in shape[1:]))
        # In the shape of a window: a subtraction that need not repeat a number over time is quicker by a half.
        self._scale = scale and tuple(np.broadcast_to(v.reshape(per_channel), shape).astype(np.float32) for v in scale)
        self._open: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._opening = threading.Lock()
        self._chunk = max(1, CHUNK_BYTES // (4 * int(np.prod(shape))))

    def take(self, index: Index) -> NDArray[np.float32]:
        """The windows of these numbers (n), in the order of ``index``: n x *shape. Read in the order of the files."""
        windows = np.empty((len(index), *self.shape), dtype=np.float32)
        order = np.argsort(index, kind="stable")
        sorted_index = index[order]
        bounds = np.searchsorted(sorted_index, self._starts)
        for i in np.flatnonzero(np.diff(bounds)).tolist():
            array, places = self._kept(i), order[bounds[i] : bounds[i + 1]]
            rows = sorted_index[bounds[i] : bounds[i + 1]] - self._starts[i]
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                self._normalise(array[row], windows[place])
        return windows

    def span(self, i: int, first: int, last: int) -> NDArray[np.float32]:
        """Windows ``first`` up to ``last`` (exclusive) of the i-th subject: n x *shape. Its map is not kept open."""
        array = self._opened(i)[first:last]
        windows = np.empty(array.shape, dtype=np.float32)
        for start in range(0, len(array), self._chunk):
            self._normalise(array[start : start + self._chunk], windows[start : start + self._chunk])
        return windows

    def _normalise(self, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
        if self._scale is not None:
            np.subtract(source, self._scale[0], out=target)
            np.divide(target, self._scale[1], out=target)
        else:
            target[...] = source

    def _kept(self, i: int) -> NDArray[np.float32]:
        """The i-th subject's array; the one used longest ago is closed where too many are open."""
        with self._opening:
            if i not in self._open:
                while len(self._open) >= MAPS:
                    self._open.popitem(last=False)
                self._open[i] = self._opened(i)
            self._open.move_to_end(i)
            return self._open[i]

    def _opened(self, i: int) -> NDArray[np.float32]:
        array = np.asarray(self._arrays(self._subjects[i]))  # a plain view of a memory map: quicker to index
        expected = (int(self._starts[i + 1] - self._starts[i]), *self.shape)
        if array.shape != expected or array.dtype != np.float32:
            raise BadData(
                f"{self._subjects[i]}: its array is {array.shape} of {array.dtype}, expected {expected} of float32; "
                "it does not belong to this cohort: make it again"
            )
        return array


def pays(n_bytes: int, device_type: str) -> bool:
    """Whether to read the next step's windows while this one is computed.

    On a GPU, or where the disk must be waited for. Elsewhere the thread only takes time from the computation: it cost
    a tenth on two cores.

    Parameters
    ----------
    n_bytes
        Of all windows that an epoch reads.
    device_type
        ``cpu`` or ``cuda``: where the computation is.
    """
    memory = machine_memory()
    return device_type == "cuda" or (memory is not None and n_bytes > MEMORY_SHARE * memory)


def steps(
    batches: Iterable[Batch], read: Callable[[Batch], Windows], *, ahead: bool
) -> Generator[tuple[Batch, Callable[[], Windows]], None, None]:
    """Each batch with a function that gives its windows, or raises what went wrong in reading them.

    Batches are drawn here, in the caller's thread: random numbers never depend on ``ahead``. With ``ahead`` a thread
    reads one step ahead; it ends with the iterator.

    Parameters
    ----------
    batches
        The steps of an epoch, as drawn.
    read
        Reads the windows of a step.
    ahead
        Whether to read in a thread.
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
