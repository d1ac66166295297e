"""The base of every Stage 1 objective: an encoder with a head, trained on the windows of the training subjects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from bridgemil.backbones import embedding_dim
from bridgemil.learning.data import WindowSet, batches, n_batches
from bridgemil.learning.loop import Learner, cosine
from bridgemil.learning.networks import WindowModel
from bridgemil.learning.settings import Stage1Settings


class Objective(Learner):
    """AdamW with warm-up and cosine on the objective's loss. Nothing is validated: the last epoch's encoder is used.

    A subclass has ``__init__(encoder, backbone, train, settings, device)`` and ``loss(batch, windows, rng)``; and
    ``batches`` and ``read``, unless a step has some windows of the training subjects, each once in an epoch.

    Parameters
    ----------
    encoder : nn.Module
        N x *shape -> N x d; trained in place.
    head : nn.Module
        Takes N x d; discarded after Stage 1.
    train : WindowSet
        The training subjects' windows.
    settings : Stage1Settings
        Of the objective.
    device : torch.device
        Where the encoder is.
    n_anchors : int, optional
        Windows from which the steps of an epoch are drawn, if not all.
    """

    phase, purpose, stage, batch_settings = "Stage 1", "stage 1", "stage1", "stage1.batch_windows"

    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Module,
        train: WindowSet,
        settings: Stage1Settings,
        device: torch.device,
        n_anchors: int | None = None,
    ) -> None:
        self.encoder, self.head, self.batch_windows = encoder, head.to(device), settings.batch_windows
        steps = n_batches(len(train) if n_anchors is None else n_anchors, settings.batch_windows)
        super().__init__(WindowModel(self.encoder, self.head), train, settings, device, steps)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def rate(self, step: int) -> float:
        """Warm-up, then cosine to zero."""
        return cosine(step, self.warmup, self.total)

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch: all windows, shuffled."""
        return batches(rng.permutation(len(self.data)), self.batch_windows)


def projection(encoder: nn.Module) -> nn.Module:
    """d-256-LN-ELU-128, shared by BridgeMIL's two pair types; SupCon's too."""
    return nn.Sequential(nn.Linear(embedding_dim(encoder), 256), nn.LayerNorm(256), nn.ELU(), nn.Linear(256, 128))
