"""How long runs will take and how much memory they need: measured on this machine, corrected by every run that ends."""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.views import subset
from bridgemil.engine.plan import Job, Plan
from bridgemil.errors import plain
from bridgemil.learning.settings import BagSettings, Loop, limited_steps, with_min_steps
from bridgemil.methods import Settings
from bridgemil.models import FitCache, encoder_for, fit
from bridgemil.models.features import Encoder, Features
from bridgemil.parallel import device_of, torch_threads

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bridgemil.engine.execute import Where

LIBRARIES = 0.5e9  # bytes: Python with torch, before any data
TEMPORARIES = 1.5  # what a step needs at its peak, over what it keeps for the gradient
BASELINE = 15e-9  # seconds a byte of signal takes a baseline
SUBJECTS = 8  # in the trial fit
TRIED = {True: 64, False: 16}  # most windows of each of them, of an encoder with a front end and of another
BACKWARD = 3  # how much longer than a forward pass a training step takes
FITTED_BASELINE = 0.05  # seconds a fold of a baseline takes when the features are there
START = 0.5  # seconds a run takes beside its training


@dataclass(frozen=True)
class Estimate:
    """Time and memory that one run will take."""

    seconds: float
    memory: float  # bytes
    features: float  # seconds of what is computed once for all runs


@dataclass(frozen=True)
class _Pace:
    """What the trial fit measured, per window."""

    step: float  # seconds of training
    stage1: float  # seconds of Stage 1, of a window that is encoded
    features: float  # seconds of the front end
    kept: float  # bytes that are kept for the gradient


def estimate(
    cohort: Cohort, fold: Fold, settings: Settings, device: torch.device, pretrain_on: Cohort | None = None
) -> Estimate:
    """Measure a small fit, and count how many windows a run with these settings will put through its steps."""
    stage1, stage2, inner = settings.stage1, settings.stage2, len(fold.inner)
    window = 4.0 * len(cohort.channels) * cohort.n_times  # bytes
    if stage2 is None:
        fits = 1 + len(settings.candidates) * inner
        return Estimate(fits * FITTED_BASELINE, LIBRARIES + 200 * window, BASELINE * cohort.n_windows * window)
    bag = int(np.median([record.n_windows for record in cohort.records.values()]))
    measured = settings.model_copy(update={"candidates": ()})
    pace = _measure(measured.model_dump_json(), cohort.signal, bag, str(device))
    sizes, seconds, most = [cohort.records[subject].n_windows for subject in fold.train], 0.0, 0
    if stage1 is not None:
        learned = sum(sizes) + (0 if pretrain_on is None else pretrain_on.n_windows)
        encoded, most = stage1.encoded(learned)
        seconds = _visits(stage1, -(-learned // stage1.batch_windows))[1] * encoded * pace.stage1
    if isinstance(stage2, BagSettings):
        sizes = [min(size, stage2.bag_windows or size) for size in sizes]
        steps, largest = -(-len(sizes) // stage2.batch_subjects), sum(sorted(sizes)[-stage2.batch_subjects :])
    else:
        steps, largest = -(-sum(sizes) // stage2.batch_windows), stage2.batch_windows
    epochs, visits = _visits(stage2, steps)
    validating = sum(cohort.records[subject].n_windows for subject in fold.validation)
    seconds += (visits * sum(sizes) + epochs * validating / BACKWARD) * pace.step
    memory = LIBRARIES + (3 * window + TEMPORARIES * pace.kept) * max(most, largest)
    for _, one in settings.candidates:  # fitted on every inner fold
        seconds += inner * (estimate(cohort, fold, one, device, pretrain_on).seconds - START)
    return Estimate(START + seconds, memory, pace.features * cohort.n_windows)


def _visits(settings: Loop, steps: int) -> tuple[int, float]:
    """How many epochs there are, and how often everything is visited in them."""
    lasting = with_min_steps(settings, steps)
    return lasting.epochs, lasting.epochs * limited_steps(lasting, steps) / max(1, steps)


class _Trial(FitCache):
    """How long Stage 1 took is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1_seconds = 0.0

    def stage1(self, train: Callable[[Path | None], Encoder]) -> Encoder:
        """The encoder; its seconds are kept."""
        encoder = train(None)
        self.stage1_seconds = float(encoder[1]["seconds"])
        return encoder


@cache
def _measure(settings_json: str, signal: Signal, bag: int, where: str) -> _Pace:
    """Fit for an epoch on noise, as the run will: what a step costs beside the encoder counts too."""
    import torch

    settings, device, kept = Settings.model_validate_json(settings_json), torch.device(where), 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        features = Features.of_encoder(encoder_for(settings, signal).to(device))
    shape = (min(max(bag, 8), TRIED[features is not None]), signal.n_channels, signal.n_times)
    rng, labels = np.random.default_rng(0), ["a", "b"] * (SUBJECTS // 2)
    noise = [rng.standard_normal(shape, dtype=np.float32) for _ in labels]
    cohort = Cohort.from_arrays(noise, labels, None, signal.sfreq, signal.channels, native_sfreq=signal.native_sfreq)
    cohort.metadata["settings"] = {"low": signal.low, "high": signal.high, "notch": signal.notch}
    n, stage1 = cohort.n_windows, settings.stage1
    if stage1 is not None:
        share = min(1.0, n / stage1.batch_windows)  # of a step of the run
        stage1 = _once(stage1, subbag_pairs=max(2, int(share * getattr(stage1, "subbag_pairs", 0))))
    once = _once(settings, site_adjust="none", adjust=(), stage2=_once(settings.stage2), stage1=stage1)
    trial = _Trial()
    for _ in range(2):  # the first fit of a process is slower
        kept = 0
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            seconds = fit(cohort, cohort.subjects, (), once, device=device, cache=trial).seconds
    before = trial.stage1_seconds
    encoded = 0 if once.stage1 is None else once.stage1.encoded(n)[0]
    took = 0.0 if features is None else min(timeit.repeat(lambda: features.compute(noise[0]), number=1, repeat=2))
    return _Pace((seconds - before) / n, before / max(1, encoded), took / len(noise[0]), kept / (n + encoded))


def _once(settings: Any, **more: Any) -> Any:
    """The settings for one epoch in which everything is trained, without effect: no rate can break it down."""
    once = {
        "epochs": 1, "min_steps": 0, "warmup_epochs": 0, "freeze_epochs": 0, "burn_in": 0, "lr": 0.0,
        "encoder_lr": None, "bag_windows": None, "selection": "last", "pretrain_on": None,
    } | more  # fmt: skip
    return settings.model_copy(update={key: once[key] for key in once if key in type(settings).model_fields})


@dataclass
class Forecast:
    """Seconds of every run that remains, and the memory of the largest."""

    runs: int  # that the plan has, those that are done and the baselines included
    jobs: dict[str, Job]  # that remain, by identity
    seconds: dict[str, float]  # of each of them; what several share (features) is counted in the first
    memory: float  # bytes that the largest of them needs
    at_once: int = 1  # how many are run at a time

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
        """Seconds until the last run has ended; ``running`` has the seconds that each run has been running."""
        begun = running or {}
        remaining = {key: max(0.0, seconds - begun.get(key, 0.0)) for key, seconds in self.seconds.items()}
        slots = max(1, min(self.at_once, len(remaining)))
        return max(sum(remaining.values()) / slots, max(remaining.values(), default=0.0))

    def __str__(self) -> str:
        done = self.runs - len(self.jobs)
        counts = f"{self.runs} runs: {done} done, {len(self.jobs)} to do"
        if not self.jobs:
            return counts
        if further := sum(job.inner_fits for job in self.jobs.values()):
            counts += f", with {further} further fits to choose settings within the folds"
        beside = f" with {self.at_once} at a time" if self.at_once > 1 else ""
        return f"{counts}; about {duration(self.left())}{beside}, {self.memory / 1e9:.1f} GB of memory each"


def forecast(work: Plan, where: Where) -> Forecast:
    """Forecast the runs that remain: each as its finished siblings took, or by training steps measured here."""
    finished, device = work.store.finished(), device_of(where.device if where.engine != "ray" else "auto")
    measured: dict[tuple[str, str, str], Estimate] = {}
    with torch_threads(where.threads):
        for job in work.todo:
            if job.experiment not in measured:
                used = subset(work.cohorts[job.cohort_hash], job.fold.kept)
                measured[job.experiment] = estimate(used, job.fold, job.settings, device, work.pretrain_on(job))
    memory, begun = max((one.memory for one in measured.values()), default=0.0), set()  # whose features are there
    for job in work.jobs:
        if job.identity in finished and job.experiment in measured and job.experiment not in begun:
            begun.add(job.experiment)
            if job.settings.is_network:  # a baseline's time is that of its features
                took = float(work.store.metadata(job.identity)["seconds"]) + START
                measured[job.experiment] = replace(measured[job.experiment], seconds=took)
    seconds = dict[str, float]()
    for job in work.todo:
        one = measured[job.experiment]
        seconds[job.identity] = one.seconds + (0.0 if job.experiment in begun else one.features)
        begun.add(job.experiment)
    return Forecast(len(work.jobs), {job.identity: job for job in work.todo}, seconds, memory, where.at_once(memory))


def duration(seconds: float) -> str:
    """As shown to users: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def say_auditing(cohort: str) -> None:
    """Say on standard error that the cohort of this name is being audited, which takes seconds."""
    sys.stderr.write(plain(f"auditing {cohort} …\n"))
