"""What a bundle keeps of its training subjects: statistics and the out-of-distribution test, no subject's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridgemil.bundle.novelty import TINY, Distance, Floats, NoveltyModel, RecordingFeatures, window_features
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, held_bands
from bridgemil.errors import BadData

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
OUTSIDE = 95.0  # out-of-distribution percentile above which a warning is given
STANDS_OUT = 4.0  # standardised features beyond are named
MOST_ROWS = 64  # of the features' covariance


@dataclass(frozen=True)
class Reference:
    """Statistics of the training subjects; K classes, C channels, B bands."""

    bands: Mapping[str, Band]
    novelty: NoveltyModel
    spreads: Floats  # lowest, median and highest standard deviation of the median electrode, in microvolts
    windows: Floats  # fewest, median and most windows of a subject
    class_power: Floats  # K x quantiles x C x B: log relative band power within each class
    class_shares: Floats  # K x quantiles x B: relative band power in percent, within each class
    covariance_rows: Floats  # r x F: R'R is proportional to the covariance of the model's features; 0 rows: unknown

    def unusual(self, features: RecordingFeatures, channels: Sequence[str], most: int = 3) -> list[str]:
        """Names of the features that are farthest outside of the training subjects' range.

        Parameters
        ----------
        features : RecordingFeatures
            Of one recording.
        channels : sequence of str
            Electrode names, C.
        most : int
            Maximum number of names.
        """
        z = (features.vector - self.novelty.distance.centre) / self.novelty.distance.scale
        names = [f"{band} power at {channel}" for channel in channels for band in self.bands]
        names += [f"relative amplitude of {channel}" for channel in channels]
        names += [f"correlation of {channel} with the other electrodes" for channel in channels]
        largest = np.argsort(-np.abs(z), kind="stable")[:most]
        return [f"{names[i]} {'high' if z[i] > 0 else 'low'}" for i in largest if abs(z[i]) > STANDS_OUT]

    def tensors(self) -> dict[str, Floats]:
        """All arrays by name, as a bundle stores them."""
        novelty = self.novelty
        parts = {name: getattr(novelty.distance, name) for name in _DISTANCE}
        parts |= {"lengths": novelty.lengths, "quantiles": novelty.quantiles}
        parts |= {name: getattr(self, name) for name in _ARRAYS}
        return {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats], bands: Mapping[str, Sequence[float]]) -> Reference:
        """Inverse of ``tensors``."""
        try:
            parts = {name: tensors[name] for name in _DISTANCE}
            distance = Distance(**parts | {"residual": float(parts["residual"][0])})  # type: ignore[arg-type]
            novelty = NoveltyModel(distance, tensors["lengths"], tensors["quantiles"])
            rest = {name: tensors[name] for name in _ARRAYS}
            edges = {str(name): (float(low), float(high)) for name, (low, high) in bands.items()}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadData(f"the bundle's reference is damaged ({error!r})") from None
        return cls(edges, novelty, **rest)


_DISTANCE = ("centre", "scale", "mean", "directions", "variances", "residual")
_ARRAYS = ("spreads", "windows", "class_power", "class_shares", "covariance_rows")


def make_reference(cohort: Cohort, features: Floats | None = None) -> Reference:
    """Compute the reference statistics of a cohort.

    Parameters
    ----------
    cohort : Cohort
        The training subjects.
    features : ndarray of shape (S, F), optional
        Mean features of each subject, as the model's first layer computes them, if they have names: patterns are
        computed over their covariance.
    """
    held, _ = held_bands(CLINICAL_BANDS, cohort.signal)
    bands = {name: (float(low), float(high)) for name, (low, high) in held.items()}  # as they are read back
    subjects, segments, counts = [], [], []
    for subject in cohort.subjects:
        windows = window_features(cohort.windows(subject), cohort.sfreq, bands)
        subjects.append(windows.recording())
        segments.append(windows.segments())
        counts.append(len(windows.deviation))
    members = [[p for p, y in zip(subjects, cohort.y, strict=True) if y == k] for k in range(len(cohort.classes))]
    power, shares = (
        np.stack([np.quantile([getattr(p, part) for p in each], QUANTILES, axis=0) for each in members])
        for part in ("power", "shares")
    )
    spreads = np.array([subject.spread for subject in subjects])
    return Reference(
        bands, NoveltyModel.fit(segments, counts), _summary(spreads), _summary(np.array(counts, dtype=np.float64)),
        power, shares, _covariance_rows(features),
    )  # fmt: skip


def _covariance_rows(features: Floats | None) -> Floats:
    """Main directions of the subjects' features, scaled by the standard deviation along them."""
    if features is None or len(features) < 2:
        return np.zeros((0, 0 if features is None else features.shape[1]))
    _, lengths, directions = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    rows: Floats = lengths[:MOST_ROWS, None] * directions[:MOST_ROWS] / np.sqrt(len(features) - 1)
    return rows[lengths[:MOST_ROWS] > TINY]


def _summary(values: Floats) -> Floats:
    return np.array([values.min(), np.median(values), values.max()])
