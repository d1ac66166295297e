"""Do the runs of a plan: one after the other in this process, in worker processes, or on a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.engine.display import Display
from bridgemil.engine.forecast import Forecast
from bridgemil.engine.plan import Job, Plan
from bridgemil.engine.scheduler import Event, Outcome, Workers, schedule, settle
from bridgemil.engine.work import perform, registered
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.parallel import device_of, free_memory, idle_cores

if TYPE_CHECKING:
    from bridgemil.learning.loop import Progress

ENGINES = ("inline", "local", "ray")


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

    def workers(self, out: Path, *, script: bool = False) -> Workers:
        """Start nothing yet; processes and tasks come with the first job. ``script``: processes import the script."""
        folder = str(out.resolve())
        if self.engine == "ray":
            from bridgemil.engine.ray import RayWorkers

            return RayWorkers(folder, self.threads, self.gpus_per_run, self.device, self.address, self.jobs)
        from bridgemil.engine.local import LocalWorkers

        device_of(self.device)  # a device that is not there is better noticed now
        return LocalWorkers(folder, self.jobs or self.at_once(), self.threads, self.device, self.gpus, script=script)

    def at_once(self, memory: float = 0.0) -> int:
        """How many runs this machine does at a time: as many as asked for, or as GPUs, idle cores and memory allow.

        Parameters
        ----------
        memory
            Bytes that one run needs.
        """
        if self.engine != "local" or self.jobs is not None:
            return self.jobs or 1
        if self.gpus:
            return max(1, int(self.gpus / self.gpus_per_run))
        idle, free = idle_cores() // self.threads, free_memory()
        return max(1, min(idle, int(free / memory)) if memory and free is not None else idle)

    @property
    def gpus(self) -> int:
        """How many GPUs of this machine may be used."""
        import torch

        return 0 if self.device == "cpu" else int(torch.cuda.device_count())


def execute(
    work: Plan,
    where: Where,
    expected: Forecast | None = None,
    *,
    progress: bool = True,
    required: Collection[str] = (),
) -> Outcome:
    """Do what remains of a plan.

    Parameters
    ----------
    work
        The plan.
    where
        On what to run.
    expected
        Its forecast; needed to show progress.
    progress
        Show progress on standard error.
    required
        Identities of the runs whose errors end the call. Those of other runs are kept, and do not stop the rest.
    """
    if not work.todo:
        return Outcome()
    with Display(expected, work.store) if progress and expected is not None else nullcontext() as display:
        if where.engine == "inline":
            return _inline(work, where, display, required)
        script = any(registered(job.settings) for job in work.todo)
        workers = where.workers(work.store.root, script=script)
        if expected is not None:
            expected.at_once = workers.slots
        return schedule(work.todo, work.store, workers, display, required)


def _inline(work: Plan, where: Where, display: Display | None, required: Collection[str]) -> Outcome:
    """One run after the other, in this process."""
    outcome, begun, device = Outcome(), time.monotonic(), device_of(where.device)
    for place, job in enumerate(work.todo, 1):

        def show(moment: Progress | None = None, job: Job = job, waiting: int = len(work.todo) - place) -> None:
            if display is not None:
                if moment is not None:
                    display.tell(Event(job, "epoch", moment=moment))
                display.show([job], waiting)

        show()
        try:
            perform(job, work.cohorts[job.cohort_hash], work.store, device, where.threads, show)
        except BridgeMILError as error:
            if job.identity in required:
                raise
            event = Event(job, "failed", str(error))
        else:
            event = Event(job, "done")
        settle(event, work.store, outcome)
        if display is not None:
            display.tell(event)
    return replace(outcome, seconds=time.monotonic() - begun)
