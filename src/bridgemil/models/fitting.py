"""From some subjects of a cohort to a fitted model; what fits share is in a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.subset import CohortSubset
from bridgemil.cohort.unlabelled import ExtendedCohort, Unlabelled
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.models.harmonisation import Harmonisation, Scale, fit_harmonisation, mapped
from bridgemil.models.loading import encoder_for, refuse_changed_code
from bridgemil.models.model import (
    BaselineModel,
    EnsembleModel,
    Features,
    Model,
    ModelFacts,
    NetworkModel,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.loop import Curve, Streams, Watch


class FitCache:
    """Checkpoints, Stage 1 encoders and features that fits share. This one keeps features only, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}

    def checkpoint(self) -> Path | None:
        """Where an unfinished fit keeps its checkpoint."""
        return None

    def stage1(self, train: Callable[[Path | None], tuple[dict[str, Tensor], dict[str, Any]]]) -> tuple[
        dict[str, Tensor], dict[str, Any]
    ]:  # fmt: skip
        """The Stage 1 encoder and its metadata; ``train`` trains it (with a checkpoint to resume from)."""
        return train(None)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """An array computed from one subject's windows alone; ``key`` names how."""
        if (key, signal_hash) not in self._arrays:
            self._arrays[key, signal_hash] = compute()
        return self._arrays[key, signal_hash]

    def prepare_features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> None:
        """Called for each subject before ``features``: where processes share a cache, they divide the work here."""


@dataclass(frozen=True)
class Fit:
    """A fitted model, its training curve and its cost."""

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
    sites: Mapping[str, Sequence[str]] | None = None,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    unlabelled: Unlabelled | None = None,
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
    sites, rows : mapping, optional
        Where features are harmonised: of each site the subjects that it is known by, and columns by subject (``Fold``).
    unlabelled : Unlabelled, optional
        Subjects of a second cohort for Stage 1, where ``stage1.pretrain_on`` names it.

    Returns
    -------
    Fit
        The model, the training curve and the selected epoch.
    """
    cache = cache or FitCache()
    facts = ModelFacts.of(cohort, settings, seed)
    if settings.selects and not validation:
        raise BadUse("no validation subjects to select the epoch on; give some, or use stage2.selection=last")
    if validation and not settings.selects:
        raise BadUse(
            f"{settings.title} selects nothing, so that its validation subjects would be unused; train on them instead"
        )
    named = None if settings.stage1 is None else settings.stage1.pretrain_on
    if named is not None and (unlabelled is None or not unlabelled.is_named(named)):
        raise BadUse(f"Stage 1 also learns from {named}, which is not given: use --pretrain-on COHORT")
    further = None if named is None or unlabelled is None else unlabelled.joined(cohort)
    adjust = partial(_harmonisation, cohort, cache, settings, sorted(train), sites or {}, rows or {})
    if settings.is_network:
        import torch

        where = device or torch.device("cpu")
        return _fit_network(cohort, train, validation, facts, where, cache, adjust, watch, further)
    return _fit_baseline(cohort, train, facts, cache, adjust)


# From features to their harmonisation (None: none) and to the map of each subject's features.
Adjust = Callable[[Features], tuple[Harmonisation | None, Callable[[str], Scale | None]]]


def _harmonisation(
    cohort: Cohort,
    cache: FitCache,
    settings: Settings,
    train: Sequence[str],
    sites: Mapping[str, Sequence[str]],
    rows: Mapping[str, Mapping[str, Any]],
    features: Features,
) -> tuple[Harmonisation | None, Callable[[str], Scale | None]]:
    """The harmonisation of these features, estimated on subjects' means, and the map of each subject (``Adjust``)."""
    if not settings.harmonises:
        return None, lambda subject: None

    def mean(subject: str) -> NDArray[np.float64]:
        values = features_of(cache, features, cohort, subject)
        return values.mean(axis=0, dtype=np.float64) if features.per_window else values

    controls = [subject for subject in train if cohort.records[subject].label == settings.control]
    found = fit_harmonisation(settings.site_column, sites, settings.adjust, rows, mean, train, controls)
    return found, lambda subject: found.scale(rows[subject])


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
    unlabelled: Unlabelled | None = None,
) -> Model:
    """Fit a model, or every member of an ensemble, on all subjects that are given.

    Parameters are those of ``fit``, but ``settings`` may be an ensemble's, and ``cache`` gives each member its own.
    Members that select no epoch train on the validation subjects too.
    """
    shared = FitCache()
    fitted = {}
    for member in settings.each:
        kept = shared if cache is None else cache(member)
        made = fit(
            cohort, *roles(member, train, validation), member, seed, device=device, cache=kept, watch=watch,
            unlabelled=unlabelled,
        )  # fmt: skip
        fitted[member.method] = made.model
    if not settings.members:
        return fitted[settings.method]
    return EnsembleModel(ModelFacts.of(cohort, settings, seed), fitted)


def roles(
    settings: Settings, train: Sequence[str], validation: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The training and the validation subjects: without selection of an epoch, all are training subjects."""
    return (tuple(train), tuple(validation)) if settings.selects else ((*train, *validation), ())


def _fit_baseline(cohort: Cohort, train: Sequence[str], facts: ModelFacts, cache: FitCache, adjust: Adjust) -> Fit:
    begun = time.perf_counter()
    baseline = baselines.create(facts.settings.method, facts.settings.baseline or {}, facts.signal)
    ids, features = sorted(train), Features.of_baseline(facts.settings, baseline)
    prepare_features(cache, features, cohort, ids)
    harmonisation, scale_of = adjust(features)
    rows = [mapped(features_of(cache, features, cohort, subject), scale_of(subject)) for subject in ids]
    y = np.array([cohort.classes.index(cohort.records[subject].label) for subject in ids])
    classifier = baseline.fit(np.stack(rows), y, len(facts.classes), facts.seed)
    return Fit(BaselineModel(facts, baseline, classifier, harmonisation), [], None, time.perf_counter() - begun, 1)


def features_of(cache: FitCache, features: Features, cohort: Cohort, subject: str) -> NDArray[Any]:
    """Features of one subject's windows, computed once for all fits that share a cache."""
    if features.per_window and isinstance(cohort, CohortSubset):  # a window's features are its own
        return cohort.part(subject, features_of(cache, features, cohort.whole, subject))
    with _naming(subject):
        signal_hash = cohort.records[subject].signal_hash
        return cache.features(features.key, signal_hash, partial(_compute, features, cohort, subject))


def prepare_features(cache: FitCache, features: Features, cohort: Cohort, subjects: Sequence[str]) -> None:
    """Let the processes that share a cache compute the features of different subjects, each once."""
    whole = cohort.whole if features.per_window and isinstance(cohort, CohortSubset) else cohort
    for subject in subjects:
        with _naming(subject):
            signal_hash = whole.records[subject].signal_hash
            cache.prepare_features(features.key, signal_hash, partial(_compute, features, whole, subject))


def _compute(features: Features, cohort: Cohort, subject: str) -> NDArray[Any]:
    return features.compute(cohort.windows(subject))


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
    adjust: Adjust,
    watch: Watch | None,
    further: ExtendedCohort | None,
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
        arrays, harmonisation, scale_of = None, None, None
        if (features := Features.of_encoder(encoder)) is not None:
            prepare_features(cache, features, cohort, [*ids, *sorted(validation)])
            if further is not None:
                prepare_features(cache, features, further, further.further)
            arrays = partial(features_of, cache, features, cohort)
            harmonisation, scale_of = adjust(features)
        scale = cohort.normalisation(ids) if arrays is None else None
        training = WindowSet(cohort, ids, scale, arrays, scale_of)
        validating = WindowSet(cohort, sorted(validation), scale, arrays, scale_of) if validation else None
        learned = training
        if further is not None:  # scaled as the training subjects are
            stored = None if features is None else partial(features_of, cache, features, further)
            learned = WindowSet(further, [*ids, *further.further], scale, stored)
        before, seconds = _stage1(encoder, learned, settings, streams, device, cache, watch)
        network, trained = train_network(
            encoder, settings.backbone, training, validating, settings.stage2, streams, device,
            pretrained=settings.stage1 is not None, keep=cache.checkpoint(), watch=watch,
        )  # fmt: skip
    model = NetworkModel(facts, network, scale, device, harmonisation)
    return Fit(model, before + trained.curve, trained.epoch, seconds + trained.seconds, torch.get_num_threads())


def _stage1(
    encoder: nn.Module,
    training: WindowSet,
    settings: Settings,
    streams: Streams,
    device: torch.device,
    cache: FitCache,
    watch: Watch | None,
) -> tuple[Curve, float]:
    """Load the Stage 1 encoder from the cache, training it first if it is not there; its curve and seconds."""
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
