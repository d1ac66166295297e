"""Do the runs of a plan: one after the other in this process, in worker processes, or on a Ray cluster.

A run that raises an error is kept with its error and tried again by the next call. A run whose worker is lost is run
again at once, from its checkpoint. A Stage 1 encoder that several runs share is trained by one of them while the
others wait.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.forecast import Forecast, duration
from bridgemil.engine.plan import Job, Plan
from bridgemil.errors import STORAGE, BadData, BadUse, BridgeMILError
from bridgemil.methods import Settings
from bridgemil.parallel import Pool, device_of, free_memory, idle_cores, tell, torch_threads
from bridgemil.runs import RunStore
from bridgemil.storage.files import Taken, lock, write_json

if TYPE_CHECKING:
    from bridgemil.engine.ray import RayPool
    from bridgemil.learning.loop import Progress

ENGINES = ("inline", "local", "ray")
NEWS = 0.5  # seconds between two messages of a worker about epochs
MAX_LOSSES = 10  # of one run's workers in one call; after that the run itself is reported as failed
MAX_ROWS = 16  # of the live table
SIGHT = 30  # seconds that a network's file system may take to show a run that a worker has finished


@dataclass(frozen=True)
class Where:
    """On what to run: in this process, in processes of this machine or on a Ray cluster, and each run's share of it."""

    engine: str = "local"
    jobs: int | None = None  # runs at a time; by default as many as idle cores, memory or GPUs allow
    threads: int = 1  # of each run
    device: str = "auto"
    gpus_per_run: float = 1.0  # where there are GPUs
    address: str | None = None  # of the Ray cluster; None starts one on this machine

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise BadUse(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        if self.gpus_per_run <= 0 or self.threads < 1 or (self.jobs is not None and self.jobs < 1):
            raise BadUse("jobs and threads must be at least 1, and gpus_per_run above 0")
        if self.engine != "ray" and self.address is not None:
            raise BadUse("address is of a Ray cluster; use --engine ray with it")

    @property
    def gpus(self) -> list[str]:
        """The names of this machine's GPUs that may be used."""
        import torch

        listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        there = [] if self.device == "cpu" else range(torch.cuda.device_count())
        return listed or [str(number) for number in there] if there else []

    def at_once(self, memory: float = 0.0) -> int:
        """How many runs this machine does at a time: as many as asked for, or as GPUs, idle cores and memory allow.

        ``memory`` is in bytes, of one run.
        """
        if self.engine != "local" or self.jobs is not None:
            return self.jobs or 1
        if self.gpus:
            return max(1, int(len(self.gpus) / self.gpus_per_run))
        idle, free = idle_cores() // self.threads, free_memory()
        return max(1, min(idle, int(free / memory)) if memory and free is not None else idle)

    def workers(self, *, script: bool = False) -> Pool | RayPool:
        """Workers, none of which is started yet; processes import the calling ``script``, see ``Pool``."""
        if self.engine == "ray":
            from bridgemil.engine.ray import RayPool

            return RayPool(self.threads, self.gpus_per_run if self.device != "cpu" else 0.0, self.address, self.jobs)
        device_of(self.device)  # a device that is not there is better noticed now
        threads, gpus = {"OMP_NUM_THREADS": str(self.threads)}, self.gpus
        cards = [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {} for i in range(self.at_once())]
        return Pool(len(cards), [threads | card for card in cards], script=script)


class Display:
    """Progress on standard error: a live table in a terminal, else one line per run; nothing without a forecast."""

    def __init__(self, forecast: Forecast | None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.shown, self.forecast = forecast is not None, forecast or Forecast(0, {}, {}, 0.0)
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.in_table = self.shown and self.console.is_terminal
        self.counts = Counter({"done": self.forecast.runs - len(self.forecast.jobs)})
        self.progress: dict[str, Progress] = {}  # of the last epoch of each of the running runs
        self.began: dict[str, float] = {}  # when each of them was first seen
        self.drawn = 0.0

    def ended(self, job: Job, kind: str, message: str, store: RunStore) -> None:
        """A run has ended: ``done``, ``failed`` or, to be run again, ``lost``."""
        if not self.shown:
            return
        self.progress.pop(job.identity, None)
        self.began.pop(job.identity, None)
        self.counts[kind] += 1
        if kind != "lost":
            self.forecast.finished(job, float(store.metadata(job.identity)["seconds"]) if kind == "done" else None)
        sentences = {"failed": f"failed: {(message.splitlines() or [''])[-1]}", "lost": f"lost ({message}); run again"}
        line = f"[{self.counts['done']}/{self.forecast.runs}] {job}: {sentences.get(kind, kind)}, {self._left()} left"
        if not self.in_table or kind == "failed":
            self.console.print(line, markup=False, soft_wrap=True)

    def draw(self, running: Sequence[Job], waiting: int) -> None:
        """Draw the table, at most twice a second."""
        from rich.table import Table

        now = time.monotonic()
        for job in running:
            self.began.setdefault(job.identity, now)
        if not self.in_table or now - self.drawn < NEWS:
            return
        self.drawn = now
        counts = {**dict.fromkeys(("done", "failed"), 0), **self.counts, "running": len(running), "waiting": waiting}
        title = ", ".join(f"{counts[name]} {name}" for name in ("done", "failed", "running", "waiting"))
        columns = ("epoch", "loss", "validation") if self.progress else ()  # a Ray worker is silent before its end
        table = Table("run", *columns, title=f"{title}; about {self._left()} left", expand=True)
        for job in running[:MAX_ROWS]:
            at = self.progress.get(job.identity)
            accuracy = "" if at is None or at.accuracy is None else f"{at.accuracy:.0%}"
            table.add_row(str(job), *([f"{at.phase} {at.epoch}/{at.epochs}", f"{at.loss:.3f}", accuracy] if at else []))
        self.live.update(table, refresh=True)

    def _left(self) -> str:
        now = time.monotonic()
        return duration(self.forecast.left({identity: now - began for identity, began in self.began.items()}))


@dataclass
class Outcome:
    """What a call of ``execute`` did."""

    done: int = 0
    lost: int = 0  # workers that died under a run, which was then run again
    failed: dict[str, str] = field(default_factory=dict)  # identity to error
    seconds: float = 0.0


def execute(work: Plan, where: Where, expected: Forecast | None = None, *, required: Collection[str] = ()) -> Outcome:
    """Do what remains of a plan, showing progress where a forecast is given.

    Errors of the ``required`` runs (identities) end the call; those of others are kept, and do not stop the rest.
    """
    if not work.todo:
        return Outcome()
    begun, display = time.monotonic(), Display(expected)
    with display.live if display.in_table else nullcontext():
        if where.engine == "inline":
            outcome = _inline(work, where, display, required)
        else:
            workers = where.workers(script=any(registered(job.settings) for job in work.todo))
            display.forecast.at_once = workers.size
            how = (str(work.store.root.resolve()), where.device, where.threads)
            outcome = schedule(work.todo, work.store, workers, display, required, how)
    outcome.seconds = time.monotonic() - begun
    return outcome


def _inline(work: Plan, where: Where, display: Display, required: Collection[str]) -> Outcome:
    """One run after the other, in this process."""
    outcome, device = Outcome(), device_of(where.device)
    for waiting, job in zip(reversed(range(len(work.todo))), work.todo, strict=True):

        def watch(progress: Progress, job: Job = job, waiting: int = waiting) -> None:
            display.progress[job.identity] = progress
            display.draw([job], waiting)

        display.draw([job], waiting)
        kind, message = "done", ""
        try:
            with _limited_to(where.threads):
                work.make_run(job).perform(work.store, device, watch)
        except BridgeMILError as error:
            if job.identity in required:
                raise
            kind, message = "failed", str(error)
        _settle(job, kind, message, work.store, outcome, display)
    return outcome


def schedule(
    jobs: Sequence[Job],
    store: RunStore,
    workers: Pool | RayPool,
    display: Display | None = None,
    required: Collection[str] = (),
    how: tuple[str, str, int] = ("", "cpu", 1),
) -> Outcome:
    """Have the jobs that are not done run by workers; the error of a ``required`` one (by identity) ends the call.

    Parameters as of ``execute``; ``how`` is what ``do`` takes beside a job: folder, device and threads.
    """
    display, done, outcome = display or Display(None), store.finished(), Outcome()
    waiting, running = [job for job in jobs if job.identity not in done], dict[str, Job]()
    losses: Counter[str] = Counter()
    try:
        while waiting or running:
            while len(running) < workers.size and (job := _next(waiting, running, store)) is not None:
                running[job.identity] = job
                workers.submit(job, do, job, *how)
            for answer in workers.wait(1.0):
                job = answer.task
                if answer.kind == "news":
                    display.progress[job.identity] = answer.value
                    continue
                del running[job.identity]
                kind, message = answer.value if answer.kind == "done" else (answer.kind, str(answer.value))
                if kind == "lost":
                    losses[job.identity] += 1
                    outcome.lost += 1
                    if losses[job.identity] < MAX_LOSSES:
                        waiting.insert(0, job)
                    else:
                        kind, message = "failed", f"its worker was lost {MAX_LOSSES} times ({message}); out of memory?"
                if kind in ("failed", "error") and job.identity in required:
                    raise BridgeMILError(message)
                if kind == "done":
                    _await(job, store)
                _settle(job, kind, message, store, outcome, display)
            display.draw(list(running.values()), len(waiting))
    finally:
        workers.close()
    return outcome


def _next(waiting: list[Job], running: dict[str, Job], store: RunStore) -> Job | None:
    """The first job whose Stage 1 encoder is not being trained by another; None if there is none."""
    training = {job.stage1 for job in running.values() if job.stage1 is not None}
    training -= {identity for identity in training if store.place("stage1", identity).is_dir()}
    place = next((place for place, job in enumerate(waiting) if job.stage1 not in training), None)
    return None if place is None else waiting.pop(place)


def _await(job: Job, store: RunStore) -> None:
    """Wait until the finished run of a worker is visible in the store: a network's file system may show it later."""
    for _ in range(SIGHT):
        if store.is_done(job.identity):
            return
        time.sleep(1)
    raise BridgeMILError(
        f"{store.root}: a worker finished {job} but it is not here; --out must be on a path that all nodes share"
    )


def _settle(job: Job, kind: str, message: str, store: RunStore, outcome: Outcome, display: Display) -> None:
    """Count, keep and show how a run ended."""
    record = store.root / "failed" / f"{job.identity}.json"
    if kind == "done":
        outcome.done += 1
        record.unlink(missing_ok=True)
    elif kind in ("failed", "error"):
        outcome.failed[job.identity] = message
        record.parent.mkdir(exist_ok=True)
        budget = f", budget {job.settings.budget}" if job.settings.is_network else ""
        write_json(record, {"run": str(job), "experiment": f"{job.title}{budget}", "error": message})
    elif kind == "storage":
        raise BridgeMILError(
            f"{store.root}: cannot be written ({message}). What was finished is kept; make room or allow writing, "
            "and run the same command again"
        )
    display.ended(job, kind, message, store)


@contextmanager
def only_scheduler(store: RunStore) -> Iterator[None]:
    """One scheduler a folder; the lock is the operating system's, so a dead owner does not hold it."""
    try:
        with lock(store.lock_file("scheduler"), wait=False):
            yield
    except Taken:
        raise BridgeMILError(f"{store.root}: another benchmark is running on this folder; wait for it") from None
    except OSError as error:
        if error.errno in STORAGE:
            raise BridgeMILError(f"{store.root}: cannot be written ({error.strerror}); choose another --out") from None
        raise


def do(job: Job, out: str, device: str, threads: int) -> tuple[str, str]:
    """Perform a run in a worker; returns how it ended (``done``, ``failed`` or ``storage``) and its error."""
    store, last = RunStore(Path(out)), 0.0
    if not store.root.is_dir():
        return "storage", f"{socket.gethostname()} has no such folder: it must be on a path that all nodes share"

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > NEWS:
            last = time.monotonic()
            tell(progress)

    try:
        cohort, second = _opened(job.cohort), _opened(job.pretrain_on) if job.pretrain_on else None
        if cohort.hash != job.cohort_hash:
            raise BadData(f"{job.cohort}: is not the cohort that was planned with; it has changed meanwhile")
        _refuse_unknown(job.settings)
        with _limited_to(threads):
            job.make_run(cohort, second).perform(store, device_of(device), watch)
    except BridgeMILError as error:
        return "failed", str(error)
    except Exception as error:  # kept with the run; it must not hide the others
        if isinstance(error, OSError) and error.errno in STORAGE:
            file = error.filename and Path(os.fsdecode(error.filename))
            if file is None or file.is_relative_to(store.root):
                return "storage", error.strerror or errno.errorcode[error.errno]
        return "failed", "".join(traceback.format_exception(error)[-4:]).strip()
    return "done", ""


@contextmanager
def _limited_to(threads: int) -> Iterator[None]:
    """Threads of torch, numpy and scikit-learn: a run is bit-identical in this process and in a worker."""
    from threadpoolctl import threadpool_limits

    with torch_threads(threads), threadpool_limits(threads):
        yield


def registered(settings: Settings) -> bool:
    """Whether these name a backbone or baseline that is registered in this process, not one of a file or module."""
    name = settings.backbone or settings.method
    return settings.code is not None and (":" not in name or name.startswith("__main__:"))


def _refuse_unknown(settings: Settings) -> None:
    """What was registered by the process that planned is known there only."""
    from bridgemil import backbones, baselines

    name, kind, known = settings.method, "baseline", baselines.names()
    if settings.backbone is not None:
        name, kind, known = settings.backbone, "backbone", backbones.names()
    if registered(settings) and ":" not in name and name not in known:
        raise BadUse(
            f"{kind} {name!r} was registered in the process that planned this run; a worker does not know it. Use "
            "evaluate with jobs=1, or put it in a file and name it by its address: path/to/file.py:NAME"
        )


def _opened(path: str) -> Cohort:
    """The cohort, opened once unless it is replaced."""
    file = Path(path) / "cohort.json"
    return _open(path, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=4)
def _open(path: str, written: int) -> Cohort:
    return Cohort.open(path)
