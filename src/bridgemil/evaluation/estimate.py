"""How long a run will take and how much memory it needs, from a measured step on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bridgemil.cohort.folds import Round
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadUse
from bridgemil.learning.settings import BagSettings, Stage1Settings, stretched
from bridgemil.methods import Settings
from bridgemil.models import encoder_for
from bridgemil.parallel import default_threads

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LIBRARIES = 0.5e9  # bytes: Python with torch, before any data
TEMPORARIES = 1.5  # what a step needs at its peak, over what it keeps for the gradient
BASELINE = 15e-9  # seconds a byte of signal takes a baseline
TRIED = 64  # windows a front end is tried on


@dataclass(frozen=True)
class Estimate:
    """Of one run."""

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
    """What was measured."""

    step: float  # seconds of training, a window
    forward: float  # seconds of a forward pass, a window
    kept: float  # bytes a window keeps for the gradient
    window: float  # bytes a window has
    front_end: float  # seconds a window takes the front end


def estimate(cohort: Cohort, subjects: Round, settings: Settings, device: torch.device) -> Estimate:
    """Measure a small step, and count how many windows the run will put through it.

    Parameters
    ----------
    cohort, subjects, settings
        Of the run.
    device
        Where it would train.
    """
    n = {name: sum(cohort.records[s].n_windows for s in getattr(subjects, name)) for name in ("train", "validation")}
    chosen = settings.stage2
    if chosen is None:
        window_bytes = 4 * len(cohort.channels) * cohort.n_times
        return Estimate(0, BASELINE * cohort.n_windows * window_bytes, LIBRARIES + 200 * window_bytes)
    bag = int(np.median([record.n_windows for record in cohort.records.values()]))
    bag = min(max(4 * bag, 64), 512)  # two of these are about a mini-batch of eight subjects
    pace = _measure(settings.model_dump_json(), cohort.signal, bag, str(device))
    stage1, most = 0.0, 0
    if settings.stage1 is not None:
        per_epoch, most = _stage1_windows(settings.stage1, n["train"])
        steps = -(-n["train"] // settings.stage1.batch_windows)
        stage1 = stretched(settings.stage1, steps).epochs * per_epoch * pace.step
    sizes = [cohort.records[s].n_windows for s in subjects.train]
    if isinstance(chosen, BagSettings):
        sizes = [min(size, chosen.bag_windows or size) for size in sizes]
        lasting = stretched(chosen, -(-len(subjects.train) // chosen.batch_subjects))
        epochs, frozen = lasting.epochs, lasting.freeze_epochs if settings.stage1 is not None else 0
        frozen = epochs if lasting.frozen else frozen
        most = max(most, sum(sorted(sizes, reverse=True)[: chosen.batch_subjects]))
    else:
        epochs, frozen = stretched(chosen, -(-n["train"] // chosen.batch_windows)).epochs, 0
        most = max(most, chosen.batch_windows)
    stage2 = (epochs - frozen) * (sum(sizes) * pace.step + n["validation"] * pace.forward)
    stage2 += (n["train"] if frozen else 0) * pace.forward
    memory = LIBRARIES + 3 * pace.window * most + TEMPORARIES * pace.kept * most
    return Estimate(stage1, stage2, memory, pace.front_end * cohort.n_windows)


def _stage1_windows(settings: Stage1Settings, n: int) -> tuple[int, int]:
    """Windows encoded in an epoch, and in the largest pass of it."""
    batch = min(settings.batch_windows, n)
    if settings.objective != "alignment":
        views = 2 if settings.objective == "supcon" else 1
        return views * n, views * batch
    subbags = 2 * settings.subbag_pairs * settings.subbag_size if settings.subbag else 0
    steps = -(-n // batch)
    return (2 * n if settings.nearby else 0) + steps * subbags, 2 * batch + subbags


@cache
def _measure(settings_json: str, signal: Signal, bag: int, where: str) -> _Pace:
    import torch

    from bridgemil import aggregators, backbones
    from bridgemil.learning.bags import BagModel

    settings, device, kept = Settings.model_validate_json(settings_json), torch.device(where), 0
    slow = isinstance(settings.stage2, BagSettings) and settings.stage2.aggregator == "timemil"

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        encoder = encoder_for(settings, signal)
        head = aggregators.create("timemil" if slow else "mean", backbones.embedding_dim(encoder), 2)
        model = BagModel(encoder, head).to(device)
        x, front_end = torch.randn(2 * bag, signal.n_channels, signal.n_times, device=device), 0.0
        if (front := getattr(encoder, "front_end", None)) is not None:
            front_end = _seconds(lambda: front(x[:TRIED]), device) / len(x[:TRIED])
            x = front(x[:TRIED]).repeat(-(-len(x) // TRIED), 1)[: len(x)]

        def step() -> None:
            model.aggregate(model.encoder(x), [bag, bag]).logits.sum().backward()

        def forward() -> None:
            with torch.no_grad():
                model.encoder(x)

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = model.aggregate(model.encoder(x), [bag, bag]).logits.sum()
        loss.backward()
        paces = [_seconds(work, device) / len(x) for work in (step, forward)]
        return _Pace(paces[0], paces[1], kept / len(x), 4.0 * x[0].numel(), front_end)


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


def duration(seconds: float) -> str:
    """For people: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


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
