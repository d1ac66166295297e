"""Supervised contrastive learning (Khosla et al. 2020): windows of one inherited diagnosis are pulled together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bridgemil.learning.data import Index, batches
from bridgemil.learning.objectives.objective import Objective


def supcon_loss(z1: Tensor, z2: Tensor, labels: Tensor, *, temperature: float = 0.07) -> Tensor:
    """Supervised contrastive loss of two augmented views of N windows (Khosla et al., 2020).

    Every view is an anchor; its positives are the other views with its label, including its own second view. The loss
    is minus the mean log-probability of an anchor's positives, averaged over the 2N anchors.

    Parameters
    ----------
    z1, z2 : Tensor of shape (N, d)
        Projections of the two views; normalised here.
    labels : Tensor of shape (N,)
        Labels of the windows.
    temperature : float, default 0.07
        Of the softmax over similarities.

    Returns
    -------
    Tensor
        A scalar.
    """
    if z1.shape != z2.shape or z1.ndim != 2 or labels.shape != (len(z1),):
        got = tuple(z1.shape), tuple(z2.shape), tuple(labels.shape)
        raise ValueError(f"expected two N x d arrays and N labels, got {got}")
    z = F.normalize(torch.cat([z1, z2]), dim=1)  # 2N x d
    both = torch.cat([labels, labels])
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (z @ z.T / temperature).masked_fill(itself, -torch.inf)
    log_probability = similarity - similarity.logsumexp(dim=1, keepdim=True)
    positive = (both[:, None] == both[None]) & ~itself
    total = log_probability.masked_fill(~positive, 0).sum(dim=1)
    return -(total / positive.sum(dim=1)).mean()


def augment(x: Tensor) -> Tensor:
    """A random view of windows: jitter, scaling and a circular shift, each on half of the windows.

    Jitter has 5 % of the channel's own standard deviation, the scale is uniform in 0.8-1.2, the shift in +-5 % of T.
    Features of windows are jittered only, with 5 % of the standard deviation over the window's own features: logarithms
    of covariances do not scale with the signal, and have no time to shift. x is N x C x T, or features N x F.
    """
    if x.ndim == 2:
        jitter = torch.rand((len(x), 1), device=x.device) < 0.5
        noise = torch.randn(x.shape, device=x.device, dtype=x.dtype)
        return x + jitter * 0.05 * x.std(dim=1, keepdim=True) * noise
    n, _, n_times = x.shape
    per_window = (n, 1, 1)
    jitter, scaling, shifting = torch.rand((3, *per_window), device=x.device) < 0.5
    noise = torch.randn(x.shape, device=x.device, dtype=x.dtype)
    view = x + jitter * 0.05 * x.std(dim=2, keepdim=True) * noise
    scale = 0.8 + 0.4 * torch.rand(per_window, device=x.device, dtype=x.dtype)
    view = torch.where(scaling, view * scale, view)
    most = int(0.05 * n_times)
    shift = torch.randint(-most, most + 1, per_window, device=x.device) * shifting
    source = (torch.arange(n_times, device=x.device) - shift) % n_times  # N x 1 x T
    return view.gather(2, source.expand_as(view))


class SupCon(Objective):
    """Two views of every drawn window; classes are drawn evenly."""

    def batches(self, rng: np.random.Generator) -> Iterator[Index]:
        """As many draws as windows, with replacement, by inverse class frequency."""
        share = 1 / torch.bincount(self.labels)[self.labels].double().numpy()
        drawn = rng.choice(len(self.labels), len(self.labels), p=share / share.sum())
        return batches(drawn, self.settings.batch_windows)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Both views are encoded in one pass."""
        x = windows.to(self.device)
        z1, z2 = self.model(torch.cat([augment(x), augment(x)])).chunk(2)
        return supcon_loss(z1, z2, self.labels[torch.from_numpy(batch)].to(self.device))
