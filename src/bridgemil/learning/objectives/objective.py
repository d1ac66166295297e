"""The base of every Stage 1 objective, an encoder with a head, and two ablations: inherited labels, and no training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones import create_head, embedding_dim
from bridgemil.learning.data import Index, WindowSet, batches, n_batches
from bridgemil.learning.loop import Learner
from bridgemil.learning.networks import WindowModel
from bridgemil.learning.settings import Stage1Settings


class Objective(Learner):
    """AdamW with warm-up and cosine on the objective's loss. Nothing is validated: the last epoch's encoder is used.

    A subclass defines ``loss``. It overrides ``make_head`` if the head is not the projection, and ``batches`` and
    ``read`` if a step is not a random part of the training windows, each used once in an epoch. ``anchors`` are the
    numbers of the windows from which steps are drawn, ``labels`` the inherited label of each window. The encoder is
    trained in place.
    """

    phase, purpose, batch_settings = "Stage 1", "stage 1", "stage1.batch_windows"
    schedule = "cosine"
    model: WindowModel

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        self.anchors, self.labels = self.choose_anchors(train, settings), train.window_y
        model = WindowModel(encoder, self.make_head(encoder, backbone, train).to(device))
        super().__init__(model, train, settings, device, n_batches(len(self.anchors), settings.batch_windows))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """A module that takes embeddings N x d, discarded after Stage 1: a projection d-256-LN-ELU-128."""
        return nn.Sequential(nn.Linear(embedding_dim(encoder), 256), nn.LayerNorm(256), nn.ELU(), nn.Linear(256, 128))

    def choose_anchors(self, train: WindowSet, settings: Any) -> Index:
        """The numbers of the windows from which steps are drawn."""
        return np.arange(len(train))

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch: all windows, shuffled."""
        return batches(rng.permutation(self.anchors), self.settings.batch_windows)


class Supervised(Objective):
    """Cross-entropy with inherited labels through the backbone's own window classifier."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """The window classifier of the backbone."""
        return create_head(backbone, embedding_dim(encoder), train.n_classes)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        return F.cross_entropy(self.model(windows.to(self.device)), labels)


class Untrained(Objective):
    """Windows pass through random weights, so that batch norm has their statistics; the gradient is zero."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """None."""
        return nn.Identity()

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Zero, whatever the weights are."""
        return 0.0 * self.model(windows.to(self.device)).sum()
