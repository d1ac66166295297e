"""Two simple aggregators beside the paper's: softmax attention (Ilse et al. 2018) and the plain mean; no positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bridgemil.aggregators.bags import DROPOUT, BagOutput, bag_mean, without_padding
from bridgemil.aggregators.gated import HIDDEN


class SoftmaxAttention(nn.Module):
    """Windows share a weight of one between them: classifier(sum(softmax(w' tanh(V h)) h))."""

    def __init__(self, embedding_dim: int, n_classes: int, *, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Sequential(nn.Linear(embedding_dim, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.classifier = nn.Linear(embedding_dim, n_classes)

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K; ``gates`` are the softmax weights."""
        h = self.dropout(without_padding(embeddings, mask))
        scores = self.score(h).squeeze(-1).masked_fill(~mask, -torch.inf)
        weights = torch.softmax(scores, dim=1)  # B x N
        return BagOutput(self.classifier(torch.einsum("bn,bnd->bd", weights, h)), weights)


class Mean(nn.Module):
    """classifier(mean(h))."""

    def __init__(self, embedding_dim: int, n_classes: int, *, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(embedding_dim, n_classes)

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K; the attention weight of every valid window is one."""
        return BagOutput(
            self.classifier(bag_mean(self.dropout(without_padding(embeddings, mask)), mask)), mask.to(embeddings.dtype)
        )
