"""LCADNet: two 3 x 3 convolutions over electrodes x time with a wide max-pool between.

ReLU and max-pool commute, and only a pool's winner passes a gradient on. So the winners are found without a graph, a
few windows at a time, and the first convolution's gradient is gathered from their 3 x 3 patches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.backbones.layers import Dropout, at_least, full_precision

POOL = (2, 21)
WINDOWS_AT_ONCE = 8  # their feature maps fit the cache


class LCADNet(nn.Module):
    """N x C x T -> N x (10 x electrodes x time after pooling)."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        at_least("lcadnet", n_times, 65, n_channels, 8)
        self.embedding_dim = 10 * ((n_channels - 2) // POOL[0] - 2) * ((n_times - 2) // POOL[1] - 2)
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Embed windows; the electrodes' order matters."""
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.conv1.weight, self.conv1.bias
            pooled = _ConvPool.apply(x.to(weight.dtype), weight, bias)  # N x 20 x C' x T'
        return F.relu(self.conv2(F.relu(pooled))).flatten(1)


class _ConvPool(torch.autograd.Function):
    """``max_pool2d(conv2d(x, weight, bias), POOL)`` of windows x (N x C x T) for a 3 x 3 kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        last = torch.channels_last
        kernel = weight.contiguous(memory_format=last)
        parts = []
        for windows in x[:, None].split(WINDOWS_AT_ONCE):
            maps = F.conv2d(windows.contiguous(memory_format=last), kernel, bias)
            parts.append(F.max_pool2d(maps, POOL, return_indices=True))
        pooled, winners = (torch.cat(values).contiguous() for values in zip(*parts, strict=True))
        row, column = winners // (x.shape[2] - 2), winners % (x.shape[2] - 2)
        corners = row * x.shape[2] + column  # where each winner's patch begins in a window
        ctx.save_for_backward(x, weight, corners.flatten(1))
        return pooled

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight, corners = ctx.saved_tensors
        n, n_filters = grad.shape[:2]
        flat, grad = x.reshape(n, -1), grad.reshape(n, n_filters, -1)
        grad_weight, grad_x = torch.empty_like(weight), torch.zeros_like(flat) if ctx.needs_input_grad[0] else None
        for i in range(3):
            for j in range(3):
                places = corners + (i * x.shape[2] + j)
                patch = flat.gather(1, places).view_as(grad)
                grad_weight[:, 0, i, j] = (grad * patch).sum(dim=(0, 2))
                if grad_x is not None:
                    grad_x.scatter_add_(1, places, (grad * weight[:, 0, i, j, None]).flatten(1))
        return None if grad_x is None else grad_x.view_as(x), grad_weight, grad.sum(dim=(0, 2))


def head(embedding_dim: int, n_classes: int, dropout: float = 0.25) -> nn.Module:
    """LCADNet's window classifier."""
    return nn.Sequential(
        nn.Linear(embedding_dim, 50), nn.ReLU(), Dropout(dropout),
        nn.Linear(50, 80), nn.ReLU(), Dropout(dropout),
        nn.Linear(80, n_classes),
    )  # fmt: skip
