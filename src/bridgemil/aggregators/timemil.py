"""TimeMIL (Chen et al. 2024): a class token reads the windows through two transformer blocks with wavelet positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.aggregators.bags import DROPOUT, BagOutput, without_padding

MOST_WIDTH, MOST_HEADS, N_WAVELETS, KERNEL = 512, 8, 3, 19


class WaveletPositions(nn.Module):
    """Adds to each window what three Mexican-hat filters over its neighbours see; scale and shift per dimension.

    Scales and shifts are drawn at random and independently: equal starts would stay equal for ever.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.raw_scale = nn.Parameter(torch.randn(N_WAVELETS, width))
        self.shift = nn.Parameter(torch.randn(N_WAVELETS, width))
        self.mix = nn.Linear(width, width)

    def forward(self, windows: Tensor) -> Tensor:
        """B x N x D, zero where padded -> B x N x D."""
        scale = F.softplus(self.raw_scale) + 0.01
        x = torch.arange(KERNEL, device=windows.device, dtype=windows.dtype) - KERNEL // 2  # -9 .. 9
        u = (x - self.shift.unsqueeze(-1)) / scale.unsqueeze(-1)  # wavelets x D x 19
        hat = 2 / (math.sqrt(3) * math.pi**0.25) * (1 - u**2) * torch.exp(-(u**2) / 2) / scale.sqrt().unsqueeze(-1)
        kernel = hat.sum(dim=0).unsqueeze(1)  # the sum of three convolutions is one with the sum of their kernels
        seen = F.conv1d(windows.transpose(1, 2), kernel, padding=KERNEL // 2, groups=len(kernel))
        return windows + self.mix(seen.transpose(1, 2))


class Block(nn.Module):
    """Pre-norm self-attention over all valid windows and the token, then a feed-forward layer."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """x: B x (1 + N) x D, valid: B x (1 + N) -> the same, and the token's attention over all, B x (1 + N)."""
        b, n, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # B x heads x n x .
        keys = valid[:, None, None]
        # Dropout acts on what was read, not on the n x n weights: that alone made a step five times slower.
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=keys)
        x = x + self.dropout(self.out(read.transpose(1, 2).reshape(b, n, width)))
        x = x + self.dropout(self.ffn(self.norm2(x)))
        with torch.no_grad():
            scores = (q[:, :, :1] @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])  # B x heads x 1 x n
            weights = torch.softmax(scores.masked_fill(~keys, -torch.inf), dim=-1).mean(dim=1).squeeze(1)
        return x, weights


class TimeMIL(nn.Module):
    """The class token's last representation is classified; its attention over the windows is returned."""

    def __init__(self, embedding_dim: int, n_classes: int, *, dropout: float = DROPOUT) -> None:
        super().__init__()
        width = min(embedding_dim, MOST_WIDTH)
        heads = max(h for h in range(1, MOST_HEADS + 1) if width % h == 0)
        self.project = nn.Linear(embedding_dim, width)
        self.token = nn.Parameter(0.02 * torch.randn(width))
        self.positions = nn.ModuleList([WaveletPositions(width) for _ in range(2)])
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, n_classes))

    def forward(self, embeddings: Tensor, mask: Tensor) -> BagOutput:
        """B x N x d, B x N -> logits B x K."""
        windows = self.project(without_padding(embeddings, mask))  # B x N x D
        token = self.token.expand(len(windows), 1, -1)
        valid = F.pad(mask, (1, 0), value=True)
        weights = windows.new_zeros(valid.shape)
        for positions, block in zip(self.positions, self.blocks, strict=True):
            windows = positions(windows * mask.unsqueeze(-1))
            x, weights = block(torch.cat([token, windows], dim=1), valid)
            token, windows = x[:, :1], x[:, 1:]
        gates = weights[:, 1:] * mask
        return BagOutput(self.head(token.squeeze(1)), gates / gates.sum(dim=1, keepdim=True))
