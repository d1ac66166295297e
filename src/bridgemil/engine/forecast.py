"""How long runs will take and how much memory they need: measured on this machine, corrected by every run that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.views import subset
from bridgemil.engine.plan import Job, Plan
from bridgemil.errors import plain
from bridgemil.learning.settings import BagSettings, Loop, limited_steps, with_min_steps
from bridgemil.methods import Settings
from bridgemil.models import FitCache, encoder_for, fit
from bridgemil.models.features import Encoder
from bridgemil.parallel import torch_threads

if TYPE_CHECKING:
    import torch
    from torch import Tensor


LIBRARIES = 0.5e9  # bytes: Python with torch, before any data
TEMPORARIES = 1.5  # what a step needs at its peak, over what it keeps for the gradient
BASELINE = 15e-9  # seconds a byte of signal takes a baseline
TRIED = 64  # windows on which the front end and the encoder are timed
MOST = 100e6  # bytes of windows, at most, in the trial fit
SUBJECTS = 8  # in the trial fit
TRYING = 0.1  # seconds, at most, of a forward pass of all windows of the trial fit
FITTED_BASELINE = 0.05  # seconds a fold of a baseline takes when the features are there
START = 0.5  # seconds a run takes beside its training


@dataclass(frozen=True)
class Estimate:
    """Time and memory that one run will take."""

    stage1: float  # seconds
    stage2: float
    memory: float  # bytes
    features: float = 0.0  # seconds a front end takes, once for all runs

    @property
    def seconds(self) -> float:
        """Both stages."""
        return self.stage1 + self.stage2


@dataclass(frozen=True)
class _Pace:
    """What the trial fit measured, per window."""

    step: float  # seconds of training, a window
    forward: float  # seconds of a forward pass, a window
    kept: float  # bytes a window keeps for the gradient
    window: float  # bytes a window has
    front_end: float  # seconds a window takes the front end
    stage1: float = 0.0  # seconds of Stage 1, a window that is encoded


def estimate(
    cohort: Cohort, subjects: Fold, settings: Settings, device: torch.device, pretrain_on: Cohort | None = None
) -> Estimate:
    """Measure a small step, and count how many windows a run with these settings will put through it."""
    if settings.candidates:
        return _with_choice(cohort, subjects, settings, device, pretrain_on)
    n = {name: sum(cohort.records[s].n_windows for s in getattr(subjects, name)) for name in ("train", "validation")}
    chosen = settings.stage2
    if chosen is None:
        window_bytes = 4 * len(cohort.channels) * cohort.n_times
        return Estimate(0, BASELINE * cohort.n_windows * window_bytes, LIBRARIES + 200 * window_bytes)
    bag = int(np.median([record.n_windows for record in cohort.records.values()]))
    bag = min(max(bag, 8), int(MOST / (4 * SUBJECTS * len(cohort.channels) * cohort.n_times)) + 8)
    pace = _measure(settings.model_dump_json(), cohort.signal, bag, str(device))
    stage1, most = 0.0, 0
    if settings.stage1 is not None:
        learned = n["train"] + (0 if pretrain_on is None else pretrain_on.n_windows)
        per_epoch, most = settings.stage1.encoded(learned)
        steps = -(-learned // settings.stage1.batch_windows)
        stage1 = _visits(settings.stage1, steps)[1] * per_epoch * pace.stage1
    sizes, frozen = [cohort.records[s].n_windows for s in subjects.train], 0
    if isinstance(chosen, BagSettings):
        sizes = [min(size, chosen.bag_windows or size) for size in sizes]
        steps = -(-len(subjects.train) // chosen.batch_subjects)
        most = max(most, sum(sorted(sizes, reverse=True)[: chosen.batch_subjects]))
    else:
        steps, most = -(-n["train"] // chosen.batch_windows), max(most, chosen.batch_windows)
    lasting, visits = _visits(chosen, steps)
    epochs = lasting.epochs
    if isinstance(lasting, BagSettings):
        frozen = epochs if lasting.frozen else lasting.freeze_epochs if settings.stage1 is not None else 0
    share = visits / epochs  # of the windows, in an epoch
    stage2 = (epochs - frozen) * (share * sum(sizes) * pace.step + n["validation"] * pace.forward)
    stage2 += (n["train"] if frozen else 0) * pace.forward
    memory = LIBRARIES + 3 * pace.window * most + TEMPORARIES * pace.kept * most
    return Estimate(stage1, stage2, memory, pace.front_end * cohort.n_windows)


def _with_choice(
    cohort: Cohort, subjects: Fold, settings: Settings, device: torch.device, pretrain_on: Cohort | None
) -> Estimate:
    """Of a run that chooses its settings: its own fit, and each candidate's on every inner fold."""
    n, inner = len(subjects.inner), FoldPlan(subjects.inner).cv_folds(settings.selects)[0]
    each = [(one, estimate(cohort, inner, one, device, pretrain_on)) for _, one in settings.candidates]
    own = estimate(cohort, subjects, settings.model_copy(update={"candidates": ()}), device, pretrain_on)
    if not settings.is_network:
        return replace(own, stage2=own.stage2 + n * len(each) * FITTED_BASELINE)
    encoders = {str(one.stage1): found.stage1 for one, found in each}  # candidates of one Stage 1 share its encoder
    further = n * (sum(encoders.values()) + sum(found.stage2 for _, found in each))
    return replace(own, stage2=own.stage2 + further, memory=max(own.memory, *(found.memory for _, found in each)))


class _Trial(FitCache):
    """Every subject has the same features; how long Stage 1 took is kept."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        super().__init__()
        self.rows, self.stage1_seconds = rows, 0.0

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """The rows; nothing is computed."""
        return self.rows

    def stage1(self, train: Callable[[Path | None], Encoder]) -> Encoder:
        """The encoder; its seconds are kept."""
        encoder = train(None)
        self.stage1_seconds = float(encoder[1]["seconds"])
        return encoder


def _visits(settings: Loop, steps: int) -> tuple[Loop, float]:
    """The settings with as many epochs as they last, and how often everything is visited in them."""
    lasting = with_min_steps(settings, steps)
    return lasting, lasting.epochs * limited_steps(lasting, steps) / max(1, steps)


@cache
def _measure(settings_json: str, signal: Signal, bag: int, where: str) -> _Pace:
    """Fit for an epoch on a few random windows, as the run will: what a step costs beside the encoder counts too."""
    import torch

    from bridgemil import aggregators, backbones
    from bridgemil.learning.networks import BagModel

    settings, device, kept = Settings.model_validate_json(settings_json), torch.device(where), 0
    slow = isinstance(settings.stage2, BagSettings) and settings.stage2.aggregator == "timemil"

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        encoder = encoder_for(settings, signal).to(device)
        x, front_end = torch.randn(TRIED, signal.n_channels, signal.n_times, device=device), 0.0
        if (front := getattr(encoder, "front_end", None)) is not None:
            front_end = _seconds(lambda: front(x), device) / len(x)
            x = front(x)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            head = aggregators.create("timemil" if slow else "mean", backbones.embedding_dim(encoder), 2).to(device)
            BagModel(encoder, head).aggregate(encoder(x), [TRIED // 2, TRIED // 2]).logits.sum().backward()
        with torch.no_grad():
            each = _seconds(lambda: encoder(x), device) / len(x)
    bag = min(bag, max(8, int(TRYING / each) // SUBJECTS))
    cohort, cache = _noise(signal, bag), _Trial(np.resize(x.cpu().numpy(), (bag, *x.shape[1:])))
    share = 1.0 if settings.stage1 is None else min(1.0, cohort.n_windows / settings.stage1.batch_windows)
    once = _once(settings, site_adjust="none", adjust=(), frozen=settings.frozen, stage2=_once(settings.stage2),
                 stage1=settings.stage1 and _once(settings.stage1, share))  # fmt: skip
    seconds, stage1 = fit(cohort, cohort.subjects, (), once, device=device, cache=cache).seconds, 0.0
    if once.stage1 is not None:
        took = cache.stage1_seconds
        seconds, stage1 = seconds - took, took / once.stage1.encoded(cohort.n_windows)[0]
    return _Pace(seconds / cohort.n_windows, each, kept / len(x), 4.0 * x[0].numel(), front_end, stage1)


def _noise(signal: Signal, bag: int) -> Cohort:
    """``SUBJECTS`` subjects of two classes with ``bag`` windows of this signal each."""
    rng, shape = np.random.default_rng(0), (bag, signal.n_channels, signal.n_times)
    noise = [rng.standard_normal(shape, dtype=np.float32) for _ in range(SUBJECTS)]
    labels = [("a", "b")[i % 2] for i in range(SUBJECTS)]
    cohort = Cohort.from_arrays(noise, labels, None, signal.sfreq, signal.channels, native_sfreq=signal.native_sfreq)
    cohort.metadata["settings"] = {"low": signal.low, "high": signal.high, "notch": signal.notch}
    return cohort


def _once(settings: Any, share: float = 1.0, **more: Any) -> Any:
    """The settings for one epoch in which everything is trained, without effect: no rate can break it down."""
    once = {
        "epochs": 1, "min_steps": 0, "warmup_epochs": 0, "freeze_epochs": 0, "burn_in": 0, "lr": 0.0,
        "encoder_lr": None, "frozen": False, "bag_windows": None, "selection": "last", "pretrain_on": None,
        "subbag_pairs": max(2, int(share * getattr(settings, "subbag_pairs", 0))),
    } | more  # fmt: skip
    return settings.model_copy(update={key: once[key] for key in once if key in type(settings).model_fields})


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    import torch

    best = float("inf")
    for _ in range(2):
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - begun)
    return best


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


def forecast(work: Plan, device: torch.device, threads: int = 1) -> Forecast:
    """Forecast the runs that remain: each as its finished siblings took, or by training steps measured here."""
    finished = work.store.finished()
    measured: dict[tuple[str, str, str], Estimate] = {}
    with torch_threads(threads):
        for job in work.todo:
            if job.experiment not in measured:
                used = subset(work.cohorts[job.cohort_hash], job.subjects.kept)
                measured[job.experiment] = estimate(used, job.subjects, job.settings, device, work.pretrain_on(job))
    memory, begun = max((one.memory for one in measured.values()), default=0.0), set()  # whose features are there
    for job in work.jobs:
        if job.identity in finished and job.experiment in measured and job.experiment not in begun:
            took = float(work.store.metadata(job.identity)["seconds"])
            measured[job.experiment] = replace(measured[job.experiment], stage1=0.0, stage2=took)
            begun.add(job.experiment)
    seconds = dict[str, float]()
    for job in work.todo:
        one, ready = measured[job.experiment], job.experiment in begun
        if job.settings.is_network:
            seconds[job.identity] = one.seconds + START + (0.0 if ready else one.features)
        else:
            seconds[job.identity] = (1 + job.inner_fits) * FITTED_BASELINE if ready else one.seconds
        begun.add(job.experiment)
    return Forecast(len(work.jobs), {job.identity: job for job in work.todo}, seconds, memory)


def duration(seconds: float) -> str:
    """As shown to users: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def say_auditing(cohort: str) -> None:
    """Say on standard error that the cohort of this name is being audited, which takes seconds."""
    sys.stderr.write(plain(f"auditing {cohort} …\n"))
