"""Tangent: log-covariances of every frequency band, averaged over a subject's windows; logistic regressions on them.

The features are those of the covariance backbone's front end. The probabilities of two regressions are averaged: one on
the log-covariances of electrodes, one on log relative band power. Nothing in it is tuned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.baselines.baseline import Baseline
from bridgemil.baselines.classifiers import Average, Classifier, fit_logistic
from bridgemil.cohort.signal import Signal

if TYPE_CHECKING:
    from bridgemil.backbones.covariance import Feature, FrontEnd


class Tangent(Baseline):
    """The front end's log-covariances and band powers, mean over windows; a logistic regression on each."""

    name = "tangent"
    weighs_classes = True
    front_end: FrontEnd

    Settings = Baseline.ReferenceSettings
    settings: Baseline.ReferenceSettings

    def __init__(self, settings: Baseline.ReferenceSettings, signal: Signal) -> None:
        from bridgemil.backbones.covariance import FrontEnd

        super().__init__(settings, signal)
        self.front_end = FrontEnd(signal, settings.reference)
        self.left_out = self.front_end.left_out

    @property
    def features_key(self) -> dict[str, Any]:
        """The front end's."""
        return {"baseline": self.name} | self.front_end.key

    def features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log-covariances of all bands, then log relative band powers; each the mean over windows."""
        import torch

        from bridgemil.backbones.covariance import BLOCK

        front_end = self.front_end
        front_end.check(bag)
        total = np.zeros(front_end.dim)
        for first in range(0, len(bag), BLOCK):
            windows = torch.from_numpy(np.array(bag[first : first + BLOCK], dtype=np.float32))
            total += front_end(windows).numpy().sum(axis=0, dtype=np.float64)
        return total / len(bag)

    @property
    def feature_names(self) -> list[Feature]:
        """The front end's."""
        return self.front_end.names

    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """Two balanced regressions with C = 10, averaged; the seed is not used."""
        parts = (self.front_end.covariance, self.front_end.power)
        slices = [(part.start, part.stop) for part in parts]
        members = [
            fit_logistic(features[:, first:last], y, n_classes, C=10.0, class_weight="balanced", by_root=True)
            for first, last in slices
        ]
        return Average(members, slices, features.shape[1])
