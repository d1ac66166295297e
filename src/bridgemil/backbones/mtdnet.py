"""MTDNet: three temporal convolutions at different scales, then a two-layer LSTM over the joined sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones.layers import at_least
from bridgemil.errors import BadUse

SCALES = ((10, 1), (5, 2), (2, 5))  # kernel (= stride) and average pool of each branch; their product is one step


class MTDNet(nn.Module):
    """N x C x T -> N x 16. Electrodes are input channels; a step of the sequence is ten samples.

    ``lstm_layout``: "transpose" gives the LSTM one step after the other; "reference" reshapes 96 x steps to steps x 96
    as the public code does.
    """

    embedding_dim = 16

    def __init__(self, n_channels: int, n_times: int, lstm_layout: str = "transpose") -> None:
        super().__init__()
        at_least("mtdnet", n_times, 10)
        if lstm_layout not in ("transpose", "reference"):
            raise BadUse(f"lstm_layout must be 'transpose' or 'reference', got {lstm_layout!r}")
        self.lstm_layout = lstm_layout
        self.convs = nn.ModuleList([nn.Conv1d(n_channels, 32, size, stride=size) for size, _ in SCALES])
        self.norms = nn.ModuleList([nn.BatchNorm1d(32) for _ in SCALES])
        self.lstm = nn.LSTM(96, 16, num_layers=2, batch_first=True)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows."""
        samples = x.transpose(1, 2).contiguous()  # N x T x C: a kernel's input lies in one piece of memory
        steps = torch.cat([self._branch(samples, i) for i in range(len(SCALES))], dim=2)  # N x steps x 96
        if self.lstm_layout == "reference":
            steps = steps.transpose(1, 2).reshape(steps.shape)
        return self.norm(self.lstm(steps)[0][:, -1])

    def _branch(self, samples: Tensor, number: int) -> Tensor:
        """N x T x C -> N x steps x 32: convolution (its stride is its size, so a plain product), norm, ReLU, pool."""
        conv: Any = self.convs[number]
        norm, (size, pool) = self.norms[number], SCALES[number]
        n, n_times, _ = samples.shape
        pieces = samples[:, : n_times // size * size].reshape(n * (n_times // size), size * samples.shape[2])
        u = F.relu(norm(F.linear(pieces, conv.weight.transpose(1, 2).flatten(1), conv.bias))).view(
            n, n_times // size, 32
        )
        n_steps = n_times // (size * pool)
        return u[:, : n_steps * pool].unflatten(1, (n_steps, pool)).mean(dim=2)


def head(embedding_dim: int, n_classes: int) -> nn.Module:
    """MTDNet's window classifier."""
    return nn.Sequential(nn.Linear(embedding_dim, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, n_classes))
