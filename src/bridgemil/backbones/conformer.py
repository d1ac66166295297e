"""EEG Conformer (Song et al. 2023): a shallow convolution makes tokens, four transformer blocks relate them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones.layers import BatchNorm, Dropout, absorb, at_least
from bridgemil.errors import BadUse

WIDTH, HEADS = 40, 10


class EncoderBlock(nn.Module):
    """Pre-norm self-attention and feed-forward."""

    def __init__(self, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale = scale
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: N x tokens x 40."""
        n, t, d = x.shape
        h = self.norm1(x)
        weight = torch.cat([self.query.weight / self.scale, self.key.weight, self.value.weight])
        bias = torch.cat([self.query.bias / self.scale, self.key.bias, self.value.bias])
        q, k, v = F.linear(h, weight, bias).view(n, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)  # N x heads x t x 4
        weights = self.dropout(torch.softmax(q @ k.transpose(-1, -2), dim=-1))
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(n, t, d)))
        return x + self.dropout(self.contract(self.dropout(F.gelu(self.expand(self.norm2(x))))))


class Conformer(nn.Module):
    """N x C x T -> N x 40 tokens, flattened; a token is 75 samples long and there is one every 15.

    ``attention_scale``: "width" divides by sqrt(40) as the original does, "head" by the square root of the head size.
    """

    def __init__(self, n_channels: int, n_times: int, dropout: float = 0.25, attention_scale: str = "width") -> None:
        super().__init__()
        at_least("conformer", n_times, 99)
        if attention_scale not in ("width", "head"):
            raise BadUse(f"attention_scale must be 'width' or 'head', got {attention_scale!r}")
        n_tokens = (n_times - 24 - 75) // 15 + 1
        self.embedding_dim = WIDTH * n_tokens
        self.temporal = nn.Conv2d(1, WIDTH, (1, 25))
        self.spatial = nn.Conv2d(WIDTH, WIDTH, (n_channels, 1))
        self.bn = nn.BatchNorm2d(WIDTH)
        self.project = nn.Conv2d(WIDTH, WIDTH, 1)
        scale = math.sqrt({"width": WIDTH, "head": WIDTH // HEADS}[attention_scale])
        self.blocks = nn.ModuleList([EncoderBlock(scale, dropout) for _ in range(4)])
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows."""
        # Nothing stands between the two convolutions: they are one, with kernel sum_i spatial[o,i,c] temporal[i,k].
        spatial, temporal = self.spatial.weight[..., 0], self.temporal.weight[:, 0, 0]  # o x i x c, i x k
        kernel = torch.einsum("oic,ik->ock", spatial, temporal)
        bias = self.spatial.bias + spatial.sum(dim=2) @ self.temporal.bias  # type: ignore[operator]
        last = torch.channels_last  # electrodes side by side in memory: twice as fast on the CPU
        u = F.conv2d(x[:, :, None].contiguous(memory_format=last), kernel[:, :, None].contiguous(memory_format=last))
        u = self.dropout(
            F.avg_pool2d(F.elu(self._norm(u, bias), inplace=True), (1, 75), (1, 15))
        )  # N x 40 x 1 x tokens
        tokens = F.linear(u[:, :, 0].transpose(1, 2), self.project.weight.flatten(1), self.project.bias)
        for block in self.blocks:
            tokens = block(tokens)
        return tokens.flatten(1)

    def _norm(self, u: Tensor, shift: Tensor) -> Tensor:
        """``bn(u + shift)``."""
        norm: BatchNorm = self.bn
        bias = absorb(norm, shift)
        if norm.training:
            norm.num_batches_tracked.add_(1)
        statistics = norm.running_mean, norm.running_var
        return F.batch_norm(u, *statistics, norm.weight, bias, norm.training, norm.momentum, norm.eps)


def head(embedding_dim: int, n_classes: int, dropout: float = 0.25) -> nn.Module:
    """The Conformer's window classifier."""
    return nn.Sequential(
        nn.Linear(embedding_dim, 256), nn.ELU(), Dropout(dropout),
        nn.Linear(256, 32), nn.ELU(), Dropout(dropout),
        nn.Linear(32, n_classes),
    )  # fmt: skip
