"""Masked reconstruction: stretches of every channel are set to zero and must be predicted from the rest."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.backbones import embedding_dim
from bridgemil.errors import BadUse
from bridgemil.learning.data import Index, WindowSet
from bridgemil.learning.objectives.objective import Objective

SPAN, SHARE = 16, 0.15


def span_mask(n: int, n_channels: int, n_times: int, generator: torch.Generator | None = None) -> Tensor:
    """Which samples to hide, N x C x T: per channel and window, max(1, round(.15 T / 16)) spans that do not overlap.

    Every placement of the spans is equally likely: k distinct numbers below T - 15 k, sorted, are the spans' starts
    once each span is shrunk to a point.
    """
    n_spans = max(1, round(SHARE * n_times / SPAN))
    places = n_times - (SPAN - 1) * n_spans
    if places < n_spans:
        raise ValueError(f"windows of {n_times} samples are too short for {n_spans} masked spans of {SPAN}")
    device = None if generator is None else generator.device
    starts = torch.empty(n, n_channels, 0, dtype=torch.int64, device=device)
    for k in range(n_spans):
        place = torch.randint(places - k, (n, n_channels, 1), generator=generator, device=device)
        for taken in starts.sort(dim=2).values.unbind(dim=2):
            place = place + (place >= taken.unsqueeze(2))
        starts = torch.cat([starts, place], dim=2)
    starts = starts.sort(dim=2).values + (SPAN - 1) * torch.arange(n_spans, device=device)
    time = torch.arange(n_times, device=device)
    inside = (time >= starts.unsqueeze(3)) & (time < starts.unsqueeze(3) + SPAN)  # N x C x spans x T
    return inside.any(dim=2)


def masked_loss(reconstruction: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    """Mean squared error on the hidden samples only."""
    return (reconstruction.view_as(x) - x)[mask].square().mean()


def reconstruction_head(embedding_dim: int, n_channels: int, n_times: int) -> nn.Module:
    """d -> min(512, 4 d) -> C T."""
    hidden = min(512, 4 * embedding_dim)
    return nn.Sequential(nn.Linear(embedding_dim, hidden), nn.GELU(), nn.Linear(hidden, n_channels * n_times))


class Masked(Objective):
    """Every window once an epoch, with spans of it hidden."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """A reconstruction of the window; refuses features, which have no samples."""
        if len(train.shape) != 2:
            raise BadUse(
                f"masked reconstruction hides stretches of time, but backbone {backbone} is given {train.shape[0]} "
                "features of a window, in which there is no time; choose another method or another backbone"
            )
        return reconstruction_head(embedding_dim(encoder), *train.shape)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Error on the hidden samples."""
        x = windows.to(self.device)
        mask = span_mask(*x.shape).to(self.device)
        return masked_loss(self.model(x.masked_fill(mask, 0)), x, mask)
