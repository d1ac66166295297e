"""From training and validation windows to a model, and from a model to predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bridgemil import aggregators, backbones
from bridgemil.learning.bags import BagLearner, BagModel
from bridgemil.learning.loop import Learner, Trained, Watch, train
from bridgemil.learning.settings import BagSettings, Stage1Settings, WindowSettings
from bridgemil.learning.stage1 import Stage1Learner
from bridgemil.learning.streams import Streams
from bridgemil.learning.window_set import WindowSet
from bridgemil.learning.windows import WindowLearner, WindowModel, vote


@dataclass(frozen=True)
class Here:
    """Where and with what random numbers something is trained, and who watches."""

    streams: Streams
    device: torch.device
    watch: Watch | None = None


def assemble(
    encoder: nn.Module, backbone: str, n_classes: int, settings: WindowSettings | BagSettings
) -> WindowModel | BagModel:
    """The encoder with its window classifier, or with an aggregator.

    Parameters
    ----------
    encoder
        N x *shape -> N x d.
    backbone
        Its name, which decides the window classifier.
    n_classes
        K.
    settings
        Of windows or of bags.
    """
    dim = backbones.embedding_dim(encoder)
    if isinstance(settings, WindowSettings):
        return WindowModel(encoder, backbones.create_head(backbone, dim, n_classes))
    options: dict[str, Any] = {"positions": settings.positions, "dropout": settings.dropout}
    return BagModel(encoder, aggregators.create(settings.aggregator, dim, n_classes, **options))


def pretrain(
    encoder: nn.Module, backbone: str, training: WindowSet, settings: Stage1Settings, here: Here, keep: Path | None
) -> Trained:
    """Stage 1: train the encoder in place.

    Parameters
    ----------
    encoder
        N x *shape -> N x d.
    backbone
        Its name.
    training
        The training subjects' windows.
    settings
        Of the objective.
    here
        Device, random numbers, and who watches.
    keep
        A checkpoint to write, and to go on from.
    """
    here.streams.start("stage 1 head")
    learner = Stage1Learner(encoder, backbone, training, settings, here.device)
    return train(learner, here.streams, keep=keep, watch=here.watch)


def fit_network(
    encoder: nn.Module,
    backbone: str,
    training: WindowSet,
    validation: WindowSet | None,
    settings: WindowSettings | BagSettings,
    here: Here,
    keep: Path | None = None,
    *,
    pretrained: bool = False,
) -> tuple[WindowModel | BagModel, Trained]:
    """Train windows or bags; the model comes back with the selected epoch's weights.

    Parameters
    ----------
    encoder
        N x *shape -> N x d; trained in place.
    backbone
        Its name.
    training, validation
        Windows of the training and the validation subjects; none of the latter where nothing is selected.
    settings
        Of windows or of bags.
    here
        Device, random numbers, and who watches.
    keep
        A checkpoint to write, and to go on from.
    pretrained
        Whether the encoder comes from Stage 1.
    """
    here.streams.start("head")
    model = assemble(encoder, backbone, training.n_classes, settings).to(here.device)
    learner: Learner
    if isinstance(settings, WindowSettings):
        assert isinstance(model, WindowModel)
        learner = WindowLearner(model, training, validation, settings, here.device)
    else:
        assert isinstance(model, BagModel)
        learner = BagLearner(model, training, validation, settings, here.device, pretrained=pretrained)
    return model, train(learner, here.streams, keep=keep, watch=here.watch)


@dataclass(frozen=True)
class Prediction:
    """What a model says of one subject."""

    predicted: int
    probabilities: Tensor  # K, double
    gates: Tensor | None = None  # n
    contributions: Tensor | None = None  # n x K, of aggregators whose windows add up to the logits
    window_probabilities: Tensor | None = None  # n x K, of a majority vote


def predict(model: WindowModel | BagModel, windows: Tensor | Iterable[Tensor], device: torch.device) -> Prediction:
    """What a model says of one subject.

    Parameters
    ----------
    model
        As ``fit_network`` returns it.
    windows
        The subject's windows n x *shape, normalised as in training, or blocks of them (``WindowSet.blocks``).
    device
        Where the model is.
    """
    if isinstance(model, WindowModel):
        decided = vote(model, windows, device)
        return Prediction(decided.predicted, decided.probabilities.double(), window_probabilities=decided.windows)
    output = model.explain(windows, device)
    logits = output.logits[0].double().cpu()
    contributions = None if output.contributions is None else output.contributions[0].cpu()
    return Prediction(int(logits.argmax()), logits.softmax(dim=0), output.gates[0].cpu(), contributions)
