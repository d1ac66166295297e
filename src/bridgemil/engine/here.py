"""A worker that is this process: one run after the other, and errors as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bridgemil.cohort.store import Cohort
from bridgemil.engine.plan import Job
from bridgemil.engine.scheduler import Event, Workers
from bridgemil.errors import BridgeMILError
from bridgemil.evaluation.run import Run
from bridgemil.runs import RunStore

if TYPE_CHECKING:
    import torch

    from bridgemil.learning.loop import Moment


class ThisProcess(Workers):
    """Does a job when it is waited for.

    Parameters
    ----------
    cohorts
        By hash; they may be in memory.
    store
        Where runs are kept.
    device
        Where to train.
    may_fail
        Jobs whose errors are reported; those of others are raised.
    """

    def __init__(
        self,
        cohorts: Mapping[str, Cohort],
        store: RunStore,
        device: torch.device,
        may_fail: Callable[[Job], bool] = lambda job: False,
    ) -> None:
        self.cohorts, self.store, self.device, self.may_fail = cohorts, store, device, may_fail
        self.waiting: list[Job] = []
        self.told: Callable[[Event], None] | None = None

    @property
    def slots(self) -> int:
        """One thing at a time."""
        return 1

    def listen(self, told: Callable[[Event], None]) -> None:
        """Who hears of epochs while a run goes on."""
        self.told = told

    def start(self, job: Job) -> None:
        """Remember the job."""
        self.waiting.append(job)

    def wait(self, seconds: float) -> list[Event]:
        """Do what was started."""
        events = []
        while self.waiting:
            job = self.waiting.pop(0)

            def watch(moment: Moment, job: Job = job) -> None:
                if self.told is not None:
                    self.told(Event(job, "epoch", moment=moment))

            run = Run(self.cohorts[job.cohort_hash], job.subjects, job.settings, job.seed, job.split)
            try:
                run.perform(self.store, self.device, watch)
            except BridgeMILError as error:
                if not self.may_fail(job):
                    raise
                events.append(Event(job, "failed", str(error)))
            else:
                events.append(Event(job, "done"))
        return events

    def close(self) -> None:
        """Nothing is left running."""
