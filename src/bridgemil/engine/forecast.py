"""How long the runs of a plan will take: forecast before the first, and corrected by every run that ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridgemil.cohort.subset import subset
from bridgemil.engine.plan import Job, Plan
from bridgemil.evaluation.estimate import Estimate, duration, estimate, torch_threads

if TYPE_CHECKING:
    import torch

BASELINE = 0.05  # seconds a fold of a baseline takes when the features are there
START = 0.5  # seconds a run takes beside its training, in a worker that is warm


@dataclass
class Forecast:
    """Seconds of every run that remains, and the memory of the largest.

    Parameters
    ----------
    runs
        How many the plan has, those that are done and the baselines included.
    jobs
        The runs that remain, by identity.
    seconds
        Of each of them. What several share (features) is counted in the first.
    memory
        Bytes that the largest of them needs.
    at_once
        How many are run at a time.
    """

    runs: int
    jobs: dict[str, Job]
    seconds: dict[str, float]
    memory: float
    at_once: int = 1

    def finished(self, job: Job, seconds: float | None = None) -> None:
        """A run has ended, after ``seconds`` of training if it was successful: as long will the runs like it take.

        A baseline's time is that of its features, which are computed once, and says nothing about the next fold.
        """
        self.jobs.pop(job.identity, None)
        self.seconds.pop(job.identity, None)
        if seconds is not None and job.settings.is_network:
            alike = (other.identity for other in self.jobs.values() if other.experiment == job.experiment)
            self.seconds |= dict.fromkeys(alike, seconds + START)

    def left(self, running: Mapping[str, float] | None = None) -> float:
        """Seconds until the last run has ended.

        Parameters
        ----------
        running
            For how many seconds each of the running runs has been running, by identity.
        """
        begun = running or {}
        remaining = {key: max(0.0, seconds - begun.get(key, 0.0)) for key, seconds in self.seconds.items()}
        slots = max(1, min(self.at_once, len(remaining)))
        return max(sum(remaining.values()) / slots, max(remaining.values(), default=0.0))

    def __str__(self) -> str:
        done = self.runs - len(self.jobs)
        counts = f"{self.runs} runs: {done} done, {len(self.jobs)} to do"
        if not self.jobs:
            return counts
        beside = f" with {self.at_once} at a time" if self.at_once > 1 else ""
        return f"{counts}; about {duration(self.left())}{beside}, {self.memory / 1e9:.1f} GB of memory each"


def forecast(work: Plan, device: torch.device, threads: int = 1) -> Forecast:
    """Forecast the runs that remain: each as its finished siblings took, or by training steps measured here.

    Parameters
    ----------
    work
        The plan.
    device, threads
        What each run will use.
    """
    finished = work.store.finished()
    seen: dict[tuple[str, str, str], Estimate] = {}
    measured: dict[tuple[str, str, str], Estimate] = {}
    with torch_threads(threads):
        for job in work.todo:
            if job.experiment not in measured:
                used = subset(work.cohorts[job.cohort_hash], job.subjects.kept)
                measured[job.experiment] = estimate(used, job.subjects, job.settings, device)
    for job in work.jobs:
        if job.identity in finished and job.experiment in measured and job.experiment not in seen:
            took = float(work.store.metadata(job.identity)["seconds"])
            seen[job.experiment] = replace(measured[job.experiment], stage1=0.0, stage2=took, features=0.0)
    seconds, begun = dict[str, float](), set(seen)  # the experiments whose features are there
    for job in work.todo:
        one = seen.get(job.experiment) or measured[job.experiment]
        if job.settings.is_network:
            seconds[job.identity] = one.seconds + START + (0.0 if job.experiment in begun else one.features)
        else:
            seconds[job.identity] = BASELINE if job.experiment in begun else one.seconds
        begun.add(job.experiment)
    memory = max((one.memory for one in measured.values()), default=0.0)
    return Forecast(len(work.jobs), {job.identity: job for job in work.todo}, seconds, memory)
