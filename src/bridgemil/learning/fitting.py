"""From training and validation windows to a model, and from a model to predictions."""

from __future__ import annotations

from collections.abc import Mapping
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


def new_encoder(backbone: str, options: Mapping[str, Any], windows: WindowSet, here: Here) -> nn.Module:
    """A fresh encoder for these windows; the same for every method of one seed and fold."""
    here.streams.start("encoder")
    return backbones.create(backbone, *windows.x.shape[1:], **options).to(here.device)


def pretrain(
    encoder: nn.Module, backbone: str, training: WindowSet, settings: Stage1Settings, here: Here, keep: Path | None
) -> Trained:
    """Stage 1: train the encoder in place."""
    here.streams.start("stage 1 head")
    learner = Stage1Learner(encoder, backbone, training, settings, here.device)
    return train(learner, settings.epochs, here.streams, keep=keep, watch=here.watch)


def fit(
    encoder: nn.Module,
    backbone: str,
    training: WindowSet,
    validation: WindowSet,
    settings: WindowSettings | BagSettings,
    here: Here,
    keep: Path | None = None,
    *,
    pretrained: bool = False,
) -> tuple[WindowModel | BagModel, Trained]:
    """Train windows or bags; the model comes back with the selected epoch's weights."""
    here.streams.start("head")
    model: WindowModel | BagModel
    if isinstance(settings, WindowSettings):
        head = backbones.create_head(backbone, backbones.embedding_dim(encoder), training.n_classes)
        model = WindowModel(encoder, head).to(here.device)
        learner: Learner = WindowLearner(model, training, validation, settings, here.device)
    else:
        aggregator = aggregators.create(settings.aggregator, backbones.embedding_dim(encoder), training.n_classes)
        model = BagModel(encoder, aggregator).to(here.device)
        learner = BagLearner(model, training, validation, settings, here.device, pretrained=pretrained)
    burn_in = settings.burn_in
    return model, train(learner, settings.epochs, here.streams, burn_in=burn_in, keep=keep, watch=here.watch)


@dataclass(frozen=True)
class Prediction:
    """What a model says of one subject."""

    predicted: int
    probabilities: Tensor  # K, double
    windows: Tensor  # the gate of each window (n), or with a majority vote its class probabilities (n x K)


def predict(model: WindowModel | BagModel, windows: Tensor, device: torch.device) -> Prediction:
    """One subject's windows (n x C x T), normalised as in training."""
    if isinstance(model, WindowModel):
        decided = vote(model, windows, device)
        return Prediction(decided.predicted, decided.probabilities.double(), decided.windows)
    output = model.explain(windows, device)
    logits = output.logits[0].double().cpu()
    return Prediction(int(logits.argmax()), logits.softmax(dim=0), output.gates[0].cpu())
