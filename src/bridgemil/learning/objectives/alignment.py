"""BridgeMIL's Stage 1: alignment of nearby windows and of sub-bags, with VICReg's loss on each pair type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil.errors import BadData
from bridgemil.learning.layout import Index
from bridgemil.learning.objectives import pairs
from bridgemil.learning.objectives.objective import Objective, projection
from bridgemil.learning.settings import AlignmentSettings
from bridgemil.learning.window_set import WindowSet, batches, n_batches

EPSILON = 1e-4  # under the square root of the variance


def vicreg_loss(
    z1: Tensor, z2: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0
) -> Tensor:
    """VICReg loss of paired projections (Bardes et al., 2022).

    Parameters
    ----------
    z1, z2 : Tensor of shape (M, d)
        Row i of one is paired with row i of the other.
    invariance : float, default 25.0
        Weight of the mean squared difference (L_inv).
    variance : float, default 25.0
        Weight of the hinge on each dimension's standard deviation (L_var, with gamma = 1).
    covariance : float, default 1.0
        Weight of the squared off-diagonal covariances (L_cov).

    Returns
    -------
    Tensor
        A scalar.
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


Pairs = tuple[Index | None, Index | None]  # nearby windows (2 x M), sub-bags (2 x pairs x size)


class Alignment(Objective):
    """L_S1 = (L_near + L_subbag) / 2, or the one of them that is on."""

    batch_settings = "stage1.batch_windows or stage1.subbag_pairs"

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: AlignmentSettings, device: torch.device
    ) -> None:
        super().__init__(encoder, projection(encoder), train, settings, device)
        self.settings = settings
        self.anchors = pairs.with_partner(train.layout) if settings.nearby else np.arange(len(train))
        if len(self.anchors) < 2:
            raise BadData("no recording has two windows: there are no nearby windows to align")
        self.steps = n_batches(len(self.anchors), settings.batch_windows)

    def batches(self, rng: np.random.Generator) -> Iterator[Pairs]:
        """Every window that has a neighbour is an anchor once; each step has as many sub-bag pairs."""
        chosen, layout = self.settings, self.data.layout
        deck = pairs.subject_deck(rng, len(self.data.subjects), chosen.subbag_pairs)
        for anchors in batches(rng.permutation(self.anchors), chosen.batch_windows):
            near = bags = None
            if chosen.nearby:
                near = np.stack([anchors, pairs.nearby(rng, layout, anchors, chosen.radius)])
            if chosen.subbag:
                subjects = next(deck)
                bags = np.stack([pairs.subbags(rng, layout, subjects, chosen.subbag_size) for _ in range(2)])
            yield near, bags

    def read(self, batch: Pairs) -> list[Tensor | None]:
        """The windows of either pair type: 2 M x *shape and 2 pairs size x *shape, None for one that is off."""
        return [None if numbers is None else self.data.take(numbers.ravel()) for numbers in batch]

    def loss(self, batch: Pairs, windows: Sequence[Tensor | None]) -> Tensor:
        """Each pair type is encoded in one pass, both views together."""
        (near, bags), (near_windows, bag_windows) = batch, windows
        losses = []
        if near is not None and near_windows is not None:
            z = self.head(self.encoder(near_windows.to(self.device)))
            losses.append(self._vicreg(z.view(2, near.shape[1], -1)))
        if bags is not None and bag_windows is not None:
            z = self.head(self.encoder(bag_windows.to(self.device)))
            losses.append(self._vicreg(z.view(*bags.shape, -1).mean(dim=2)))  # a sub-bag is the mean of projections
        return torch.stack(losses).mean()

    def _vicreg(self, z: Tensor) -> Tensor:
        chosen = self.settings
        weights = {"invariance": chosen.invariance, "variance": chosen.variance, "covariance": chosen.covariance}
        return vicreg_loss(z[0], z[1], **weights)
