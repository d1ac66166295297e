"""BridgeMIL's Stage 1: alignment of nearby windows and of sub-bags, with the VICReg loss on each pair type.

Nearby windows are of one recording, two sub-bags of one subject. All draws of an epoch come from one generator, so that
an epoch is repeated exactly by its seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bridgemil.errors import BadData
from bridgemil.learning.data import Index, Layout, WindowSet, batches
from bridgemil.learning.objectives.objective import Objective
from bridgemil.learning.settings import AlignmentSettings

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
        hinge = F.relu(1 - torch.sqrt(z.var(dim=0) + EPSILON)).mean()  # of unbiased variances
        centred = z - z.mean(dim=0)
        matrix = centred.T @ centred / (len(z) - 1)  # d x d
        off_diagonal = matrix - torch.diag(matrix.diagonal())
        loss = loss + variance * hinge + covariance * (off_diagonal.square().sum() / z.shape[1])
    return loss


def nearby(rng: np.random.Generator, layout: Layout, anchors: Index, radius: int = 2) -> Index:
    """A partner for each anchor t of ``with_partner``: uniform over 0 < |t' - t| <= radius inside its recording."""
    low = np.maximum(anchors - radius, layout.recording_start[anchors])
    high = np.minimum(anchors + radius, layout.recording_end[anchors] - 1)
    partner: Index = low + rng.integers(0, high - low)
    return partner + (partner >= anchors)  # skip the anchor itself


def with_partner(layout: Layout) -> Index:
    """The windows that are not alone in their recording."""
    return np.flatnonzero(layout.recording_end - layout.recording_start > 1)


def subbags(rng: np.random.Generator, layout: Layout, subjects: Index, size: int = 8) -> Index:
    """A sub-bag of each named subject, subjects x size: without replacement, with it if there are too few windows."""
    first = layout.bounds[subjects]
    n = layout.bounds[subjects + 1] - first
    drawn = rng.integers(0, n[:, None], size=(len(subjects), size))
    plenty = n >= size
    # Without replacement: draw among those left, then step over what is taken, from the smallest up.
    for k in range(size) if plenty.any() else ():
        place = rng.integers(0, np.maximum(n[plenty] - k, 1))
        for taken in np.sort(drawn[plenty, :k], axis=1).T:
            place = place + (place >= taken)
        drawn[plenty, k] = place
    return drawn + first[:, None]


def subject_deck(rng: np.random.Generator, n_subjects: int, n_pairs: int) -> Iterator[Index]:
    """For ever, the subjects of the next ``n_pairs`` pairs: shuffled, every subject once before any twice."""
    deck = np.empty(0, dtype=np.int64)
    while True:
        while len(deck) < n_pairs:
            deck = np.concatenate([deck, rng.permutation(n_subjects)])
        yield deck[:n_pairs]
        deck = deck[n_pairs:]


Pairs = tuple[Index | None, Index | None]  # nearby windows (2 x M), sub-bags (2 x pairs x size)


class Alignment(Objective):
    """L_S1 = (L_near + L_subbag) / 2, or the one of them that is on; both pair types share one projection."""

    batch_settings = "stage1.batch_windows or stage1.subbag_pairs"

    settings: AlignmentSettings

    def choose_anchors(self, train: WindowSet, settings: AlignmentSettings) -> Index:
        """The windows that have a neighbour, where nearby windows are aligned."""
        anchors = with_partner(train.layout) if settings.nearby else np.arange(len(train))
        if len(anchors) < 2:
            raise BadData("no recording has two windows: there are no nearby windows to align")
        return anchors

    def batches(self, rng: np.random.Generator) -> Iterator[Pairs]:
        """Every window that has a neighbour is an anchor once; each step has as many sub-bag pairs."""
        chosen, layout = self.settings, self.data.layout
        deck = subject_deck(rng, len(self.data.subjects), chosen.subbag_pairs)
        for anchors in batches(rng.permutation(self.anchors), chosen.batch_windows):
            near = bags = None
            if chosen.nearby:
                near = np.stack([anchors, nearby(rng, layout, anchors, chosen.radius)])
            if chosen.subbag:
                subjects = next(deck)
                bags = np.stack([subbags(rng, layout, subjects, chosen.subbag_size) for _ in range(2)])
            yield near, bags

    def read(self, batch: Pairs) -> list[Tensor | None]:
        """The windows of either pair type: 2 M x *shape and 2 pairs size x *shape, None for one that is off."""
        return [None if numbers is None else self.data.take(numbers.ravel()) for numbers in batch]

    def loss(self, batch: Pairs, windows: Sequence[Tensor | None], rng: np.random.Generator) -> Tensor:
        """Each pair type is encoded in one pass, both views together."""
        losses, weights = [], self.settings.model_dump(include={"invariance", "variance", "covariance"})
        for numbers, inputs in zip(batch, windows, strict=True):
            if numbers is not None and inputs is not None:
                z = self.model(inputs.to(self.device)).view(*numbers.shape, -1)  # 2 x M x d, 2 x pairs x size x d
                first, second = z.mean(dim=2) if z.ndim == 4 else z  # a sub-bag is the mean of its projections
                losses.append(vicreg_loss(first, second, **weights))
        return torch.stack(losses).mean()
