"""How long a run will take and how much memory it needs, from a measured step on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bridgemil import aggregators, backbones
from bridgemil.cohort.folds import Round
from bridgemil.cohort.store import Cohort
from bridgemil.learning.settings import BagSettings, BandPowerSettings, Stage1Settings
from bridgemil.methods import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LIBRARIES = 0.5e9  # bytes: Python with torch, before any data
TEMPORARIES = 1.5  # what a step needs at its peak, over what it keeps for the gradient


@dataclass(frozen=True)
class Estimate:
    """Of one run."""

    stage1: float  # seconds
    stage2: float
    memory: float  # bytes

    @property
    def seconds(self) -> float:
        """Both stages."""
        return self.stage1 + self.stage2


def estimate(cohort: Cohort, subjects: Round, settings: Settings, device: torch.device) -> Estimate:
    """Measure a small step, and count how many windows the run will put through it."""
    n = {name: sum(cohort.records[s].n_windows for s in getattr(subjects, name)) for name in ("train", "validation")}
    window_bytes = 4 * len(cohort.channels) * cohort.n_times
    if isinstance(settings.stage2, BandPowerSettings):
        return Estimate(0, 1e-9 * cohort.n_windows * window_bytes * 15, LIBRARIES + 200 * window_bytes)
    bag = int(np.median([record.n_windows for record in cohort.records.values()]))
    bag = min(max(4 * bag, 64), 512)  # two of these are about a mini-batch of eight subjects
    slow = isinstance(settings.stage2, BagSettings) and settings.stage2.aggregator == "timemil"
    shape = (len(cohort.channels), cohort.n_times, bag)
    step, forward, kept = _measure(
        settings.backbone, json.dumps(settings.backbone_options), "timemil" if slow else "mean", shape, str(device)
    )
    stage1, most = 0.0, 0
    if settings.stage1 is not None:
        per_epoch, most = _stage1_windows(settings.stage1, n["train"])
        stage1 = settings.stage1.epochs * per_epoch * step
    chosen = settings.stage2
    trained, frozen = chosen.epochs, 0
    largest = sorted((cohort.records[s].n_windows for s in subjects.train), reverse=True)
    if isinstance(chosen, BagSettings):
        frozen = chosen.freeze_epochs if settings.stage1 is not None else 0
        trained -= frozen
        most = max(most, sum(largest[: chosen.batch_subjects]))
    else:
        most = max(most, chosen.batch_windows)
    stage2 = trained * (n["train"] * step + n["validation"] * forward) + (n["train"] if frozen else 0) * forward
    data = window_bytes * (cohort.n_windows + 2 * most)
    return Estimate(stage1, stage2, LIBRARIES + data + TEMPORARIES * kept * most)


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
def _measure(
    backbone: str, options: str, aggregator: str, shape: tuple[int, int, int], where: str
) -> tuple[float, float, float]:
    """Seconds per window of a training step and of a forward pass, and the bytes a window keeps for the gradient."""
    import torch

    from bridgemil.learning.bags import BagModel

    (n_channels, n_times, bag), device, kept = shape, torch.device(where), 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        encoder = backbones.create(backbone, n_channels, n_times, **json.loads(options))
        head = aggregators.create(aggregator, backbones.embedding_dim(encoder), 2)
        model = BagModel(encoder, head).to(device)
        x = torch.randn(2 * bag, n_channels, n_times, device=device)

        def step() -> None:
            model.aggregate(model.encoder(x), [bag, bag]).logits.sum().backward()

        def forward() -> None:
            with torch.no_grad():
                model.encoder(x)

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = model.aggregate(model.encoder(x), [bag, bag]).logits.sum()
        loss.backward()
        return _seconds(step, device) / len(x), _seconds(forward, device) / len(x), kept / len(x)


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    import torch

    best = float("inf")
    for _ in range(2):
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - begun)
    return best
