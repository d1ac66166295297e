"""What every aggregator returns, and the sums over a bag that leave padding out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DROPOUT = 0.1


@dataclass(frozen=True)
class BagOutput:
    """Subject logits and where they come from."""

    logits: Tensor  # B x K
    gates: Tensor  # B x N, how much each window counts; 0 where masked
    contributions: Tensor | None = None  # B x N x K that sum to the logits, where the aggregator has them


def without_padding(embeddings: Tensor, mask: Tensor) -> Tensor:
    """The embeddings with zeros where masked, whatever stood there; a bag without any valid window is an error."""
    if embeddings.ndim != 3 or mask.shape != embeddings.shape[:2] or mask.dtype != torch.bool:
        got = f"{tuple(embeddings.shape)} and {tuple(mask.shape)} of {mask.dtype}"
        raise ValueError(f"expected embeddings B x N x d and a Boolean mask B x N, got {got}")
    if not bool(mask.any(dim=1).all()):
        raise ValueError("a bag has no valid window")
    return embeddings.masked_fill(~mask.unsqueeze(-1), 0)


def bag_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the valid windows of values that are zero elsewhere: B x N x d -> B x d."""
    return values.sum(dim=1) / mask.sum(dim=1, keepdim=True)


def sinusoid(n_positions: int, dim: int, like: Tensor) -> Tensor:
    """Fixed sinusoidal positions, n x d: sine in even dimensions, cosine in odd ones."""
    position = torch.arange(n_positions, device=like.device, dtype=torch.float32).unsqueeze(1)
    even = torch.arange(0, dim, 2, device=like.device, dtype=torch.float32)
    angle = position * torch.exp(even * (-math.log(10_000.0) / dim))  # n x ceil(d / 2)
    waves = torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :dim]
    return waves.to(like.dtype)
