"""Location and scale of features among the training subjects: what ``adapt`` maps the features of a new site to.

A model on fixed features (band power, log-covariances) carries over to another amplifier if the features of the new
site's healthy subjects are given the mean and the standard deviation of the training controls (ComBat's adjustment of
location and scale: Johnson et al., 2007). A bundle keeps these two of every feature, of the controls and of all
training subjects; nothing of a single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.tables import control_classes
from bridgemil.evaluation.clinical import positive_class
from bridgemil.models import BaselineModel, Model
from bridgemil.models.features import Features
from bridgemil.models.harmonisation import Scale, location_scale
from bridgemil.report.window_values import leaves
from bridgemil.storage.artifact import digest

Floats = NDArray[np.float64]
NOVELTY = "novelty"  # the features of the out-of-distribution test


def population(features: Floats, controls: NDArray[np.bool_]) -> Floats:
    """Mean and standard deviation of the controls, then of all subjects (4 x F), of features (S x F).

    ``controls`` (S) are who is one; with fewer than two, the first two rows are NaN.
    """
    rows = []
    for own in (features[controls], features):
        known = len(own) > 1
        rows += [own.mean(axis=0), own.std(axis=0, ddof=1)] if known else [np.full(features.shape[1], np.nan)] * 2
    return np.stack(rows)


def site_scale(features: Floats, training: Floats, unlabelled: bool = False) -> Scale:
    """The map of a site's features (n x F) to those of the training controls, or of all training subjects.

    ``features`` are of the site's controls, or ``unlabelled``; ``training`` is a ``population``.
    """
    mean, deviation = training[2:] if unlabelled else training[:2]
    return location_scale(features, mean, deviation)


def control_class(classes: Sequence[str], positive: str | None = None) -> str | None:
    """The class of the controls: of two the one that is not positive; of more, the one named as controls, if any."""
    if len(classes) == 2:
        return next(name for name in classes if name != positive_class(classes, positive)[0])
    named = control_classes(classes)
    return named[0] if len(named) == 1 else None


def population_name(model: Model) -> str:
    """Equal for members of an ensemble whose subjects have the same mean features; the site "" does not count."""
    features = model.features
    assert features is not None
    front_end = model.baseline.front_end if isinstance(model, BaselineModel) else None
    named = features if front_end is None else Features.of_front_end(front_end)
    own: dict[str, Any] = {}
    if model.harmonisation is not None:
        tensors = model.harmonisation.tensors().items()
        own = {name: values.tolist() for name, values in tensors if not name.endswith(".")}
    return digest([named.key, own])[:16]


def mean_features(features: Features, values: NDArray[Any]) -> Floats:
    """Mean over windows of the features of one subject (F,)."""
    return np.asarray(values.mean(axis=0, dtype=np.float64) if features.per_window else values)


def by_population(model: Model) -> dict[str, Model]:
    """One member for every population of features, by its name."""
    found: dict[str, Model] = {}
    for leaf in leaves(model):
        if leaf.features is not None:
            found.setdefault(population_name(leaf), leaf)
    return found


def not_adaptable(model: Model, populations: Mapping[str, Floats]) -> str:
    """Why a model with these populations of training subjects cannot be adapted; empty if it can."""
    for leaf in leaves(model):
        settings = leaf.facts.settings
        if leaf.features is None:
            return (
                f"{settings.title} learns from the raw signal and has no fixed features that could be mapped; "
                "bandpower, tangent and networks on covariance can be adapted"
            )
        if leaf.harmonisation is not None and leaf.harmonisation.covariates is not None:
            columns = ", ".join(leaf.harmonisation.covariates.codes)
            return f"{settings.title} is adjusted for {columns}, which a recording does not state"
        if population_name(leaf) not in populations:
            return "the bundle keeps no statistics of its training controls; train it again"
    return ""
