"""EEGNet (Lawhern et al. 2018): temporal filters, spatial filters per temporal filter, separable convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bridgemil.backbones.layers import Dropout, at_least, norm_elu_pool
from bridgemil.backbones.stem import temporal_then_spatial, toeplitz


class EEGNet(nn.Module):
    """N x C x T -> N x 16 (T // 32).

    ``max_norm`` limits the norm of each spatial filter (the original uses 1); none by default.
    """

    def __init__(self, n_channels: int, n_times: int, dropout: float = 0.25, max_norm: float | None = None) -> None:
        super().__init__()
        self.max_norm = max_norm
        at_least("eegnet", n_times, 32)
        self.embedding_dim = 16 * (n_times // 4 // 8)
        self.temporal = nn.Conv2d(1, 8, (1, 64), bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.spatial = nn.Conv2d(8, 16, (n_channels, 1), groups=8, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, (1, 16), groups=16, bias=False)
        self.pointwise = nn.Conv2d(16, 16, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows; activations are kept channels first (16 x N x time)."""
        if self.max_norm is not None:  # through .data: an earlier pass of the same step may hold the weights
            self.spatial.weight.data.copy_(self.spatial.weight.detach().renorm(2, 0, self.max_norm))
        u, shift = temporal_then_spatial(x, self.temporal, self.bn1, self.spatial)
        u = self.dropout(norm_elu_pool(u, self.bn2, 4, shift))
        u = torch.bmm(u, toeplitz(self.depthwise.weight.flatten(1), u.shape[-1], 7))
        u = (self.pointwise.weight.flatten(1) @ u.flatten(1)).view(u.shape)
        u = self.dropout(norm_elu_pool(u, self.bn3, 8))
        return u.transpose(0, 1).flatten(1)
