"""Majority vote: every window inherits its subject's diagnosis, and a subject's windows vote.

The field's habit, and the paper's first baseline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.learning import averaging, reading
from bridgemil.learning.embeddings import in_blocks
from bridgemil.learning.layout import Index
from bridgemil.learning.loop import Learner
from bridgemil.learning.selection import Validation
from bridgemil.learning.settings import WindowSettings, with_min_steps
from bridgemil.learning.streams import Streams
from bridgemil.learning.window_set import WindowSet, batches, n_batches


class WindowModel(nn.Module):
    """An encoder (N x *shape -> N x d) and its own window classifier (N x d -> N x K)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor) -> Tensor:
        """N x *shape -> logits N x K."""
        logits: Tensor = self.head(self.encoder(x))
        return logits


@dataclass(frozen=True)
class Vote:
    """What a subject's windows say together."""

    predicted: int
    probabilities: Tensor  # K, mean over windows
    windows: Tensor  # n x K, the probabilities of each window


def vote(model: nn.Module, windows: Tensor | Iterable[Tensor], device: torch.device) -> Vote:
    """Most votes win; a tie goes to the tied class with the highest mean probability.

    Parameters
    ----------
    model
        N x *shape -> logits N x K.
    windows
        One subject's, n x *shape, or blocks of them.
    device
        Where the model is.
    """
    p = in_blocks(model, windows, device).softmax(dim=1).cpu()
    votes = torch.bincount(p.argmax(dim=1), minlength=p.shape[1])
    mean = p.mean(dim=0)
    return Vote(int(mean.masked_fill(votes < votes.max(), -1).argmax()), mean, p)


class WindowLearner(Learner):
    """Cross-entropy on windows; validation by vote.

    Parameters
    ----------
    model
        Trained in place.
    train, validation
        Windows of the training subjects, and of the validation subjects if there are any.
    settings
        Of the loop.
    device
        Where the model is.
    """

    phase, purpose, stage, batch_settings = "windows", "windows", "stage2", "stage2.batch_windows"

    def __init__(
        self,
        model: WindowModel,
        train: WindowSet,
        validation: WindowSet | None,
        settings: WindowSettings,
        device: torch.device,
    ) -> None:
        self.model, self.device = model, device
        self.data, self.validation = train, validation
        self.labels = train.window_y
        self.steps = n_batches(len(train), settings.batch_windows)
        self.settings = settings = with_min_steps(settings, self.steps)
        self.epochs, self.burn_in = settings.epochs, settings.burn_in
        self.selection, self.averaging = settings.selection, settings.averaging
        self.ahead = reading.pays(train.n_bytes, device.type)
        self.weights = train.class_weights().to(device) if settings.class_weight else None
        self.optimiser = torch.optim.Adam(model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def batches(self, rng: np.random.Generator) -> Iterator[Index]:
        """All windows, shuffled."""
        return batches(rng.permutation(len(self.data)), self.settings.batch_windows)

    def read(self, batch: Index) -> Tensor:
        """These windows, M x *shape."""
        return self.data.take(batch)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        smoothing = self.settings.label_smoothing
        logits = self.model(windows.to(self.device))
        return F.cross_entropy(logits, labels, weight=self.weights, label_smoothing=smoothing)

    def estimate_statistics(self, streams: Streams) -> None:
        """Of the encoder and of the window classifier, which may have batch norm too."""
        averaging.estimate_statistics(self.model, self.data, self.device, streams.number("batch norm"))

    def validate(self) -> Validation | None:
        """Accuracy of the votes; the loss is -log of the mean window probability of the true class."""
        if self.validation is None:
            return None
        correct, losses = [], []
        for i, label in enumerate(self.validation.y.tolist()):
            decided = vote(self.model, self.validation.blocks(i), self.device)
            correct.append(decided.predicted == label)
            losses.append(-float(decided.probabilities[label].double().clamp(min=1e-300).log()))
        return Validation(float(np.mean(correct)), float(np.mean(losses)))
