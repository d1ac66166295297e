"""Stage 1: an encoder learns from the training subjects' windows alone; its head is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.learning import objectives, reading, schedule
from bridgemil.learning.loop import Learner
from bridgemil.learning.settings import Stage1Settings, with_min_steps
from bridgemil.learning.window_set import WindowSet


class Stage1Learner(Learner):
    """AdamW with warm-up and cosine on an objective's loss. Nothing is validated: the last epoch's encoder is taken.

    Parameters
    ----------
    encoder
        N x *shape -> N x d; trained in place.
    backbone
        Its name, for objectives that use the backbone's own classifier.
    train
        The training subjects' windows.
    settings
        Of the objective.
    device
        Where the encoder is.
    """

    phase, purpose, stage = "Stage 1", "stage 1", "stage1"

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        self.objective = objectives.create(encoder, backbone, train, settings, device)
        self.model = self.objective
        self.steps, self.batch_settings = self.objective.steps, self.objective.batch_settings
        self.ahead = reading.pays(train.n_bytes, device.type)
        lasting = with_min_steps(settings, self.steps)
        self.epochs = lasting.epochs
        self.warmup, self.total = lasting.warmup_epochs * self.steps, lasting.epochs * self.steps
        self.optimiser = torch.optim.AdamW(self.model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def rate(self, step: int) -> float:
        """Warm-up, then cosine to zero."""
        return schedule.cosine(step, self.warmup, self.total)

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """As the objective draws them."""
        return self.objective.batches(rng)

    def read(self, batch: Any) -> Any:
        """The windows the objective asks for."""
        return self.objective.read(batch)

    def loss(self, batch: Any, windows: Any, rng: np.random.Generator) -> Tensor:
        """The objective's loss."""
        return self.objective.loss(batch, windows)
