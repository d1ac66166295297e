"""Do one thing to many items, over processes, with a progress bar on standard error.

joblib keeps its workers between calls (their imports are paid once), needs no ``__main__`` guard in a user's script,
and gives each worker its share of the cores: over-subscription is several times slower than one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
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


def each(
    function: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, label: str, show: bool = True
) -> Iterator[tuple[Item, Result]]:
    """Yield ``(item, function(item))`` as results come in, in no fixed order; the first exception stops the rest."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        task = progress.add_task(label, total=len(items))
        # Batches of one: items take seconds, and a killed run loses at most one item a worker.
        pool = Parallel(n_jobs=min(jobs, len(items)) or 1, return_as="generator_unordered", batch_size=1)
        try:
            for pair in pool(delayed(_pair)(function, item) for item in items):
                progress.advance(task)
                yield pair
        except TerminatedWorkerError:
            raise BridgeMILError(
                "a worker process was killed (out of memory, or by hand). What was finished is kept: run the same "
                "command again to go on, with a lower --jobs if memory was short."
            ) from None


def _pair(function: Callable[[Item], Result], item: Item) -> tuple[Item, Result]:
    return item, function(item)
