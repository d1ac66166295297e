"""Band power: log relative power per channel and band, averaged over a subject's windows; a classifier on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.baselines.baseline import Baseline
from bridgemil.baselines.classifiers import Classifier, fit_extra_trees, fit_logistic
from bridgemil.cohort.signal import CLINICAL_BANDS, Signal, band_name, rereferenced, some_bands, window_band_power
from bridgemil.errors import BadData

if TYPE_CHECKING:
    from bridgemil.backbones.covariance import Feature

BLOCK = 512  # windows transformed at once, which bounds the memory
LOWEST_RATE = 60  # Hz


class BandPower(Baseline):
    """Log relative band power per channel, mean over windows; a classifier whose settings were fixed in advance."""

    name = "bandpower"
    weighs_classes = False

    class Settings(Baseline.ReferenceSettings):
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
        """The rate and the bands; the features do not depend on the classifier."""
        bands = [list(band) for band in self.bands]
        return {"baseline": self.name, "version": 2, "sfreq": self.signal.sfreq, "bands": bands,
                "reference": self.settings.reference}  # fmt: skip

    @property
    def feature_names(self) -> list[Feature]:
        """Each channel with each band."""
        from bridgemil.backbones.covariance import Feature

        bands = [band_name(band) for band in self.bands]
        return [Feature("power", band, name, name) for name in self.signal.channels for band in bands]

    def window_features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log relative power of each window, shape (n_windows, n_channels * n_bands)."""
        reference = self.settings.reference
        blocks = [rereferenced(bag[first : first + BLOCK], reference) for first in range(0, len(bag), BLOCK)]
        logs = [np.log(window_band_power(block, self.signal.sfreq, self.bands)) for block in blocks]
        return np.concatenate(logs).reshape(len(bag), -1).astype(np.float64)

    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """The chosen classifier on standardised features."""
        if self.settings.classifier == "extra_trees":
            return fit_extra_trees(features, y, n_classes, seed=seed)
        return fit_logistic(features, y, n_classes, C=0.1)
