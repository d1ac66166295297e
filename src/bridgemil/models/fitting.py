"""Fit a model on subjects of a cohort; a cache stores what fits share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.views import RecordingBags, Unlabelled
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.models.features import Encoder, Features, FitCache, features_of, prepare_features
from bridgemil.models.harmonisation import Covariates, Harmonisation, fit_sites, mapped, value_codes
from bridgemil.models.loading import encoder_for, load_weights, refuse_changed_code
from bridgemil.models.model import BaselineModel, EnsembleModel, Model, ModelFacts, NetworkModel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.loop import Curve, Streams, Watch


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
    if settings.bags == "recording":
        if settings.stage1 is not None and settings.stage1.pretrain_on is not None:
            raise BadUse("--bags recording does not go with --pretrain-on; leave one of them out")
        cohort = RecordingBags(cohort)
        train, validation, rows = cohort.of(train), cohort.of(validation), cohort.spread(rows or {})
        sites = {site: cohort.of(own) for site, own in (sites or {}).items()}
    if settings.selects and not validation:
        raise BadUse("no validation subjects to select the epoch on; give some, or use stage2.selection=last")
    if validation and not settings.selects:
        raise BadUse(f"{settings.title} selects nothing, so that its validation subjects are unused; train on them too")
    named = None if settings.stage1 is None else settings.stage1.pretrain_on
    if named is not None and (unlabelled is None or not unlabelled.is_named(named)):
        raise BadUse(f"Stage 1 also learns from {named}, which is not given: use --pretrain-on COHORT")
    stage1 = (cohort, []) if named is None or unlabelled is None else (unlabelled.joined(cohort), [*unlabelled.bags])
    facts, cache = ModelFacts.of(cohort, settings, seed), cache or FitCache()
    task = _FitInputs(cohort, *stage1, sorted(train), sorted(validation), facts, cache, sites or {}, rows or {}, watch)
    return _fit_network(task, device) if settings.is_network else _fit_baseline(task)


@dataclass(frozen=True)
class _FitInputs:
    """Parameters as of ``fit``; ``further`` are subjects of the cohort ``joined`` from whom Stage 1 learns too."""

    cohort: Cohort
    joined: Cohort
    further: list[str]
    train: list[str]
    validation: list[str]
    facts: ModelFacts
    cache: FitCache
    sites: Mapping[str, Sequence[str]]
    rows: Mapping[str, Mapping[str, Any]]
    watch: Watch | None

    def harmonisation(self, features: Features) -> Harmonisation | None:
        """The maps of sites, estimated on subjects' mean features, and the effect of covariates on what they leave."""
        settings, rows = self.facts.settings, self.rows
        if not settings.harmonises:
            return None

        def means(subject: str) -> NDArray[np.float64]:
            return features.mean(features_of(self.cache, features, self.cohort, subject))

        here = {str(rows[subject][settings.site_column]) for subject in self.train} if self.sites else set()
        training = {site: own for site, own in self.sites.items() if site in here}
        others = {site: own for site, own in self.sites.items() if site not in here}
        found = Harmonisation(settings.site_column, fit_sites(means, training, others) if self.sites else {})
        if not settings.adjust:
            return found
        controls = [subject for subject in self.train if self.cohort.records[subject].label == settings.control]
        if len(controls) < len(settings.adjust) + 4:
            few = f"{len(controls)} training controls are too few to estimate the effect of"
            raise BadData(f"{few} {', '.join(settings.adjust)}")
        own = np.stack([mapped(means(subject), found.scale(rows[subject])) for subject in controls])
        codes = {name: value_codes(name, [row.get(name) for row in rows.values()]) for name in settings.adjust}
        return replace(found, covariates=Covariates.fit([rows[subject] for subject in controls], codes, own))


def fit_whole(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    settings: Settings,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    cache: Callable[[Settings], FitCache] | None = None,
    unlabelled: Unlabelled | None = None,
) -> Model:
    """Fit a model, or every member of an ensemble, on all subjects that are given.

    Parameters are those of ``fit``; ``cache`` gives each member its own. Members that select no epoch train on the
    validation subjects too.
    """
    shared = FitCache()
    fitted = {}
    for member in settings.each:
        kept = shared if cache is None else cache(member)
        made = fit(
            cohort, *roles(member, train, validation), member, seed, device=device, cache=kept, unlabelled=unlabelled
        )
        fitted[member.method] = made.model
    if not settings.members:
        return fitted[settings.method]
    return EnsembleModel(ModelFacts.of(cohort, settings, seed), fitted)


def roles(
    settings: Settings, train: Sequence[str], validation: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The training and the validation subjects: without selection of an epoch, all are training subjects."""
    return (tuple(train), tuple(validation)) if settings.selects else ((*train, *validation), ())


def _fit_baseline(task: _FitInputs) -> Fit:
    begun, facts, cohort = time.perf_counter(), task.facts, task.cohort
    refuse_changed_code(facts.settings, facts.signal)
    baseline = baselines.create(facts.settings.source, facts.settings.baseline or {}, facts.signal)
    features = Features.of_baseline(facts.settings, baseline)
    prepare_features(task.cache, features, cohort, task.train)
    harmonisation, rows = task.harmonisation(features), []
    for subject in task.train:
        scale = None if harmonisation is None else harmonisation.scale(task.rows[subject])
        rows.append(mapped(features_of(task.cache, features, cohort, subject), scale))
    y = np.array([cohort.classes.index(cohort.records[subject].label) for subject in task.train])
    classifier = baseline.fit(baseline.together(rows), y, len(facts.classes), facts.seed)
    model = BaselineModel(facts, baseline, classifier, harmonisation=harmonisation)
    return Fit(model, [], None, time.perf_counter() - begun, 1)


def _fit_network(task: _FitInputs, device: torch.device | None) -> Fit:
    import torch

    from bridgemil.learning import learners
    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.loop import Streams, train

    facts, settings, cohort, cache = task.facts, task.facts.settings, task.cohort, task.cache
    assert settings.stage2 is not None
    assert settings.backbone is not None
    streams, device = Streams(facts.seed, task.train), device or torch.device("cpu")
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # restores the caller's random state
        refuse_changed_code(settings, facts.signal)
        streams.start("encoder")
        encoder = encoder_for(settings, facts.signal).to(device)
        arrays, scale, harmonisation = None, None, None
        if (features := Features.of_encoder(encoder)) is None:
            scale = cohort.normalisation(task.train)
        else:
            prepare_features(cache, features, task.joined, [*task.train, *task.validation, *task.further])
            arrays, harmonisation = partial(features_of, cache, features, task.joined), task.harmonisation(features)
        adjust = None if harmonisation is None else lambda subject: harmonisation.scale(task.rows[subject])
        training = WindowSet(cohort, task.train, scale, arrays, adjust)
        validating = WindowSet(cohort, task.validation, scale, arrays, adjust) if task.validation else None
        stage1_windows = training
        if task.further:  # scaled as the training subjects are
            stage1_windows = WindowSet(task.joined, [*task.train, *task.further], scale, arrays)
        before, seconds = _stage1(task, encoder, stage1_windows, streams, device)
        streams.start("head")
        learner = learners.create(
            encoder, settings.backbone, training, validating, settings.stage2, device,
            pretrained=settings.stage1 is not None,
        )  # fmt: skip
        trained = train(learner, streams, keep=cache.checkpoint(), watch=task.watch)
    model = NetworkModel(facts, learner.model, scale, device, harmonisation=harmonisation)
    return Fit(model, before + trained.curve, trained.epoch, seconds + trained.seconds, torch.get_num_threads())


def _stage1(
    task: _FitInputs, encoder: nn.Module, training: WindowSet, streams: Streams, device: torch.device
) -> tuple[Curve, float]:
    """Load the Stage 1 encoder from the cache, training it first if it is not there; its curve and seconds."""
    from bridgemil.learning import objectives
    from bridgemil.learning.loop import train

    stage1, backbone = task.facts.settings.stage1, task.facts.settings.backbone
    if stage1 is None or backbone is None:
        return [], 0.0

    def trained(checkpoint: Path | None) -> Encoder:
        streams.start("stage 1 head")
        learner = objectives.create(encoder, backbone, training, stage1, device)
        found = train(learner, streams, keep=checkpoint, watch=task.watch)
        return encoder.state_dict(), {"curve": found.curve, "seconds": found.seconds}

    tensors, note = task.cache.stage1(trained)
    load_weights(encoder, tensors, f"the stored Stage 1 encoder does not fit the backbone {backbone}")
    return list(note["curve"]), float(note["seconds"])
