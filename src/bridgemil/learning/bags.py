"""Bags: an encoder and an aggregator learn from one label a subject. End to end, or as Stage 2 of a two-stage method.

All valid windows of a mini-batch are encoded as one flat batch. In Stage 2 the embeddings of the Stage 1 encoder are
computed once: they are the aggregator's input while the encoder is frozen, and the reference of feature retention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from bridgemil.aggregators.bags import BagOutput
from bridgemil.learning import averaging, reading, schedule
from bridgemil.learning.embeddings import FrozenEmbeddings, in_blocks
from bridgemil.learning.layout import Index
from bridgemil.learning.loop import Learner
from bridgemil.learning.selection import Validation
from bridgemil.learning.settings import BagSettings, with_min_steps
from bridgemil.learning.streams import Streams
from bridgemil.learning.window_set import WindowSet

PROBE_EVERY = 10  # epochs between measurements of the retention gradient; each costs an extra backward pass


class BagModel(nn.Module):
    """An encoder of windows (N x *shape -> N x d) and an aggregator of bags."""

    def __init__(self, encoder: nn.Module, aggregator: nn.Module) -> None:
        super().__init__()
        self.encoder: nn.Module = encoder
        self.aggregator: nn.Module = aggregator

    def aggregate(self, embeddings: Tensor, sizes: Sequence[int]) -> BagOutput:
        """What the aggregator says of several bags.

        Parameters
        ----------
        embeddings
            Of the B bags' windows, one bag after the other, n x d.
        sizes
            Windows of each bag, B; they sum to n.
        """
        padded = pad_sequence(list(embeddings.split(list(sizes))), batch_first=True)  # B x N x d
        places = torch.arange(padded.shape[1], device=padded.device)
        mask = places < torch.tensor(sizes, device=padded.device).unsqueeze(1)
        output: BagOutput = self.aggregator(padded, mask)
        return output

    @torch.no_grad()
    def explain(self, windows: Tensor | Iterable[Tensor], device: torch.device) -> BagOutput:
        """One subject, in evaluation mode: logits 1 x K, gates 1 x n.

        Parameters
        ----------
        windows
            n x *shape, normalised as in training, or blocks of them.
        device
            Where the model is.
        """
        self.eval()
        embeddings = in_blocks(self.encoder, windows, device)
        return self.aggregate(embeddings, [len(embeddings)])


class _GateLog:
    """Mean and standard deviation of the gates of all training windows of an epoch."""

    def __init__(self) -> None:
        self.n, self.sums = 0, torch.zeros(2, dtype=torch.float64)

    def add(self, gates: Tensor, n: int) -> None:
        """Gates B x N, zero where masked, of n windows."""
        values = gates.detach().double()
        self.sums = self.sums.to(values.device) + torch.stack([values.sum(), values.square().sum()])
        self.n += n

    def summary(self) -> dict[str, float]:
        """As columns of the curve."""
        if not self.n:
            return {}
        mean, square = (self.sums / self.n).tolist()
        return {"gate_mean": mean, "gate_std": math.sqrt(max(0.0, square - mean**2))}


@dataclass(frozen=True)
class Step:
    """A mini-batch: some subjects, and which of their windows."""

    subjects: Index
    windows: Index  # numbers, one subject after the other
    sizes: list[int]  # windows of each subject


class BagLearner(Learner):
    """Cross-entropy on subjects, plus retention where there is a Stage 1 encoder to stay near.

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
    pretrained
        Whether the encoder comes from Stage 1: only then is it frozen at first and retained.
    """

    purpose, stage, batch_settings = "bags", "stage2", "stage2.batch_subjects"
    model: BagModel

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
        self.phase = "Stage 2" if pretrained else "bags"
        self.model, self.device = model, device
        self.data, self.validation = train, validation
        self.steps = math.ceil(len(train.subjects) / settings.batch_subjects)
        self.settings = settings = with_min_steps(settings, self.steps)
        self.epochs, self.burn_in = settings.epochs, settings.burn_in
        self.selection, self.averaging = settings.selection, settings.averaging
        self.ahead = reading.pays(train.n_bytes, device.type)
        self.frozen_epochs = settings.epochs if settings.frozen else settings.freeze_epochs if pretrained else 0
        self.retention = settings.retention if pretrained else 0.0
        self.warmup, self.total = settings.warmup_epochs * self.steps, settings.epochs * self.steps
        self.weights = train.class_weights().to(device) if settings.class_weight else None
        groups = [
            {"params": list(model.encoder.parameters()), "lr": settings.encoder_lr or settings.lr},
            {"params": list(model.aggregator.parameters()), "lr": settings.lr},
        ]
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        self.optimiser = kind(groups, weight_decay=settings.weight_decay)
        # The embeddings of the Stage 1 encoder, before anything here changes it.
        needed = self.frozen_epochs or self.retention
        self.reference = FrozenEmbeddings(model.encoder, train, device) if needed else None
        self.frozen_validation = None
        if self.frozen_epochs and validation is not None:
            self.frozen_validation = FrozenEmbeddings(model.encoder, validation, device)
        self.frozen, self.probe, self.ratio, self.gates = False, False, math.nan, _GateLog()

    def rate(self, step: int) -> float:
        """Warm-up and cosine for Stage 2, constant end to end."""
        return schedule.cosine(step, self.warmup, self.total) if self.settings.schedule == "cosine" else 1.0

    def begin(self, epoch: int) -> None:
        """While frozen, the encoder is in evaluation mode: no gradient, no dropout, fixed BN statistics."""
        self.model.train()
        self.frozen = epoch < self.frozen_epochs
        self.probe = self.retention > 0 and not self.frozen and (epoch - self.frozen_epochs) % PROBE_EVERY == 0
        self.ratio, self.gates = math.nan, _GateLog()
        if self.frozen:
            self.model.encoder.eval()

    def batches(self, rng: np.random.Generator) -> Iterator[Step]:
        """All subjects, shuffled; the last mini-batch may be smaller, but a single window joins those before (BN)."""
        order, size = rng.permutation(len(self.data.subjects)), self.settings.batch_subjects
        parts = [order[first : first + size] for first in range(0, len(order), size)]
        if len(parts) > 1 and sum(self.data.sizes[i] for i in parts[-1]) == 1:
            parts[-2:] = [np.concatenate(parts[-2:])]
        yield from [self._step(part, rng) for part in parts]  # all drawn first: ``loss`` draws from ``rng`` too

    def _step(self, subjects: Index, rng: np.random.Generator) -> Step:
        """These subjects with all their windows, or with ``bag_windows`` of each, drawn anew and in order."""
        most, layout = self.settings.bag_windows, self.data.layout
        if most is None:
            return Step(subjects, self.data.bag_index(subjects), [self.data.sizes[i] for i in subjects])
        bags = []
        for i in subjects:
            n = self.data.sizes[i]
            few = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
            bags.append(layout.subject_start[i] + few)
        return Step(subjects, np.concatenate(bags), [len(bag) for bag in bags])

    def read(self, batch: Step) -> Tensor | None:
        """The step's windows, n x *shape; none while the encoder is frozen."""
        return None if self.frozen and self.reference is not None else self.data.take(batch.windows)

    def loss(self, batch: Step, windows: Tensor | None, rng: np.random.Generator) -> Tensor:
        """L_S2 = L_CE + lambda L_ret."""
        index, sizes = batch.windows, batch.sizes
        if windows is None:
            assert self.reference is not None
            embeddings = self.reference.take(index)
        else:
            embeddings = self.model.encoder(windows.to(self.device))
        output = self.model.aggregate(embeddings, sizes)
        self.gates.add(output.gates, len(index))
        smoothing = self.settings.label_smoothing
        labels = self.data.y[torch.from_numpy(batch.subjects)].to(self.device)
        loss = F.cross_entropy(output.logits, labels, weight=self.weights, label_smoothing=smoothing)
        if self.frozen or not self.retention or self.reference is None:
            return loss
        few = min(self.settings.retention_windows, len(index))
        chosen = rng.choice(len(index), few, replace=False)
        reference = self.reference.take(index[chosen])
        retained = self.retention * F.mse_loss(embeddings[torch.from_numpy(chosen)], reference)
        if self.probe:
            self.ratio, self.probe = self._gradient_ratio(retained, loss), False
        return loss + retained

    @torch.no_grad()
    def validate(self) -> Validation | None:
        """Accuracy and mean cross-entropy of the validation subjects."""
        if self.validation is None:
            return None
        self.model.eval()
        subject_logits = []
        for i in range(len(self.validation.subjects)):
            if self.frozen and self.frozen_validation is not None:
                embeddings = self.frozen_validation.bag(i)
            else:
                embeddings = in_blocks(self.model.encoder, self.validation.blocks(i), self.device)
            subject_logits.append(self.model.aggregate(embeddings, [len(embeddings)]).logits)
        logits, y = torch.cat(subject_logits).double().cpu(), self.validation.y
        return Validation(float((logits.argmax(dim=1) == y).double().mean()), float(F.cross_entropy(logits, y)))

    def estimate_statistics(self, streams: Streams) -> None:
        """Of the encoder, unless it is frozen; aggregators have no batch norm."""
        averaging.estimate_statistics(self.model.encoder, self.data, self.device, streams.number("batch norm"))

    def notes(self) -> dict[str, float]:
        """How the gates are spread; and, where it was measured, the retention relative to the classification gradient.

        The gates are those of the epoch's training passes, so dropout is in them.
        """
        measured = {} if math.isnan(self.ratio) else {"retention_gradient_ratio": self.ratio}
        return self.gates.summary() | measured

    def _gradient_ratio(self, retained: Tensor, classification: Tensor) -> float:
        parameters = list(self.model.encoder.parameters())
        norms = []
        for term in (retained, classification):
            gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
            squares = [float(g.detach().double().square().sum()) for g in gradients if g is not None]
            norms.append(math.sqrt(sum(squares)))
        return norms[0] / norms[1] if norms[1] else math.inf
