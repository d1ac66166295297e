"""Attention, additive and conjunctive multiple-instance learning with one independent sigmoid gate per window.

With h the embedding plus its position in the bag and a = sigmoid(w' tanh(W h + b) + b') its attention weight:
attention is classifier(mean(a h)), additive mean(classifier(a h)), conjunctive (MILLET) mean(a classifier(h)).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bridgemil.aggregators.bags import DROPOUT, BagOutput, bag_mean, sinusoid, without_padding

HIDDEN = 8


class GatedBag(nn.Module):
    """Positions, dropout, sigmoid gate and classifier; the three kinds differ in what is gated and when it is averaged.

    Without ``positions`` h is the embedding alone. Dropout is of the embeddings with their positions.
    """

    def __init__(self, embedding_dim: int, n_classes: int, *, dropout: float = DROPOUT, positions: bool = True) -> None:
        super().__init__()
        self.positions, self.dropout = positions, nn.Dropout(dropout)
        self.gate = nn.Sequential(nn.Linear(embedding_dim, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1), nn.Sigmoid())
        self.classifier = nn.Linear(embedding_dim, n_classes)

    def gated(self, embeddings: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """h (B x N x d) and its attention weights (B x N, zero where masked); the paper's equations of Stage 2."""
        embeddings = without_padding(embeddings, mask)
        if self.positions:
            embeddings = embeddings + sinusoid(embeddings.shape[1], embeddings.shape[2], embeddings)
        h = self.dropout(embeddings)
        return h, self.gate(h).squeeze(-1) * mask


class Attention(GatedBag):
    """The bag's representation is the mean of the gated embeddings."""

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K."""
        h, gates = self.gated(embeddings, mask)
        return BagOutput(self.classifier(bag_mean(gates.unsqueeze(-1) * h, mask)), gates)


class Additive(GatedBag):
    """Every gated window is classified; the bag's logits are the mean."""

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K and contributions B x N x K."""
        h, gates = self.gated(embeddings, mask)
        return _summed(self.classifier(gates.unsqueeze(-1) * h), gates, mask)


class Conjunctive(GatedBag):
    """Every window is classified, its logits are gated; the bag's logits are the mean."""

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K and contributions B x N x K."""
        h, gates = self.gated(embeddings, mask)
        return _summed(gates.unsqueeze(-1) * self.classifier(h), gates, mask)


def _summed(window_logits: Tensor, gates: Tensor, mask: Tensor) -> BagOutput:
    share = mask.to(window_logits.dtype) / mask.sum(dim=1, keepdim=True)
    contributions = window_logits * share.unsqueeze(-1)
    return BagOutput(torch.sum(contributions, dim=1), gates, contributions)
