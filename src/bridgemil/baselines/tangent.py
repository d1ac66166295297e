"""Tangent: log-covariances of every frequency band, averaged over a subject's windows; logistic regressions on them.

The features are those of the covariance backbone's front end. Two regressions vote with equal weight: one on the
log-covariances (how electrodes move together), one on log relative band power. Nothing in it is tuned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.baselines.baseline import Baseline, Signal
from bridgemil.baselines.classifiers import Average, Classifier, fit_logistic
from bridgemil.errors import BadUse

if TYPE_CHECKING:
    from bridgemil.backbones.covariance import FrontEnd


class Tangent(Baseline):
    """The front end's log-covariances and band powers, mean over windows; a logistic regression on each."""

    name = "tangent"
    about = "logistic regression on log-covariances and on band power: the second floor"

    class Settings(Baseline.Settings):
        """``bands``: "all", or "held" to leave out those that the recordings' native rate cannot hold."""

        bands: Literal["all", "held"] = "all"

    settings: Settings

    def __init__(self, settings: Settings, signal: Signal) -> None:
        from bridgemil.backbones.covariance import choose_bands
        from bridgemil.backbones.electrodes import thin

        super().__init__(settings, signal)
        self.bands, self.left_out = choose_bands(settings.bands, signal.sfreq, signal.native_sfreq)
        self.used = thin(signal.channels)
        self._front_end: FrontEnd | None = None

    @property
    def features_key(self) -> dict[str, Any]:
        """The front end's version, electrodes and bands."""
        from bridgemil.backbones.covariance import VERSION

        bands = [list(band) for band in self.bands]
        rate = self.signal.sfreq
        return {"baseline": self.name, "version": VERSION, "sfreq": rate, "bands": bands, "used": list(self.used)}

    def features(self, bag: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log-covariances of all bands, then log relative band powers; each the mean over windows."""
        import torch

        from bridgemil.backbones.covariance import BLOCK
        from bridgemil.backbones.electrodes import check_windows

        if bag.ndim != 3 or bag.shape[1] != len(self.signal.channels):
            expected = f"windows x {len(self.signal.channels)} channels x time"
            raise BadUse(f"expected {expected}, got {' x '.join(map(str, bag.shape))}")
        front_end = self._front_end_for(bag.shape[2])
        whole = len(self.used) == bag.shape[1]
        check_windows(bag if whole else bag[:, list(self.used)], front_end.electrodes)
        total = np.zeros(front_end.dim)
        for first in range(0, len(bag), BLOCK):
            windows = torch.from_numpy(np.array(bag[first : first + BLOCK], dtype=np.float32))
            total += front_end(windows).numpy().sum(axis=0, dtype=np.float64)
        return total / len(bag)

    def fit(self, features: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, seed: int) -> Classifier:
        """Two balanced regressions with C = 10, averaged; the seed decides nothing."""
        n_features, n_used = features.shape[1], len(self.used)
        n_bands = n_features // (n_used * (n_used + 1) // 2 + n_used)  # short windows may hold fewer than the rate does
        n_covariance = n_features - n_bands * n_used
        slices = [(0, n_covariance), (n_covariance, n_features)]
        members = [
            fit_logistic(features[:, first:last], y, n_classes, C=10.0, class_weight="balanced", by_root=True)
            for first, last in slices
        ]
        return Average(members, slices, n_features)

    def _front_end_for(self, n_times: int) -> FrontEnd:
        from bridgemil.backbones.covariance import FrontEnd

        if self._front_end is None or self._front_end.n_times != n_times:
            signal = self.signal
            self._front_end = FrontEnd(signal.channels, n_times, signal.sfreq, signal.native_sfreq, self.settings.bands)
        return self._front_end
