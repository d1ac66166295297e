"""Which windows BridgeMIL's Stage 1 aligns: nearby windows of one recording, and two sub-bags of one subject.

Windows are numbered through the training fold, subject after subject and recording after recording. All draws of an
epoch come from one generator, so that an epoch is repeated exactly by its seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridgemil.learning.layout import Index, Layout


def nearby(rng: np.random.Generator, layout: Layout, anchors: Index, radius: int = 2) -> Index:
    """A partner for each anchor t: uniform over 0 < |t' - t| <= radius inside the anchor's recording."""
    low = np.maximum(anchors - radius, layout.recording_start[anchors])
    high = np.minimum(anchors + radius, layout.recording_end[anchors] - 1)
    if (high == low).any():
        raise ValueError("an anchor is alone in its recording; take anchors from `with_partner`")
    partner: Index = low + rng.integers(0, high - low)
    return partner + (partner >= anchors)  # skip the anchor itself


def with_partner(layout: Layout) -> Index:
    """The windows that are not alone in their recording."""
    return np.flatnonzero(layout.recording_end - layout.recording_start > 1)


def subbags(rng: np.random.Generator, layout: Layout, subjects: Index, size: int = 8) -> Index:
    """A sub-bag of each named subject, subjects x size: without replacement, with it if there are too few windows."""
    first = layout.subject_start[subjects]
    n = layout.subject_end[subjects] - first
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
