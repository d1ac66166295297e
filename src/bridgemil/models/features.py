"""Features of one subject's windows: what front ends and baselines compute first, and what fits keep and share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.views import CohortView
from bridgemil.errors import BadData
from bridgemil.methods import Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

Encoder = tuple[dict[str, "Tensor"], dict[str, Any]]  # weights, and what is known beside them: curve, seconds


class FitCache:
    """Checkpoints, Stage 1 encoders and features that fits share. This one keeps features only, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}

    def checkpoint(self) -> Path | None:
        """Where an unfinished fit keeps its checkpoint."""
        return None

    def stage1(self, train: Callable[[Path | None], Encoder]) -> Encoder:
        """The Stage 1 encoder, trained if it is not there; ``train`` takes the checkpoint that it resumes from."""
        return train(None)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """An array computed from one subject's windows alone; ``key`` names how."""
        if (key, signal_hash) not in self._arrays:
            self._arrays[key, signal_hash] = compute()
        return self._arrays[key, signal_hash]

    def prepare_features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> None:
        """Called for each subject before ``features``: where processes share a cache, they divide the work here."""


@dataclass(frozen=True)
class LazyBag:
    """The windows of a subject, read only if they are needed: where features are stored, they are not.

    ``shape`` is windows x channels x time and ``read`` returns them. ``signal_hash`` names them in the ``cache`` of
    their features, which models that are given the same bag share; errors name the ``subject``.
    """

    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]
    cache: FitCache = field(default_factory=FitCache)
    signal_hash: str = ""
    subject: str = ""

    @classmethod
    def of(cls, bag: NDArray[np.float32] | LazyBag) -> LazyBag:
        """Windows that are in memory as a bag; a bag itself."""
        return bag if isinstance(bag, LazyBag) else cls(bag.shape, lambda: bag)

    @classmethod
    def of_subject(cls, cohort: Cohort, subject: str, cache: FitCache) -> LazyBag:
        """A subject of a cohort, whose features a cache holds."""
        record, signal = cohort.records[subject], cohort.signal
        shape = record.n_windows, signal.n_channels, signal.n_times
        return cls(shape, lambda: cohort.windows(subject), cache, record.signal_hash, subject)

    def features(self, features: Features) -> NDArray[Any]:
        """Features of these windows, computed if the cache does not hold them."""
        return self.cache.features(features.key, self.signal_hash, partial(self._compute, features))

    def prepare(self, features: Features) -> None:
        """Compute them now, unless the cache has them or another process computes them."""
        self.cache.prepare_features(features.key, self.signal_hash, partial(self._compute, features))

    def _compute(self, features: Features) -> NDArray[Any]:
        try:
            return features.compute(self.read())
        except BadData as error:
            if not self.subject:
                raise
            raise BadData(f"{self.subject}: {error}") from error


Bag = NDArray[np.float32] | LazyBag


@dataclass(frozen=True)
class Features:
    """Features that depend on one subject's windows alone, so that they can be stored and shared by models.

    ``key`` is equal where the features of given windows are equal. ``compute`` takes windows n x C x T (microvolts) and
    gives n x F where features are ``per_window``, else F. ``left_out`` names frequency bands that the recordings or
    their filters do not hold, with the reason.
    """

    key: str
    compute: Callable[[NDArray[np.float32]], NDArray[Any]]
    per_window: bool
    left_out: Mapping[str, str] = field(default_factory=dict)

    def mean(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Mean over windows of these features of one subject (F,)."""
        return np.asarray(values.mean(axis=0, dtype=np.float64) if self.per_window else values)

    @classmethod
    def of_encoder(cls, encoder: nn.Module) -> Features | None:
        """The features of an encoder's front end; None if it has none."""
        front_end: Any = getattr(encoder, "front_end", None)
        return None if front_end is None else cls.of_front_end(front_end)

    @classmethod
    def of_front_end(cls, front_end: Any) -> Features:
        """The features of a front end, a module N x C x T -> N x F with ``key`` and ``check``."""
        key = json.dumps(["front end", front_end.key], sort_keys=True)
        return cls(key, partial(front_end_features, front_end), True, getattr(front_end, "left_out", {}))

    @classmethod
    def of_baseline(cls, settings: Settings, baseline: baselines.Baseline) -> Features:
        """The features of a baseline."""
        whose = [] if settings.address else [settings.method, settings.code]  # pipelines share arrays of one form
        key = json.dumps([*whose, baseline.features_key], sort_keys=True)
        return cls(key, baseline.features, False, baseline.left_out)


def front_end_features(front_end: Any, bag: NDArray[np.float32]) -> NDArray[np.float32]:
    """A front end's features of one subject's windows (n x C x T, microvolts): n x F."""
    import torch

    from bridgemil.learning.data import BLOCK

    front_end.check(bag)
    device = next(front_end.buffers()).device
    parts = [np.array(bag[first : first + BLOCK], dtype=np.float32) for first in range(0, len(bag), BLOCK)]
    return np.concatenate([front_end(torch.from_numpy(part).to(device)).cpu().numpy() for part in parts])


def features_of(cache: FitCache, features: Features, cohort: Cohort, subject: str) -> NDArray[Any]:
    """Features of one subject's windows, computed once for all fits that share a cache."""
    if features.per_window and isinstance(cohort, CohortView):  # a window's features are its own
        whole, name, rows = cohort.origins[subject]
        return features_of(cache, features, whole, name)[rows]
    return LazyBag.of_subject(cohort, subject, cache).features(features)


def prepare_features(cache: FitCache, features: Features, cohort: Cohort, subjects: Sequence[str]) -> None:
    """Let the processes that share a cache compute the features of different subjects, each once."""
    wanted = [(cohort, subject) for subject in subjects]
    while features.per_window and any(isinstance(whole, CohortView) for whole, _ in wanted):
        wanted = [whole.origins[name][:2] if isinstance(whole, CohortView) else (whole, name) for whole, name in wanted]
    for whole, subject in dict.fromkeys(wanted):
        LazyBag.of_subject(whole, subject, cache).prepare(features)
