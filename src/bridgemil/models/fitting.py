"""From some subjects of a cohort to a fitted model; what fits share is in a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.subset import CohortSubset
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.models.loading import encoder_for, refuse_changed_code
from bridgemil.models.model import (
    BaselineModel,
    EnsembleModel,
    Model,
    ModelFacts,
    NetworkModel,
    baseline_key,
    front_end_features,
    front_end_key,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.loop import Curve, Streams, Watch


class FitCache:
    """Where a fit keeps what it can go on from, and what fits share. This one keeps nothing but features, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}

    def checkpoint(self) -> Path | None:
        """Where an unfinished fit keeps its state."""
        return None

    def stage1(self, train: Callable[[Path | None], tuple[dict[str, Tensor], dict[str, Any]]]) -> tuple[
        dict[str, Tensor], dict[str, Any]
    ]:  # fmt: skip
        """The Stage 1 encoder and what is known of it; ``train`` makes it (with a file to go on from)."""
        return train(None)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """An array computed from one person's windows alone; ``key`` names how."""
        if (key, signal_hash) not in self._arrays:
            self._arrays[key, signal_hash] = compute()
        return self._arrays[key, signal_hash]

    def prepare_features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> None:
        """Called for each person before ``features``: where processes share a cache, they divide the work here."""


@dataclass(frozen=True)
class Fit:
    """A fitted model and how it came about."""

    model: Model
    curve: Curve
    selected_epoch: int | None
    seconds: float  # of training, over all resumes, Stage 1 included wherever it was trained
    threads: int


def fit(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    settings: Settings,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    cache: FitCache | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Fit a network or a baseline on some subjects of a cohort.

    Parameters
    ----------
    cohort : Cohort
        Only windows of the given subjects are read.
    train, validation : sequence of str
        Ids of the training subjects and of those that select the epoch. Without selection (a baseline, a recipe
        that uses the last epoch) there are no validation subjects.
    settings : Settings
        From ``bridgemil.methods.for_cohort``.
    seed : int, default 0
        Seed of weights, sampling and dropout.
    device : torch.device, optional
        Where to train; the CPU by default.
    cache : FitCache, optional
        Stores checkpoints, Stage 1 encoders and features.
    watch : callable, optional
        Called after every epoch.

    Returns
    -------
    Fit
        The model, the training curve and the selected epoch.
    """
    cache = cache or FitCache()
    facts = ModelFacts(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed)
    if settings.selects and not validation:
        raise BadUse("no validation subjects to select the epoch on; give some, or use stage2.selection=last")
    if validation and not settings.selects:
        raise BadUse(
            f"{settings.title} selects nothing, so that its validation subjects would be unused; train on them instead"
        )
    if settings.is_network:
        import torch

        return _fit_network(cohort, train, validation, facts, device or torch.device("cpu"), cache, watch)
    return _fit_baseline(cohort, train, facts, cache)


def fit_whole(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    settings: Settings,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    cache: Callable[[Settings], FitCache] | None = None,
    watch: Watch | None = None,
) -> Model:
    """Learn from all subjects that are given, none of whom will test the model.

    Parameters are those of ``fit``, but for: ``settings`` may be an ensemble's, and ``cache`` gives each member its
    own. Who selects no epoch learns from the validation subjects too.
    """
    shared = FitCache()
    fitted = {}
    for member in settings.each:
        kept = shared if cache is None else cache(member)
        made = fit(cohort, *roles(member, train, validation), member, seed, device=device, cache=kept, watch=watch)
        fitted[member.method] = made.model
    if not settings.members:
        return fitted[settings.method]
    return EnsembleModel(ModelFacts(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed), fitted)


def roles(
    settings: Settings, train: Sequence[str], validation: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who trains and who selects in a whole fit: where nothing is selected everyone trains."""
    return (tuple(train), tuple(validation)) if settings.selects else ((*train, *validation), ())


def _fit_baseline(cohort: Cohort, train: Sequence[str], facts: ModelFacts, cache: FitCache) -> Fit:
    begun = time.perf_counter()
    baseline = baselines.create(facts.settings.method, facts.settings.baseline or {}, facts.signal)
    key = baseline_key(facts.settings, baseline)
    ids = sorted(train)
    prepare_features(cache, key, cohort, ids, baseline.features)
    rows = [features_of(cache, key, cohort, subject, baseline.features) for subject in ids]
    y = np.array([cohort.classes.index(cohort.records[subject].label) for subject in ids])
    classifier = baseline.fit(np.stack(rows), y, len(facts.classes), facts.seed)
    return Fit(BaselineModel(facts, baseline, classifier), [], None, time.perf_counter() - begun, 1)


def features_of(
    cache: FitCache, key: str, cohort: Cohort, subject: str, compute: Callable[[NDArray[np.float32]], NDArray[Any]]
) -> NDArray[Any]:
    """Features of one subject's windows, computed once for all fits that share a cache."""
    with _naming(subject):
        return cache.features(key, cohort.records[subject].signal_hash, lambda: compute(cohort.windows(subject)))


def prepare_features(
    cache: FitCache, key: str, cohort: Cohort, subjects: Sequence[str], compute: Callable[[NDArray[np.float32]], Any]
) -> None:
    """Let the processes that share a cache compute the features of different people, and of none twice."""
    for subject in subjects:

        def now(subject: str = subject) -> NDArray[Any]:
            made: NDArray[Any] = compute(cohort.windows(subject))
            return made

        with _naming(subject):
            cache.prepare_features(key, cohort.records[subject].signal_hash, now)


@contextmanager
def _naming(subject: str) -> Iterator[None]:
    """Errors name the subject."""
    try:
        yield
    except BadData as error:
        raise BadData(f"{subject}: {error}") from error


def _fit_network(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    facts: ModelFacts,
    device: torch.device,
    cache: FitCache,
    watch: Watch | None,
) -> Fit:
    import torch

    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.learners import train_network
    from bridgemil.learning.loop import Streams

    settings, ids = facts.settings, sorted(train)
    assert settings.stage2 is not None
    assert settings.backbone is not None
    streams = Streams.of(facts.seed, ids)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # the caller's random numbers are theirs
        refuse_changed_code(settings, facts.signal)
        streams.start("encoder")
        encoder = encoder_for(settings, facts.signal).to(device)
        arrays = front_end_arrays(encoder, cohort, cache, [*ids, *sorted(validation)])
        scale = cohort.normalisation(ids) if arrays is None else None
        training = WindowSet(cohort, ids, scale, arrays)
        validating = WindowSet(cohort, sorted(validation), scale, arrays) if validation else None
        before, seconds = _stage1(encoder, training, settings, streams, device, cache, watch)
        network, trained = train_network(
            encoder, settings.backbone, training, validating, settings.stage2, streams, device,
            pretrained=settings.stage1 is not None, keep=cache.checkpoint(), watch=watch,
        )  # fmt: skip
    model = NetworkModel(facts, network, scale, device)
    return Fit(model, before + trained.curve, trained.epoch, seconds + trained.seconds, torch.get_num_threads())


def front_end_arrays(
    encoder: nn.Module, cohort: Cohort, cache: FitCache, subjects: Sequence[str] = ()
) -> Callable[[str], NDArray[np.float32]] | None:
    """Where the encoder has a front end: a function from a subject to its features (n x F); None elsewhere.

    A front end is a function of the window alone, so one person's features depend on nobody else's. Those of
    ``subjects`` are computed at once, each by one of the processes that share the cache.
    """
    front_end: Any = getattr(encoder, "front_end", None)
    if front_end is None:
        return None
    key = front_end_key(front_end)

    whole = cohort.whole if isinstance(cohort, CohortSubset) else cohort  # a window's features are its own

    def compute(bag: NDArray[np.float32]) -> NDArray[np.float32]:
        return front_end_features(front_end, bag)

    prepare_features(cache, key, whole, subjects, compute)

    def features(subject: str) -> NDArray[np.float32]:
        every = features_of(cache, key, whole, subject, compute)
        return cohort.part(subject, every) if isinstance(cohort, CohortSubset) else every

    return features


def _stage1(
    encoder: nn.Module,
    training: WindowSet,
    settings: Settings,
    streams: Streams,
    device: torch.device,
    cache: FitCache,
    watch: Watch | None,
) -> tuple[Curve, float]:
    """Load the Stage 1 encoder from the cache, training it first if nobody has; its curve and seconds."""
    from bridgemil.learning.objectives import train_encoder

    stage1, backbone = settings.stage1, settings.backbone
    if stage1 is None or backbone is None:
        return [], 0.0

    def train(keep: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        trained = train_encoder(encoder, backbone, training, stage1, streams, device, keep=keep, watch=watch)
        return encoder.state_dict(), {"curve": trained.curve, "seconds": trained.seconds}

    tensors, note = cache.stage1(train)
    try:
        encoder.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadData(
            f"the stored Stage 1 encoder does not fit the backbone {backbone} ({str(error).splitlines()[0]}); "
            "remove it (bridgemil clean) and run again"
        ) from None
    return list(note["curve"]), float(note["seconds"])
