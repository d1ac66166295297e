"""A fitted model, network or baseline alike: what a fit leaves, what it says of a person, and how it is kept.

``fit`` learns from a training and a validation set of subjects and returns a model. A model takes the raw windows of
one person (microvolts) and does the rest itself: normalisation or front end, embedding, aggregation. On disk:

    model.json            settings, classes, signal, preparation, versions
    model.safetensors     weights, or the numbers of a classifier; mean and deviation of the training subjects
    <member>/             of an ensemble, whose model.json names its members: a folder like this one for each

Nothing in it executes. A network whose backbone is the user's own code is loaded by naming that code again.
"""

from __future__ import annotations

from bridgemil.models.fitting import Fit, FitCache, features_of, fit, fit_whole, front_end_arrays, roles
from bridgemil.models.loading import build, build_encoder, encoder_for, load, read_model
from bridgemil.models.model import (
    BaselineModel,
    EnsembleModel,
    LazyBag,
    Model,
    ModelFacts,
    NetworkModel,
    Prediction,
    front_end_features,
)

__all__ = [
    "BaselineModel",
    "EnsembleModel",
    "Fit",
    "FitCache",
    "LazyBag",
    "Model",
    "ModelFacts",
    "NetworkModel",
    "Prediction",
    "build",
    "build_encoder",
    "encoder_for",
    "features_of",
    "fit",
    "fit_whole",
    "front_end_arrays",
    "front_end_features",
    "load",
    "read_model",
    "roles",
]
