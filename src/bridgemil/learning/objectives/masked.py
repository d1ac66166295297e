"""Masked reconstruction: stretches of every channel are set to zero and must be predicted from the rest."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.backbones import embedding_dim
from bridgemil.learning.data import Index, WindowSet
from bridgemil.learning.objectives.objective import Objective

SPAN, SHARE = 16, 0.15


def span_mask(n: int, n_channels: int, n_times: int) -> Tensor:
    """Which samples to hide, N x C x T: per channel and window, max(1, round(.15 T / 16)) spans that do not overlap.

    Every placement of the spans is equally likely: k distinct numbers below T - 15 k, sorted, are the spans' starts
    once each span is shrunk to a point.
    """
    n_spans = max(1, round(SHARE * n_times / SPAN))
    places = n_times - (SPAN - 1) * n_spans
    if places < n_spans:
        raise ValueError(f"windows of {n_times} samples are too short for {n_spans} masked spans of {SPAN}")
    starts = torch.empty(n, n_channels, 0, dtype=torch.int64)
    for k in range(n_spans):
        place = torch.randint(places - k, (n, n_channels, 1))
        for taken in starts.sort(dim=2).values.unbind(dim=2):
            place = place + (place >= taken.unsqueeze(2))
        starts = torch.cat([starts, place], dim=2)
    starts = starts.sort(dim=2).values + (SPAN - 1) * torch.arange(n_spans)
    time = torch.arange(n_times)
    inside = (time >= starts.unsqueeze(3)) & (time < starts.unsqueeze(3) + SPAN)  # N x C x spans x T
    return inside.any(dim=2)


class Masked(Objective):
    """Every window once an epoch, with spans of it hidden."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """A reconstruction of the window, d -> min(512, 4 d) -> C T."""
        dim, (n_channels, n_times) = embedding_dim(encoder), train.shape
        hidden = min(512, 4 * dim)
        return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, n_channels * n_times))

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Mean squared error on the hidden samples only."""
        x = windows.to(self.device)
        mask = span_mask(*x.shape).to(self.device)
        reconstruction = self.model(x.masked_fill(mask, 0)).view_as(x)
        return (reconstruction - x)[mask].square().mean()
