"""The scheduler: starts runs on whatever workers it is given, and loses none.

A run that raises an error is kept with its error and tried again by the next call. A run whose worker is lost is run
again at once, from its checkpoint. A Stage 1 encoder that several runs share is trained by one of them while the
others wait.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bridgemil.engine.plan import Job, remaining
from bridgemil.errors import STORAGE, BridgeMILError
from bridgemil.runs import RunStore
from bridgemil.storage.files import Taken, lock, write_json

if TYPE_CHECKING:
    from bridgemil.engine.display import Display
    from bridgemil.learning.loop import Progress

MOST_LOSSES = 10  # of one run's workers in one call; after that the run is the suspect
SIGHT = 30  # seconds in which a finished run must be seen here


@dataclass(frozen=True)
class Event:
    """What became of a run."""

    job: Job
    kind: Literal["epoch", "done", "failed", "lost", "storage"]
    words: str = ""  # of the error
    moment: Progress | None = None


class Workers(ABC):
    """Something that runs jobs."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many jobs it can run at a time, now."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Start a job; called only while a slot is free."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Event]:
        """What happened, at the latest after so many seconds."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything at once; unfinished runs keep their checkpoints."""


@dataclass
class Outcome:
    """What a call of the scheduler did."""

    done: int = 0
    lost: int = 0  # workers that died under a run, which was then run again
    failed: dict[str, str] = field(default_factory=dict)  # identity to error
    seconds: float = 0.0


def schedule(
    jobs: Sequence[Job],
    store: RunStore,
    workers: Workers,
    display: Display | None = None,
    required: Collection[str] = (),
) -> Outcome:
    """Run the jobs that are not done; the error of a ``required`` one (by identity) ends the call."""
    waiting, running = remaining(jobs, store), dict[str, Job]()
    losses: Counter[str] = Counter()
    outcome, begun = Outcome(), time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < workers.slots:
                job = _next(waiting, running, store)
                if job is None:
                    break
                running[job.identity] = job
                workers.start(job)
            for event in workers.wait(1.0):
                if event.kind != "epoch":
                    running.pop(event.job.identity, None)
                    if event.kind == "lost":
                        event = _lost(event, outcome, losses, waiting)
                    if event.kind == "failed" and event.job.identity in required:
                        raise BridgeMILError(event.words)
                    settle(event, store, outcome)
                if display is not None:
                    display.tell(event)
            if display is not None:
                display.show(list(running.values()), len(waiting))
    finally:
        workers.close()
    outcome.seconds = time.monotonic() - begun
    return outcome


def _next(waiting: list[Job], running: dict[str, Job], store: RunStore) -> Job | None:
    """The first job whose Stage 1 encoder is not being trained by another."""
    training = {job.stage1 for job in running.values() if job.stage1 is not None}
    stored: dict[str, bool] = {}
    for place, job in enumerate(waiting):
        if job.stage1 in training and job.stage1 is not None:
            if job.stage1 not in stored:
                stored[job.stage1] = store.stage1(job.stage1).is_dir()
            if not stored[job.stage1]:
                continue
        return waiting.pop(place)
    return None


def _lost(event: Event, outcome: Outcome, losses: Counter[str], waiting: list[Job]) -> Event:
    """Run it again, at once; returns the event, or that the run has failed where its workers are lost every time."""
    job = event.job
    losses[job.identity] += 1
    outcome.lost += 1
    if losses[job.identity] < MOST_LOSSES:
        waiting.insert(0, job)
        return event
    message = f"its worker was lost {MOST_LOSSES} times ({event.words or 'with its node'}); out of memory?"
    return Event(job, "failed", message)


def settle(event: Event, store: RunStore, outcome: Outcome) -> None:
    """Count and keep how a run ended."""
    job = event.job
    if event.kind == "done":
        _see(store, job)
        outcome.done += 1
        forget_failure(store, job)
    elif event.kind == "failed":
        outcome.failed[job.identity] = event.words
        folder = store.root / "failed"
        folder.mkdir(exist_ok=True)
        budget = f", budget {job.settings.budget}" if job.settings.is_network else ""
        content = {"run": str(job), "experiment": f"{job.title}{budget}", "error": event.words}
        write_json(folder / f"{job.identity}.json", content)
    elif event.kind == "storage":
        raise BridgeMILError(
            f"{store.root}: cannot be written ({event.words}). What was finished is kept; make room or allow writing, "
            "and run the same command again"
        )


def _see(store: RunStore, job: Job) -> None:
    """Believe a worker only when its run is here; a network's file system may show it a little later."""
    for _ in range(SIGHT):
        if store.is_done(job.identity):
            return
        time.sleep(1)
    raise BridgeMILError(
        f"{store.root}: a worker finished {job} but it is not here; --out must be on a path that all nodes share"
    )


def forget_failure(store: RunStore, job: Job) -> None:
    """The run is done after all."""
    (store.root / "failed" / f"{job.identity}.json").unlink(missing_ok=True)


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
