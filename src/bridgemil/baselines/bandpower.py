"""Band power: log relative power per channel and band, averaged over a subject's windows; a classifier on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.baselines.baseline import Baseline
from bridgemil.baselines.classifiers import Classifier, fit_extra_trees, fit_logistic
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, Signal, some_bands, window_band_power
from bridgemil.errors import BadData

BLOCK = 512  # windows transformed at once, which bounds the memory
LOWEST_RATE = 60  # Hz


class BandPower(Baseline):
    """Log relative band power per channel, mean over windows; a classifier whose settings were fixed in advance."""

    name = "bandpower"
    about = "logistic regression on band power: a baseline"
    weighs_classes = False

    class Settings(Baseline.Settings):
        """``classifier``: a regularised logistic regression, or a forest of randomised trees."""

        classifier: Literal["logistic", "extra_trees"] = "logistic"

    settings: Settings

    def __init__(self, settings: Settings, signal: Signal) -> None:
        super().__init__(settings, signal)
        if signal.sfreq < LOWEST_RATE:
            raise BadData(f"band power needs windows sampled at {LOWEST_RATE} Hz or more, got {signal.sfreq:g} Hz")
        held, self.left_out = some_bands(CLINICAL_BANDS, signal)
        self.bands = tuple(held.values())

    @property
    def features_key(self) -> dict[str, Any]:
        """The rate and the bands; the classifier has no part in the features."""
        bands = [list(band) for band in self.bands]
        return {"baseline": self.name, "version": 1, "sfreq": self.signal.sfreq, "bands": bands}

    def features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Channels x bands, flattened."""
        return features(bag, self.signal.sfreq, self.bands)

    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """The chosen classifier on standardised features."""
        if self.settings.classifier == "extra_trees":
            return fit_extra_trees(features, y, n_classes, seed=seed)
        return fit_logistic(features, y, n_classes, C=0.1)


def features(bag: NDArray[np.float32], sfreq: float, bands: Sequence[Band]) -> NDArray[np.float64]:
    """The subject's feature vector: channels x bands, flattened.

    Parameters
    ----------
    bag
        Windows x channels x time, in microvolt.
    sfreq
        Rate of the windows, in Hz.
    bands
        Low and high edge of each, in Hz.
    """
    total = np.zeros((bag.shape[1], len(bands)))
    for first in range(0, len(bag), BLOCK):
        total += np.log(window_band_power(bag[first : first + BLOCK], sfreq, bands)).sum(axis=0)
    return (total / len(bag)).ravel()
