"""What the training loop trains after Stage 1, or without one: windows with inherited labels, or bags.

All valid windows of a mini-batch of bags are encoded as one flat batch. In Stage 2 the embeddings of the Stage 1
encoder are computed once: they are the aggregator's input while the encoder is frozen, and the reference of feature
retention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.learning.data import Index, WindowSet, batches, n_batches
from bridgemil.learning.loop import Learner, Validation
from bridgemil.learning.networks import BagModel, WindowModel, assemble, in_blocks, stored_embeddings, vote
from bridgemil.learning.settings import BagSettings, WindowSettings

PROBE_EVERY = 10  # epochs between measurements of the retention gradient; each costs an extra backward pass


class WindowLearner(Learner):
    """Cross-entropy on windows with inherited labels; validation by majority vote."""

    phase, purpose, batch_settings = "windows", "windows", "stage2.batch_windows"
    model: WindowModel

    def __init__(
        self,
        model: WindowModel,
        train: WindowSet,
        validation: WindowSet | None,
        settings: WindowSettings,
        device: torch.device,
    ) -> None:
        super().__init__(model, train, settings, device, n_batches(len(train), settings.batch_windows), validation)
        self.labels = train.window_y
        self.optimiser = torch.optim.Adam(model.parameters(), settings.lr, weight_decay=settings.weight_decay)

    def batches(self, rng: np.random.Generator) -> Iterator[Index]:
        """All windows, shuffled."""
        return batches(rng.permutation(len(self.data)), self.settings.batch_windows)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        return self.cross_entropy(self.model(windows.to(self.device)), labels)

    def validate(self) -> Validation:
        """Accuracy of the votes; the loss is -log of the mean window probability of the true class."""
        assert self.validation is not None
        correct, losses = [], []
        for i, label in enumerate(self.validation.y.tolist()):
            found = vote(self.model, self.validation.blocks(i), self.device)
            correct.append(found.predicted == label)
            losses.append(-float(found.probabilities[label].double().clamp(min=1e-300).log()))
        return Validation(float(np.mean(correct)), float(np.mean(losses)))


@dataclass(frozen=True)
class BagBatch:
    """A mini-batch: some subjects, and which of their windows."""

    subjects: Index
    windows: Index  # numbers, one subject after the other
    sizes: list[int]  # windows of each subject


class BagLearner(Learner):
    """Cross-entropy on subjects; only an encoder from Stage 1 (``pretrained``) is frozen at first, and retained."""

    purpose, batch_settings = "bags", "stage2.batch_subjects"
    model: BagModel
    settings: BagSettings
    frozen = probe = False  # whether the encoder is, and whether the retention gradient is measured, in this epoch

    def __init__(
        self,
        model: BagModel,
        train: WindowSet,
        validation: WindowSet | None,
        settings: BagSettings,
        device: torch.device,
        *,
        pretrained: bool,
    ) -> None:
        steps = math.ceil(len(train.subjects) / settings.batch_subjects)
        super().__init__(model, train, settings, device, steps, validation)
        self.phase, self.averaged = "Stage 2" if pretrained else "bags", model.encoder  # aggregators have no batch norm
        settings = self.settings
        self.schedule = settings.schedule
        self.frozen_epochs = settings.epochs if settings.frozen else settings.freeze_epochs if pretrained else 0
        self.retention = settings.retention if pretrained else 0.0
        groups = [
            {"params": list(model.encoder.parameters()), "lr": settings.encoder_lr or settings.lr},
            {"params": list(model.aggregator.parameters()), "lr": settings.lr},
        ]
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        self.optimiser = kind(groups, weight_decay=settings.weight_decay)
        # Embeddings of the Stage 1 encoder, before anything here changes it.
        self.reference = self.frozen_validation = None
        if self.frozen_epochs or self.retention:
            self.reference = stored_embeddings(model.encoder, train, device)
        if self.frozen_epochs and validation is not None:
            self.frozen_validation = stored_embeddings(model.encoder, validation, device)

    def begin(self, epoch: int) -> None:
        """While frozen, the encoder is in evaluation mode: no gradient, no dropout, fixed BN statistics."""
        self.model.train()
        self.frozen = epoch < self.frozen_epochs
        self.probe = self.retention > 0 and not self.frozen and (epoch - self.frozen_epochs) % PROBE_EVERY == 0
        self.ratio = math.nan
        self.n_gates, self.gates = 0, torch.zeros(2, dtype=torch.float64)  # number, sum and sum of squares
        if self.frozen:
            self.model.encoder.eval()

    def batches(self, rng: np.random.Generator) -> Iterator[BagBatch]:
        """All subjects, shuffled; the last mini-batch may be smaller, but a single window joins those before (BN)."""
        order, size = rng.permutation(len(self.data.subjects)), self.settings.batch_subjects
        parts = [order[first : first + size] for first in range(0, len(order), size)]
        if len(parts) > 1 and sum(self.data.sizes[i] for i in parts[-1]) == 1:
            parts[-2:] = [np.concatenate(parts[-2:])]
        yield from [self._batch(part, rng) for part in parts]  # all drawn first: ``loss`` draws from ``rng`` too

    def _batch(self, subjects: Index, rng: np.random.Generator) -> BagBatch:
        """These subjects with all their windows, or with ``bag_windows`` of each, drawn at random and in order."""
        most, bags = self.settings.bag_windows, [self.data.bag_index(i) for i in subjects]
        if most is not None:
            bags = [bag if len(bag) <= most else np.sort(rng.choice(bag, most, replace=False)) for bag in bags]
        return BagBatch(subjects, np.concatenate(bags), [len(bag) for bag in bags])

    def read(self, batch: BagBatch) -> Tensor | None:
        """The windows of the step, n x *shape; none while the encoder is frozen."""
        return None if self.frozen and self.reference is not None else self.data.take(batch.windows)

    def loss(self, batch: BagBatch, windows: Tensor | None, rng: np.random.Generator) -> Tensor:
        """L_S2 = L_CE + lambda L_ret."""
        index, sizes = batch.windows, batch.sizes
        if windows is None:
            assert self.reference is not None
            embeddings = torch.from_numpy(self.reference[index]).to(self.device)
        else:
            embeddings = self.model.encoder(windows.to(self.device))
        output = self.model.aggregate(embeddings, sizes)
        gates = output.gates.detach().double()  # zero where masked
        self.gates = self.gates.to(gates.device) + torch.stack([gates.sum(), gates.square().sum()])
        self.n_gates += len(index)
        labels = self.data.y[torch.from_numpy(batch.subjects)].to(self.device)
        loss: Tensor = self.cross_entropy(output.logits, labels)
        if self.frozen or not self.retention or self.reference is None:
            return loss
        few = min(self.settings.retention_windows, len(index))
        chosen = rng.choice(len(index), few, replace=False)
        reference = torch.from_numpy(self.reference[index[chosen]]).to(self.device)
        retained = self.retention * F.mse_loss(embeddings[torch.from_numpy(chosen)], reference)
        if self.probe:
            self.ratio, self.probe = self._gradient_ratio(retained, loss), False
        return loss + retained

    @torch.no_grad()
    def validate(self) -> Validation:
        """Accuracy and mean cross-entropy of the validation subjects."""
        assert self.validation is not None
        self.model.eval()
        subject_logits = []
        for i in range(len(self.validation.subjects)):
            if self.frozen and self.frozen_validation is not None:
                stored = self.frozen_validation[self.validation.bag_index(i)]
                embeddings = torch.from_numpy(stored).to(self.device)
            else:
                embeddings = in_blocks(self.model.encoder, self.validation.blocks(i), self.device)
            subject_logits.append(self.model.aggregate(embeddings, [len(embeddings)]).logits)
        logits, y = torch.cat(subject_logits).double().cpu(), self.validation.y
        return Validation(float((logits.argmax(dim=1) == y).double().mean()), float(F.cross_entropy(logits, y)))

    def notes(self) -> dict[str, float]:
        """Mean and deviation of the attention weights in training, and the ratio of the gradients where measured."""
        mean, square = (self.gates / self.n_gates).tolist()
        found = {"gate_mean": mean, "gate_std": math.sqrt(max(0.0, square - mean**2))}
        return found | ({} if math.isnan(self.ratio) else {"retention_gradient_ratio": self.ratio})

    def _gradient_ratio(self, retained: Tensor, classification: Tensor) -> float:
        """The size of the gradient of retention relative to that of classification, both of the encoder."""
        parameters = list(self.model.encoder.parameters())
        norms = []
        for term in (retained, classification):
            gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
            squares = [float(g.detach().double().square().sum()) for g in gradients if g is not None]
            norms.append(math.sqrt(sum(squares)))
        return norms[0] / norms[1] if norms[1] else math.inf


def create(
    encoder: nn.Module,
    backbone: str,
    train: WindowSet,
    validation: WindowSet | None,
    settings: WindowSettings | BagSettings,
    device: torch.device,
    *,
    pretrained: bool,
) -> WindowLearner | BagLearner:
    """An encoder (N x *shape -> N x d) with a new classifier or aggregator, as a learner for ``loop.train``.

    ``backbone`` is the encoder's name; it comes from Stage 1 where ``pretrained``. Without ``validation`` no epoch is
    selected.
    """
    network: Any = assemble(encoder, backbone, train.n_classes, settings).to(device)
    if isinstance(settings, WindowSettings):
        return WindowLearner(network, train, validation, settings, device)
    return BagLearner(network, train, validation, settings, device, pretrained=pretrained)
