"""DSAINet: an EEGNet-style stem makes tokens; a coarse and a fine temporal branch refine them and read each other."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones.layers import Dropout, at_least, attend, gelu_grouped, norm_elu_pool
from bridgemil.backbones.stem import temporal_then_spatial, toeplitz

WIDTH, HEADS = 40, 4


class BranchLayer(nn.Module):
    """x + alpha * (depthwise convolution, then a grouped bottleneck), with alpha from zero."""

    def __init__(self, kernel: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, kernel, padding=kernel // 2, groups=WIDTH, bias=False)
        self.expand = nn.Conv1d(WIDTH, 4 * WIDTH, 1, groups=4, bias=False)
        self.contract = nn.Conv1d(4 * WIDTH, WIDTH, 1, groups=4, bias=False)
        self.bn = nn.BatchNorm1d(WIDTH)
        self.dropout = Dropout(dropout)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """x: N x tokens x 40."""
        kernel = self.depthwise.weight[:, 0]
        along = toeplitz(kernel, x.shape[1], kernel.shape[1] // 2)  # 40 x tokens x tokens
        y = gelu_grouped(torch.einsum("nsc,cst->ntc", x, along), self.expand)
        y = gelu_grouped(y, self.contract)
        return x + self.alpha * self.dropout(self.bn(y.flatten(0, 1)).view(y.shape))


def feed_forward(dropout: float) -> nn.Sequential:
    """40 -> 80 -> 40."""
    expand, contract = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
    return nn.Sequential(OrderedDict(expand=expand, gelu=nn.GELU(), dropout=Dropout(dropout), contract=contract))


class Branch(nn.Module):
    """Two convolution layers, the shared tokens once more, one post-norm attention block."""

    def __init__(self, kernels: tuple[int, int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([BranchLayer(kernel, dropout) for kernel in kernels])
        self.shared_weight = nn.Parameter(torch.ones(()))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=dropout, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ffn = feed_forward(dropout)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: N x tokens x 40."""
        x = tokens
        for layer in self.layers:
            x = layer(x)
        x = x + self.shared_weight * tokens
        x = self.norm1(x + self.dropout(attend(self.attention, x, x, self.dropout)))
        return self.norm2(x + self.dropout(self.ffn(x)))


class CrossDirection(nn.Module):
    """What each direction of the cross-attention has of its own; attention and feed-forward are shared."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.beta = nn.Parameter(torch.ones(()))


class DSAINet(nn.Module):
    """N x C x T -> N x 80."""

    embedding_dim = 2 * WIDTH

    def __init__(self, n_channels: int, n_times: int, dropout: float = 0.25) -> None:
        super().__init__()
        at_least("dsainet", n_times, 32)
        self.temporal = nn.Conv2d(1, 16, (1, 64), bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.spatial = nn.Conv2d(16, 32, (n_channels, 1), groups=16, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.conv = nn.Conv2d(32, 32, (1, 16), bias=False)
        self.bn3 = nn.BatchNorm2d(32)
        self.embed = nn.Linear(32, WIDTH)
        self.positions = nn.Parameter(torch.randn(n_times // 4 // 8, WIDTH))
        self.coarse, self.fine = Branch((11, 15), dropout), Branch((3, 7), dropout)
        self.cross_attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=dropout, batch_first=True)
        self.cross_ffn = feed_forward(dropout)
        self.to_coarse, self.to_fine = CrossDirection(), CrossDirection()
        self.pool = nn.Linear(WIDTH, 1)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows."""
        tokens = self.embed(self._stem(x)) * math.sqrt(WIDTH)
        tokens = self.dropout(tokens + self.positions)
        coarse, fine = self.coarse(tokens), self.fine(tokens)
        both = self._cross(torch.cat([coarse, fine]), torch.cat([fine, coarse]))  # 2N x tokens x 40
        pooled = (torch.softmax(self.pool(both), dim=1) * both).sum(dim=1)
        return torch.cat(pooled.chunk(2), dim=1)

    def _stem(self, x: Tensor) -> Tensor:
        """N x C x T -> N x tokens x 32."""
        u, shift = temporal_then_spatial(x, self.temporal, self.bn1, self.spatial)
        u = self.dropout(norm_elu_pool(u, self.bn2, 4, shift))  # 32 x N x T/4
        last = torch.channels_last
        u = F.pad(u, (7, 8)).transpose(0, 1)[:, :, None].contiguous(memory_format=last)
        u = F.conv2d(u, self.conv.weight.contiguous(memory_format=last))  # N x 32 x 1 x T/4
        u = self.dropout(F.avg_pool2d(F.elu(self.bn3(u), inplace=True), (1, 8)))
        return u[:, :, 0].transpose(1, 2)

    def _cross(self, x: Tensor, other: Tensor) -> Tensor:
        """Cross-attention both ways at once: the first half of x is the coarse side, the second the fine one."""
        sides = (self.to_coarse, self.to_fine)
        read = attend(self.cross_attention, x, other, self.dropout).chunk(2)
        scaled = torch.cat([own.beta * half for own, half in zip(sides, read, strict=True)])
        y = (x + self.dropout(scaled)).chunk(2)
        y = torch.cat([own.norm1(half) for own, half in zip(sides, y, strict=True)])
        out = (y + self.dropout(self.cross_ffn(y))).chunk(2)
        return torch.cat([own.norm2(half) for own, half in zip(sides, out, strict=True)])


def head(embedding_dim: int, n_classes: int, dropout: float = 0.25) -> nn.Module:
    """DSAINet's window classifier."""
    return nn.Sequential(Dropout(dropout), nn.Linear(embedding_dim, n_classes))
