"""Supervised contrastive learning (Khosla et al. 2020): windows of one inherited diagnosis are pulled together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def supcon_loss(z1: Tensor, z2: Tensor, labels: Tensor, *, temperature: float = 0.07) -> Tensor:
    """The loss of two augmented views z1, z2 (N x d, normalised here) of N windows with these labels (N).

    Every view is an anchor; its positives are the other views with its label, among them its own twin. The loss is
    minus the mean log-probability of an anchor's positives, averaged over the 2N anchors.
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
