"""Workers as processes of this machine, each with its own threads (and its share of a GPU)."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from bridgemil.engine.plan import Job
from bridgemil.engine.scheduler import Event, Workers
from bridgemil.errors import BridgeMILError
from bridgemil.parallel import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from bridgemil.learning.loop import Progress

EPOCH_NEWS = 0.5  # seconds between two messages about epochs


class LocalWorkers(Workers):
    """A process each; a process that dies is replaced when it is next needed."""

    def __init__(
        self, out: str, jobs: int, threads: int, device: str = "auto", gpus: int = 0, *, script: bool = False
    ) -> None:
        self.out, self.jobs, self.threads, self.device, self.gpus = out, jobs, threads, device, gpus
        self.busy: dict[Connection, tuple[BaseProcess, Job, int]] = {}
        self.idle: list[tuple[Connection, BaseProcess, int]] = []
        self.started: set[Connection] = set()  # those that have said a word
        from joblib.externals.loky.backend import get_context

        # Only what a script registers at its top needs the script, and so a ``__main__`` guard, in the workers.
        self.context = get_context("loky_init_main" if script else "loky")

    @property
    def slots(self) -> int:
        """As many as were asked for."""
        return self.jobs

    def start(self, job: Job) -> None:
        """Hand the job to an idle process, or a new one."""
        while self.idle:
            connection, process, number = self.idle.pop()
            try:
                connection.send(job)
            except OSError:  # it died while idle
                process.join()
                continue
            self.busy[connection] = (process, job, number)
            return
        number = min(set(range(self.jobs)) - {one[2] for one in self.busy.values()})
        connection, theirs = self.context.Pipe()
        gpu = None if not self.gpus else number % self.gpus
        arguments = (theirs, self.out, self.device, self.threads, gpu)
        process = self.context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.busy[connection] = (process, job, number)
        with suppress(OSError):  # it died before it had read the job: `wait` finds the pipe closed
            connection.send(job)

    def wait(self, seconds: float) -> list[Event]:
        """Messages of processes; a closed pipe is a lost worker."""
        events = []
        for connection in cast("list[Connection]", wait(list(self.busy), timeout=seconds)):
            process, job, number = self.busy[connection]
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                process.join()
                if connection not in self.started and (process.exitcode or 0) > 0:
                    raise BridgeMILError(
                        f"a worker could not start (exit code {process.exitcode}; its error is above). In a script "
                        "that registers its own code, call benchmark() under `if __name__ == '__main__':`"
                    ) from None
                del self.busy[connection]
                events.append(Event(job, "lost", f"exit code {process.exitcode}"))
                continue
            if kind == "started":
                self.started.add(connection)
                continue
            if kind == "epoch":
                events.append(Event(job, "epoch", moment=content))
                continue
            del self.busy[connection]
            self.idle.append((connection, process, number))
            events.append(Event(job, kind, content))
        return events

    def close(self) -> None:
        """Kill what is running."""
        for process in [*(one[0] for one in self.busy.values()), *(one[1] for one in self.idle)]:
            assert process.pid is not None
            with suppress(OSError):  # it has ended
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has the latter only
            process.join()
        self.busy, self.idle = {}, []


def _serve(connection: Connection, out: str, device: str, threads: int, gpu: int | None) -> None:
    """A worker's life: take a job, do it, say how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = _visible(gpu)
    end_with_parent()
    from bridgemil.engine.work import do

    connection.send(("started", ""))
    last = 0.0

    def watch(moment: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > EPOCH_NEWS:
            last = now
            connection.send(("epoch", moment))

    while True:
        try:
            job: Any = connection.recv()
        except EOFError:
            return
        connection.send(do(job, out, device, threads, watch))


def _visible(gpu: int) -> str:
    """The name of this machine's n-th visible GPU."""
    listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return listed[gpu % len(listed)] if listed else str(gpu)
