"""Bags: an encoder and an aggregator learn from one label a subject. End to end, or as Stage 2 of a two-stage method.

All valid windows of a mini-batch are encoded as one flat batch. In Stage 2 the embeddings of the Stage 1 encoder are
computed once: they are the aggregator's input while the encoder is frozen, and the reference of feature retention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from bridgemil.aggregators.bags import BagOutput
from bridgemil.learning import schedule
from bridgemil.learning.loop import Learner
from bridgemil.learning.selection import Validation
from bridgemil.learning.settings import BagSettings
from bridgemil.learning.window_set import WindowSet, in_blocks

PROBE_EVERY = 10  # epochs between measurements of the retention gradient; each costs an extra backward pass


class BagModel(nn.Module):
    """An encoder of windows and an aggregator of bags."""

    def __init__(self, encoder: nn.Module, aggregator: nn.Module) -> None:
        super().__init__()
        self.encoder: nn.Module = encoder
        self.aggregator: nn.Module = aggregator

    def aggregate(self, embeddings: Tensor, sizes: Sequence[int]) -> BagOutput:
        """Embeddings of several bags, one after the other (n x d), to what the aggregator says of each."""
        padded = pad_sequence(list(embeddings.split(list(sizes))), batch_first=True)  # B x N x d
        places = torch.arange(padded.shape[1], device=padded.device)
        mask = places < torch.tensor(sizes, device=padded.device).unsqueeze(1)
        output: BagOutput = self.aggregator(padded, mask)
        return output

    @torch.no_grad()
    def explain(self, windows: Tensor, device: torch.device) -> BagOutput:
        """One subject's windows (n x C x T), in evaluation mode: logits 1 x K, gates 1 x n."""
        self.eval()
        return self.aggregate(in_blocks(self.encoder, windows, device), [len(windows)])


class BagLearner(Learner):
    """Cross-entropy on subjects, plus retention where there is a Stage 1 encoder to stay near."""

    purpose, batch_settings = "bags", "stage2.batch_subjects"
    model: BagModel

    def __init__(
        self,
        model: BagModel,
        train: WindowSet,
        validation: WindowSet,
        settings: BagSettings,
        device: torch.device,
        *,
        pretrained: bool,
    ) -> None:
        self.phase = "Stage 2" if pretrained else "bags"
        self.model, self.settings, self.device = model, settings, device
        self.data, self.validation = train, validation
        self.frozen_epochs = settings.freeze_epochs if pretrained else 0
        self.retention = settings.retention if pretrained else 0.0
        self.steps = math.ceil(len(train.subjects) / settings.batch_subjects)
        self.warmup, self.total = settings.warmup_epochs * self.steps, settings.epochs * self.steps
        self.weights = train.class_weights().to(device) if settings.class_weight else None
        groups = [
            {"params": list(model.encoder.parameters()), "lr": settings.encoder_lr or settings.lr},
            {"params": list(model.aggregator.parameters()), "lr": settings.lr},
        ]
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        self.optimiser = kind(groups, weight_decay=settings.weight_decay)
        # The embeddings of the Stage 1 encoder, before anything here changes it.
        self.reference = self._embed(train) if self.frozen_epochs or self.retention else None
        self.frozen_validation = self._embed(validation) if self.frozen_epochs else None
        self.frozen, self.probe, self.ratio = False, False, math.nan

    def rate(self, step: int) -> float:
        """Warm-up and cosine for Stage 2, constant end to end."""
        return schedule.cosine(step, self.warmup, self.total) if self.settings.schedule == "cosine" else 1.0

    def begin(self, epoch: int) -> None:
        """While frozen, the encoder is in evaluation mode: no gradient, no dropout, fixed BN statistics."""
        self.model.train()
        self.frozen = epoch < self.frozen_epochs
        self.probe = self.retention > 0 and not self.frozen and (epoch - self.frozen_epochs) % PROBE_EVERY == 0
        self.ratio = math.nan
        if self.frozen:
            self.model.encoder.eval()

    def batches(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """All subjects, shuffled; the last mini-batch may be smaller, but a single window joins those before (BN)."""
        order, size = rng.permutation(len(self.data.subjects)), self.settings.batch_subjects
        parts = [order[first : first + size] for first in range(0, len(order), size)]
        if len(parts) > 1 and sum(self.data.sizes[i] for i in parts[-1]) == 1:
            parts[-2:] = [np.concatenate(parts[-2:])]
        yield from parts

    def loss(self, batch: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """L_S2 = L_CE + lambda L_ret."""
        index = torch.from_numpy(self.data.bag_index(batch))
        sizes = [self.data.sizes[i] for i in batch]
        if self.frozen and self.reference is not None:
            embeddings = self.reference[index]
        else:
            embeddings = self.model.encoder(self.data.x[index].to(self.device))
        logits = self.model.aggregate(embeddings, sizes).logits
        loss = F.cross_entropy(logits, self.data.y[batch].to(self.device), weight=self.weights)
        if self.frozen or not self.retention or self.reference is None:
            return loss
        few = min(self.settings.retention_windows, len(index))
        chosen = torch.from_numpy(rng.choice(len(index), few, replace=False))
        retained = self.retention * F.mse_loss(embeddings[chosen], self.reference[index[chosen]])
        if self.probe:
            self.ratio, self.probe = self._gradient_ratio(retained, loss), False
        return loss + retained

    def validate(self) -> Validation:
        """Accuracy and mean cross-entropy of the validation subjects."""
        embeddings = self.frozen_validation if self.frozen else None
        if embeddings is None:
            embeddings = self._embed(self.validation)
        self.model.eval()
        with torch.no_grad():
            bags = embeddings.split(list(self.validation.sizes))
            logits = torch.cat([self.model.aggregate(bag, [len(bag)]).logits for bag in bags]).double().cpu()
        y = self.validation.y
        return Validation(float((logits.argmax(dim=1) == y).double().mean()), float(F.cross_entropy(logits, y)))

    def notes(self) -> dict[str, float]:
        """The retention gradient relative to the classification gradient, where it was measured."""
        return {} if math.isnan(self.ratio) else {"retention_gradient_ratio": self.ratio}

    def _embed(self, windows: WindowSet) -> Tensor:
        bags = [in_blocks(self.model.encoder, windows.bag(i), self.device) for i in range(len(windows.subjects))]
        return torch.cat(bags)

    def _gradient_ratio(self, retained: Tensor, classification: Tensor) -> float:
        parameters = list(self.model.encoder.parameters())
        norms = []
        for term in (retained, classification):
            gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
            squares = [float(g.detach().double().square().sum()) for g in gradients if g is not None]
            norms.append(math.sqrt(sum(squares)))
        return norms[0] / norms[1] if norms[1] else math.inf
