"""Do one thing to many items, over processes, with a progress bar on standard error."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bridgemil.errors import BridgeMILError

Item = TypeVar("Item")
Result = TypeVar("Result")
WATCH = 0.5  # seconds between two looks at whether the parent is still there


def cores() -> int:
    """The cores this process may use (a cluster's allocation, not the whole machine)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity
        return os.cpu_count() or 1


def peak_memory() -> int | None:
    """Bytes of memory that this process held at most so far, where the system says it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine_memory() -> int | None:
    """Bytes of memory of this machine, where the system says it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def default_threads() -> int:
    """Threads for torch: what OMP_NUM_THREADS grants, or all the cores this process may use."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return int(granted) if granted.isdigit() and int(granted) > 0 else cores()


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
    """Give the worker one thread, and end it when its parent is gone: a killed command leaves nothing running."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        if parent.sentinel is not None:
            multiprocessing.connection.wait([parent.sentinel])
        while parent.sentinel is None and os.getppid() == parent.pid:  # loky's workers get nothing to wait for
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
