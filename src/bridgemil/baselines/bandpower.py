"""Band power: log relative power per channel and band, averaged over a subject's windows; a classifier on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

BANDS = {"delta": (1, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30), "gamma": (30, 45)}  # Hz
BLOCK = 512  # windows transformed at once, which bounds the memory


def features(bag: NDArray[np.float32], sfreq: float) -> NDArray[np.float64]:
    """The subject's feature vector: channels x bands, flattened. ``bag`` is windows x channels x time."""
    from scipy.signal import periodogram

    if sfreq < 60:
        raise BadData(f"band power needs windows sampled at 60 Hz or more, got {sfreq:g} Hz")
    total = np.zeros((bag.shape[1], len(BANDS)))
    for first in range(0, len(bag), BLOCK):
        frequency, density = periodogram(bag[first : first + BLOCK], sfreq, window="hann", axis=-1)
        bands = [density[..., (frequency >= low) & (frequency < high)].sum(axis=-1) for low, high in BANDS.values()]
        power = np.stack(bands, axis=-1) + 1e-12  # windows x channels x bands
        total += np.log(power / power.sum(axis=-1, keepdims=True)).sum(axis=0)
    return (total / len(bag)).ravel()


def classifier(kind: Literal["logistic", "extra_trees"] = "logistic", seed: int = 0) -> Pipeline:
    """Standardised features into a classifier; its settings are fixed in advance, not tuned.

    ``logistic`` is a regularised logistic regression, ``extra_trees`` a forest of randomised trees, which the
    seed decides.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "extra_trees":
        return make_pipeline(StandardScaler(), ExtraTreesClassifier(500, random_state=seed))
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=5000))
