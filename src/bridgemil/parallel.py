"""What of this machine a process may use, and one pool of worker processes, for recordings and for runs alike.

All that depends on the operating system is here or, for hard links, in ``storage.files``; a test looks for exceptions.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bridgemil.errors import BadUse, BridgeMILError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

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
    """The cores this process may use that nobody else keeps busy now (sampled on Linux; all cores elsewhere).

    Never less than two, where there are two: two workers of one thread each take no more than their share of a busy
    machine, and one alone would leave half of that share unused.
    """
    most = cores()
    if most <= 2 or (before := _busy_seconds()) is None:
        return most
    begun = time.monotonic()
    time.sleep(MOMENT)
    busy = ((_busy_seconds() or before) - before) / (time.monotonic() - begun)
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
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise BadUse(f"device must be auto, cpu or cuda, got {name!r}")
    device = torch.device(name)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise BadUse(f"device {name}: torch sees {count or 'no'} CUDA devices here; use --device cpu")
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


@dataclass(frozen=True)
class Answer:
    """What became of a task: ``done`` with its result, ``error`` with the exception, ``lost`` and why, or ``news``."""

    task: Any
    kind: Literal["done", "error", "lost", "news"]
    value: Any = None


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    tasks: list[Any] = field(default_factory=list)  # the one it does; none
    has_started: bool = False


class Pool:
    """Worker processes of this machine, which do one task at a time. A lost worker loses its task only and is replaced.

    They are loky's, which come with joblib: a script needs no ``__main__`` guard, unless processes must import it for
    what it registers (``script``). An executor would not do: it does not tell whose worker was lost, stops the other
    workers with it, and has no way to report progress. Each has variables (``environments``). With ``fork`` they start
    at once with everything imported: safe only from a process with one thread and without torch's OpenMP.
    """

    def __init__(
        self, size: int, environments: Sequence[Mapping[str, str]] = (), *, script: bool = False, fork: bool = False
    ) -> None:
        from joblib.externals.loky.backend import get_context

        self.size, self._environments = size, environments
        loky = "loky_init_main" if script else "loky"
        self._context: Any = multiprocessing.get_context("fork") if fork else get_context(loky)
        self._workers: dict[Connection, _Worker] = {}

    def submit(self, task: Any, function: Callable[..., Any], *arguments: Any) -> None:
        """Give a call to an idle worker, after starting those that are missing; the answer names it by ``task``."""
        from joblib.externals.loky.backend.reduction import dumps

        for number in sorted(set(range(self.size)) - {worker.number for worker in self._workers.values()}):
            ours, theirs = self._context.Pipe()
            environment = self._environments[number] if self._environments else {}
            process = self._context.Process(target=_serve, args=(theirs, environment), daemon=True)
            process.start()
            theirs.close()
            self._workers[ours] = _Worker(number, process)
        connection, worker = min(self._workers.items(), key=lambda pair: len(pair[1].tasks))
        worker.tasks.append(task)
        with suppress(OSError):  # it has died: `wait` finds the pipe closed
            connection.send_bytes(dumps((function, arguments)))

    def wait(self, seconds: float | None = None) -> list[Answer]:
        """What happened, at the latest after so many seconds."""
        answers = []
        ready = wait(list(self._workers), timeout=seconds)
        for connection in [own for own in self._workers if own in ready]:
            worker = self._workers[connection]
            try:
                kind, value = connection.recv()
            except (EOFError, OSError):
                code = self._end(connection)
                if not worker.has_started and code > 0:
                    raise BridgeMILError(
                        f"a worker could not start (exit code {code}; its error is above). In a script that registers "
                        "its own code, call evaluate() under `if __name__ == '__main__':`"
                    ) from None
                answers += [Answer(task, "lost", f"exit code {code}") for task in worker.tasks]
                continue
            if kind == "started":
                worker.has_started = True
            elif worker.tasks:
                answers.append(Answer(worker.tasks[0] if kind == "news" else worker.tasks.pop(0), kind, value))
        return answers

    def close(self) -> None:
        """Kill all processes."""
        for connection in list(self._workers):
            self._end(connection)

    def _end(self, connection: Connection) -> int:
        """Kill one process if it is alive; returns its exit code."""
        process = self._workers.pop(connection).process
        connection.close()
        assert process.pid is not None
        with suppress(OSError):  # it has ended
            os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has the latter only
        process.join()
        return process.exitcode or 0


_parent: Connection | None = None  # in a worker: where it answers


def tell(news: Any) -> None:
    """In a worker of a ``Pool``: send news of the task to the parent. Elsewhere nothing happens."""
    if _parent is not None:
        _parent.send(("news", news))


def _serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """A worker's life: take a call, do it with one thread unless it asks for more, answer."""
    from threadpoolctl import threadpool_limits

    global _parent
    _parent = connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    os.environ.update(environment)
    _end_with_parent()
    connection.send(("started", None))
    threadpool_limits(1)
    while True:
        answer: tuple[str, Any]
        try:
            function, arguments = connection.recv()
            answer = "done", function(*arguments)
        except EOFError:
            return
        except Exception as error:  # raised again in the parent
            error.add_note(f"in a worker process:\n{traceback.format_exc()}")
            answer = "error", error
        try:
            connection.send(answer)
        except Exception as error:  # what cannot be pickled
            cause = answer[1] if answer[0] == "error" else error
            connection.send(("error", BridgeMILError("".join(traceback.format_exception(cause)[-4:]).strip())))


def _end_with_parent() -> None:
    """In a worker: end it when its parent is gone, so that a killed command leaves nothing running."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        while os.getppid() == parent.pid:  # on Windows the number stays: there the closed pipe ends a worker
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


def each(
    function: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, label: str, show: bool = True
) -> Iterator[tuple[Item, Result]]:
    """Yield ``(item, function(item))`` as results come in, in no fixed order; the first exception stops the rest."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Drawn when a result comes, not by a thread: a process with threads must not fork.
    with Progress(*columns, console=Console(stderr=True), disable=not show, auto_refresh=False) as progress:
        task = progress.add_task(label, total=len(items))
        progress.refresh()
        for pair in _results(function, items, min(jobs, len(items))):
            progress.update(task, advance=1, refresh=True)
            yield pair


def _results(function: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result]]:
    if jobs <= 1:
        for item in items:
            yield item, function(item)
        return
    may_fork = (
        sys.platform == "linux" and hasattr(os, "fork") and threading.active_count() == 1 and "torch" not in sys.modules
    )
    pool = Pool(jobs, fork=may_fork)
    given = done = 0
    try:
        while done < len(items):
            for item in items[given : done + jobs]:
                pool.submit(item, function, item)
                given += 1
            for answer in pool.wait():
                if answer.kind == "error":
                    raise answer.value
                if answer.kind == "lost":
                    raise BridgeMILError(
                        f"a worker process ended before its work did ({answer.value}): killed, or out of memory. What "
                        "was finished is kept: run the same command again to resume, with a lower --jobs if memory was "
                        "short"
                    )
                done += 1
                yield answer.task, answer.value
    finally:
        pool.close()
