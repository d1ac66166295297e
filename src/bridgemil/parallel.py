"""Do one thing to many items, over processes, with a progress bar on standard error.

Each worker uses one thread: two processes of one thread beat one process of two by far on filtering and reading, and
over-subscription is slower than either.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from bridgemil.errors import BridgeMILError

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """The cores this process may use (a cluster's allocation, not the whole machine)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity
        return os.cpu_count() or 1


def _start_worker() -> None:
    """Give the worker one thread, and end it when its parent is gone (killed parents leave no orphans)."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def leave_with_parent() -> None:
            multiprocessing.connection.wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=leave_with_parent, daemon=True).start()


def each(
    function: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, label: str, show: bool = True
) -> Iterator[tuple[Item, Result]]:
    """Yield ``(item, function(item))`` as results come in, in no fixed order.

    The first exception stops the rest; ``function`` must be importable (it is sent to worker processes).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        task = progress.add_task(label, total=len(items))
        for pair in _results(function, items, min(jobs, len(items))):
            progress.advance(task)
            yield pair


def _results(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    if jobs <= 1:
        for item in items:
            yield item, function(item)
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe once a library has started threads
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker) as pool:
        queue = iter(items)
        running: dict[Future[Result], Item] = {}
        try:
            while True:
                while len(running) < 2 * jobs:  # a short queue, so that an interrupt does not wait for thousands
                    try:
                        item = next(queue)
                    except StopIteration:
                        break
                    running[pool.submit(function, item)] = item
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise BridgeMILError(
                "a worker process was killed (out of memory, or by hand). What was finished is kept: run the same "
                "command again to go on, with a lower --jobs if memory was short."
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
