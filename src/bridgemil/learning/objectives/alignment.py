"""BridgeMIL's Stage 1: alignment of nearby windows and of sub-bags, with VICReg's loss on each pair type."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-4  # under the square root of the variance


def vicreg_loss(
    z1: Tensor, z2: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0
) -> Tensor:
    """The loss of one pair type: paired projections z1, z2 (M x d), row i of one belonging to row i of the other.

    invariance is the mean squared difference (L_inv); variance keeps each dimension's standard deviation near one
    (L_var, with gamma = 1); covariance keeps dimensions from repeating each other (L_cov).
    """
    if z1.shape != z2.shape or z1.ndim != 2 or len(z1) < 2:
        raise ValueError(f"expected two M x d arrays with M >= 2, got {tuple(z1.shape)} and {tuple(z2.shape)}")
    loss = invariance * F.mse_loss(z1, z2)
    for z in (z1, z2):
        loss = loss + variance * _variance(z) + covariance * _covariance(z)
    return loss


def _variance(z: Tensor) -> Tensor:
    deviation = torch.sqrt(z.var(dim=0) + EPSILON)  # unbiased
    return F.relu(1 - deviation).mean()


def _covariance(z: Tensor) -> Tensor:
    centred = z - z.mean(dim=0)
    matrix = centred.T @ centred / (len(z) - 1)  # d x d
    off_diagonal = matrix - torch.diag(matrix.diagonal())
    return off_diagonal.square().sum() / z.shape[1]
