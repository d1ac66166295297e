"""Fitted models: networks, baselines and ensembles, with one interface.

``fit`` trains on a training and a validation set of subjects and returns a model. A model takes the raw windows of one
subject (microvolts) and does the rest itself: normalisation or front end, embedding, aggregation. On disk:

    model.json            settings, classes, signal, preparation, versions
    model.safetensors     weights, or the numbers of a classifier; mean and deviation of the training subjects
    <member>/             of an ensemble, whose model.json names its members: a folder like this one for each

Nothing in it executes. A network whose backbone is user code is loaded by naming that code again.
"""

from __future__ import annotations

from bridgemil.models.features import Features, FitCache, LazyBag, features_of, front_end_features
from bridgemil.models.fitting import Fit, fit, fit_whole, roles
from bridgemil.models.loading import build_encoder, encoder_for, load, read_model
from bridgemil.models.model import (
    BaselineModel,
    EnsembleModel,
    Model,
    ModelFacts,
    NetworkModel,
    Prediction,
    predict_subject,
)

__all__ = [
    "BaselineModel", "EnsembleModel", "Features", "Fit", "FitCache", "LazyBag", "Model", "ModelFacts", "NetworkModel",
    "Prediction", "build_encoder", "encoder_for", "features_of", "fit", "fit_whole", "front_end_features",
    "load", "predict_subject", "read_model", "roles",
]  # fmt: skip
