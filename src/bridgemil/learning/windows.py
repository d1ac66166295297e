"""Majority vote: every window inherits its subject's diagnosis, and a subject's windows vote.

The field's habit, and the paper's first baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.learning.loop import Learner
from bridgemil.learning.selection import Validation
from bridgemil.learning.settings import WindowSettings
from bridgemil.learning.window_set import WindowSet, batches, in_blocks, n_batches


class WindowModel(nn.Module):
    """An encoder and its own window classifier."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor) -> Tensor:
        """N x C x T -> logits N x K."""
        logits: Tensor = self.head(self.encoder(x))
        return logits


@dataclass(frozen=True)
class Vote:
    """What a subject's windows say together."""

    predicted: int
    probabilities: Tensor  # K, mean over windows
    windows: Tensor  # n x K, the probabilities of each window


def vote(model: nn.Module, windows: Tensor, device: torch.device) -> Vote:
    """Most votes win; a tie goes to the tied class with the highest mean probability."""
    p = in_blocks(model, windows, device).softmax(dim=1).cpu()
    votes = torch.bincount(p.argmax(dim=1), minlength=p.shape[1])
    mean = p.mean(dim=0)
    return Vote(int(mean.masked_fill(votes < votes.max(), -1).argmax()), mean, p)


class WindowLearner(Learner):
    """Cross-entropy on windows; validation by vote."""

    phase, purpose, batch_settings = "windows", "windows", "stage2.batch_windows"

    def __init__(
        self,
        model: WindowModel,
        train: WindowSet,
        validation: WindowSet,
        settings: WindowSettings,
        device: torch.device,
    ) -> None:
        self.model, self.settings, self.device = model, settings, device
        self.data, self.validation = train, validation
        self.labels = train.window_y
        self.steps = n_batches(len(train.x), settings.batch_windows)
        self.weights = train.class_weights().to(device) if settings.class_weight else None
        self.optimiser = torch.optim.Adam(model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def batches(self, rng: np.random.Generator) -> Iterator[Tensor]:
        """All windows, shuffled."""
        for part in batches(rng.permutation(len(self.data.x)), self.settings.batch_windows):
            yield torch.from_numpy(part)

    def loss(self, batch: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        logits = self.model(self.data.x[batch].to(self.device))
        return F.cross_entropy(logits, self.labels[batch].to(self.device), weight=self.weights)

    def validate(self) -> Validation:
        """Accuracy of the votes; the loss is -log of the mean window probability of the true class."""
        correct, losses = [], []
        for i, label in enumerate(self.validation.y.tolist()):
            decided = vote(self.model, self.validation.bag(i), self.device)
            correct.append(decided.predicted == label)
            losses.append(-float(decided.probabilities[label].double().clamp(min=1e-300).log()))
        return Validation(float(np.mean(correct)), float(np.mean(losses)))
