"""The base of every Stage 1 objective: an encoder with a head, trained on the windows of the training subjects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from bridgemil.backbones import embedding_dim
from bridgemil.learning.data import Index, WindowSet, batches, n_batches
from bridgemil.learning.loop import Learner, cosine
from bridgemil.learning.networks import WindowModel
from bridgemil.learning.settings import Stage1Settings


class Objective(Learner):
    """AdamW with warm-up and cosine on the objective's loss. Nothing is validated: the last epoch's encoder is used.

    A subclass has ``make_head`` and ``loss``; and ``batches`` and ``read``, unless a step has some windows of the
    training subjects, each once in an epoch.

    Parameters
    ----------
    encoder : nn.Module
        N x *shape -> N x d; trained in place.
    backbone : str
        Its name.
    train : WindowSet
        The training subjects' windows.
    settings : Stage1Settings
        Of the objective.
    device : torch.device
        Where the encoder is.

    Attributes
    ----------
    anchors : ndarray of int
        The windows from which the steps of an epoch are drawn: all, unless ``choose_anchors`` is overridden.
    labels : Tensor of shape (n_windows,)
        Inherited label of each window.
    """

    phase, purpose, stage, batch_settings = "Stage 1", "stage 1", "stage1", "stage1.batch_windows"

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        self.settings, self.anchors, self.labels = settings, self.choose_anchors(train, settings), train.window_y
        self.encoder, self.head = encoder, self.make_head(encoder, backbone, train).to(device)
        steps = n_batches(len(self.anchors), settings.batch_windows)
        super().__init__(WindowModel(self.encoder, self.head), train, settings, device, steps)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    @abstractmethod
    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """A module that takes embeddings N x d; discarded after Stage 1."""

    def choose_anchors(self, train: WindowSet, settings: Any) -> Index:
        """The numbers of the windows from which steps are drawn."""
        return np.arange(len(train))

    def rate(self, step: int) -> float:
        """Warm-up, then cosine to zero."""
        return cosine(step, self.warmup, self.total)

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch: all windows, shuffled."""
        return batches(rng.permutation(self.anchors), self.settings.batch_windows)


def projection(encoder: nn.Module) -> nn.Module:
    """d-256-LN-ELU-128, shared by BridgeMIL's two pair types; SupCon's too."""
    return nn.Sequential(nn.Linear(embedding_dim(encoder), 256), nn.LayerNorm(256), nn.ELU(), nn.Linear(256, 128))
