"""Do one thing to many items, over processes, with a progress bar on standard error."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridgemil.errors import BadUse, BridgeMILError

if TYPE_CHECKING:
    import torch


Item = TypeVar("Item")
Result = TypeVar("Result")
WATCH = 0.5  # seconds between two looks at whether the parent is still there
MOMENT = 0.2  # seconds over which the load of the machine is sampled


def cores() -> int:
    """The cores this process may use (a cluster's allocation, not the whole machine)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity
        return os.cpu_count() or 1


def peak_memory() -> int | None:
    """Bytes of memory that this process, or a worker of it that has ended, held at most; where the system says it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return most * (1 if sys.platform == "darwin" else 1024)


def machine_memory() -> int | None:
    """Bytes of memory of this machine, where the system says it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def idle_cores() -> int:
    """The cores this process may use that nobody else keeps busy now; never less than two, where there are two.

    Sampled over a moment where the system counts it (Linux), all cores elsewhere. Two workers of one thread each take
    no more than their share of a busy machine, and one alone would leave half of that share unused.
    """
    most = cores()
    if most <= 2 or (before := _busy_seconds()) is None:
        return most
    begun = time.monotonic()
    time.sleep(MOMENT)
    after = _busy_seconds() or before
    busy = (after - before) / (time.monotonic() - begun)
    return max(2, most - round(busy))


def _busy_seconds() -> float | None:
    """Processor seconds that the cores of this process have spent on work since the machine started (Linux)."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [[int(value) for value in line.split()[1:]] for line in lines if line.split()[0] in ours]
        return sum(sum(row[:3]) + sum(row[5:8]) for row in rows) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None


def free_memory() -> int | None:
    """Bytes of memory that new processes may take, where the system says it."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else machine_memory()


def default_threads() -> int:
    """Threads for torch in a command that is one process: OMP_NUM_THREADS, or all the cores this process may use."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return int(granted) if granted.isdigit() and int(granted) > 0 else cores()


def device_of(name: str) -> torch.device:
    """``auto``, ``cpu`` or ``cuda`` (also ``cuda:1``) as a device that is there."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise BadUse(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadUse("device cuda: torch sees no CUDA device here; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadUse(f"device {name}: there are only {torch.cuda.device_count()} CUDA devices here")
    return device


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Give torch these threads, and put them back."""
    import torch

    if threads is not None and threads < 1:
        raise BadUse(f"threads must be at least 1, got {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or default_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def each(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    jobs: int,
    label: str,
    show: bool = True,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Yield ``(item, function(item))`` as results come in, in no fixed order; the first exception stops the rest.

    ``meanwhile`` is called once while the workers are busy with the first items.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Drawn when a result comes, not by a thread: a process with threads must not fork.
    with Progress(*columns, console=Console(stderr=True), disable=not show, auto_refresh=False) as progress:
        task = progress.add_task(label, total=len(items))
        progress.refresh()
        for pair in _results(function, items, min(jobs, len(items)), meanwhile):
            progress.update(task, advance=1, refresh=True)
            yield pair


def _results(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, meanwhile: Callable[[], object] | None
) -> Iterator[tuple[Item, Result]]:
    if jobs <= 1:
        for item in items:
            yield item, function(item)
        return
    executor, queue = _executor(jobs), iter(items)
    running: dict[Future[Result], Item] = {}
    try:
        while True:
            for item in queue:
                running[executor.submit(function, item)] = item
                if len(running) >= 2 * jobs:  # a short queue: an interrupt need not wait for thousands
                    break
            if not running:
                return
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise BridgeMILError(
            "a worker process ended before its work did: killed, or out of memory. What was finished is kept: run the "
            f"same command again to go on, with a lower --jobs if memory was short. ({str(error).splitlines()[0]})"
        ) from error
    finally:
        for future in running:
            future.cancel()
        executor.shutdown()


def _executor(jobs: int) -> Any:
    """Worker processes.

    Forked workers start at once with everything imported, but forking is safe only from a process with one thread and
    without torch's OpenMP. Elsewhere loky's serve, which come with joblib: slower to start, and no ``__main__`` guard
    is needed. They are our own and never leave idle: joblib's shared ones are joblib's to use, and where warnings are
    errors the one about a worker that leaves while work is given ends loky's thread, and everybody waits for ever.
    """
    if sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules:
        return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"), initializer=_start_worker)
    from joblib.externals import loky

    return loky.ProcessPoolExecutor(jobs, timeout=None, initializer=_start_worker)


def _start_worker() -> None:
    """Give the worker one thread, and end it with its parent."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    end_with_parent()


def end_with_parent() -> None:
    """In a worker: end it when its parent is gone, so that a killed command leaves nothing running."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        if parent.sentinel is not None:
            multiprocessing.connection.wait([parent.sentinel])
        while parent.sentinel is None and os.getppid() == parent.pid:  # loky's workers get nothing to wait for
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
