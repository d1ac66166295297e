"""How like the training people a new person is: a stated test, kept as a few arrays without anybody's own data.

A person's *features* do not depend on the amplifier's gain: log relative band power, how the spread is shared among
electrodes, and how each electrode moves with the others. They are standardised by median and median deviation of the
training people. The *distance* weighs two parts equally: along the main directions in which the training people differ
(each by its variance), and what those leave out. A new person's distance is given as a percentile of the distances of
the training people, each measured by a reference that was made without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.signal import Signal
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadData

Floats = NDArray[np.float64]

Band = tuple[float, float]  # Hz
BANDS: dict[str, Band] = {"delta": (1, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30), "gamma": (30, 45)}
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
UNUSUAL = 95.0  # percentile above which a person is called unlike the training people
MOST_DIRECTIONS, PEOPLE_A_DIRECTION = 8, 5
MOST_ROUNDS = 100  # of leaving out: one person at a time, or a hundredth of many
FARTHEST = 10.0  # standardised features beyond are no farther
STANDS_OUT = 4.0  # standardised features beyond are named
BLOCK = 512  # windows looked at together
TINY = 1e-12
MOST_ROWS = 64  # of the features' covariance


@dataclass(frozen=True)
class PersonFeatures:
    """One person's features, C channels and B bands."""

    power: Floats  # log relative band power, mean over windows; C x B
    share: Floats  # log spread of an electrode over that of the typical one; C
    coupling: Floats  # mean correlation with the other electrodes; C
    spread: float  # of the typical electrode, in microvolts
    shares: Floats  # of each band in the power, in percent, mean over electrodes and windows; B

    @property
    def vector(self) -> Floats:
        """Those that gain does not change, in one row."""
        return np.concatenate([self.power.ravel(), self.share, self.coupling])


def held_bands(signal: Signal, high: float | None = None) -> dict[str, Band]:
    """The bands that the recordings hold; the last of them ends where they do.

    Parameters
    ----------
    signal
        Of the windows, with the native rate if it is known.
    high
        The low-pass edge the recordings were filtered at, in Hz.
    """
    top = min(signal.sfreq / 2, (signal.native_sfreq or signal.sfreq) / 2, np.inf if high is None else high)
    cut = {name: (float(low), float(min(end, top))) for name, (low, end) in BANDS.items()}
    return {name: band for name, band in cut.items() if band[1] - band[0] >= (BANDS[name][1] - BANDS[name][0]) / 2}


def person_features(bag: NDArray[np.float32], sfreq: float, bands: Mapping[str, Band]) -> PersonFeatures:
    """The features of one person.

    Parameters
    ----------
    bag : shape (n_windows, C, n_times)
        In microvolts.
    sfreq
        Rate of the windows, in Hz.
    bands
        Low and high edge of each, in Hz.
    """
    n, n_channels, n_times = bag.shape
    taper = np.hanning(n_times).astype(np.float32)
    frequency = np.fft.rfftfreq(n_times, 1 / sfreq)
    inside = [(frequency >= low) & (frequency < high) for low, high in bands.values()]
    power, deviations = np.zeros((n_channels, len(bands))), np.empty((n, n_channels))
    coupling, shares = np.zeros((n_channels, n_channels)), np.zeros(len(bands))
    for first in range(0, n, BLOCK):
        x = np.array(bag[first : first + BLOCK], dtype=np.float32)
        x -= x.mean(axis=2, keepdims=True)
        deviation = np.sqrt(np.square(x, dtype=np.float64).mean(axis=2))  # windows x C
        deviations[first : first + BLOCK] = deviation
        if bands:
            density = np.abs(_rfft(x * taper)) ** 2
            parts = np.stack([density[..., mask].sum(axis=2) for mask in inside], axis=2) + TINY
            parts /= parts.sum(axis=2, keepdims=True)
            power += np.log(parts).sum(axis=0)
            shares += 100 * parts.mean(axis=1).sum(axis=0)
        x /= np.maximum(deviation, TINY)[..., None].astype(np.float32)
        coupling += np.einsum("nct,ndt->cd", x, x, optimize=True) / n_times
    typical = np.maximum(np.median(deviations, axis=0), TINY)
    others = (coupling.sum(axis=1) - np.diag(coupling)) / (n * max(n_channels - 1, 1))
    share = np.log(typical / np.median(typical))
    return PersonFeatures(power / n, share, others, float(np.median(typical)), shares / n)


def _rfft(x: NDArray[np.float32]) -> NDArray[Any]:
    from scipy.fft import rfft

    return np.asarray(rfft(x, axis=2))


@dataclass(frozen=True)
class Likeness:
    """What features of ``n`` people look like: f features, d main directions."""

    centre: Floats  # f
    scale: Floats  # f
    mean: Floats  # f, of standardised features
    directions: Floats  # d x f
    variances: Floats  # d
    left_out: float  # mean squared length of what the directions leave out

    @classmethod
    def fit(cls, features: Floats) -> Likeness:
        """From the features of people (n x f)."""
        n = len(features)
        centre = np.median(features, axis=0)
        scale = 1.4826 * np.median(np.abs(features - centre), axis=0)
        scale = np.where(scale > TINY, scale, np.maximum(features.std(axis=0), 1e-3))
        z = np.clip((features - centre) / scale, -FARTHEST, FARTHEST)
        mean = z.mean(axis=0)
        _, lengths, directions = np.linalg.svd(z - mean, full_matrices=False)
        d = min(MOST_DIRECTIONS, max(1, (n - 1) // PEOPLE_A_DIRECTION), len(lengths))
        variances = np.maximum(lengths[:d] ** 2 / max(n - 1, 1), TINY)
        rest = max(float((lengths[d:] ** 2).sum()) / n, TINY)
        return cls(centre, scale, mean, directions[:d], variances, rest)

    def distance(self, features: Floats) -> float:
        """How far one person (f) is from these people."""
        z = np.clip((features - self.centre) / self.scale, -FARTHEST, FARTHEST) - self.mean
        along = self.directions @ z
        beside = float(z @ z - along @ along)
        return float(np.sqrt((along**2 / self.variances).mean() + max(beside, 0.0) / self.left_out))


@dataclass(frozen=True)
class Reference:
    """The training people, as far as a bundle keeps them: S of them, K classes, C channels, B bands."""

    bands: Mapping[str, Band]
    likeness: Likeness
    distances: Floats  # S, sorted; each person's from the others
    spreads: Floats  # lowest, median and highest spread of the typical electrode, in microvolts
    windows: Floats  # fewest, median and most windows of a person
    class_power: Floats  # K x quantiles x C x B: log relative band power within each class
    class_shares: Floats  # K x quantiles x B: share of each band in the power, in percent, within each class
    covariance_rows: Floats  # r x F: R'R goes like the people's covariance of the model's features; 0 rows: not known

    def percentile(self, features: PersonFeatures) -> float:
        """The share of training people, in percent, who are nearer to the others than this person is to them."""
        distance = self.likeness.distance(features.vector)
        return 100.0 * float((self.distances < distance).mean())

    def unusual(self, features: PersonFeatures, channels: Sequence[str], most: int = 3) -> list[str]:
        """The features that stand out most, in words; only those far outside of the training people.

        Parameters
        ----------
        features
            Of one person.
        channels
            Electrode names, C.
        most
            How many at most.
        """
        z = (features.vector - self.likeness.centre) / self.likeness.scale
        names = [f"{band} power at {channel}" for channel in channels for band in self.bands]
        names += [f"amplitude of {channel} against the others" for channel in channels]
        names += [f"correlation of {channel} with the others" for channel in channels]
        largest = np.argsort(-np.abs(z), kind="stable")[:most]
        return [f"{names[i]} {'high' if z[i] > 0 else 'low'}" for i in largest if abs(z[i]) > STANDS_OUT]

    def tensors(self) -> dict[str, Floats]:
        """Everything in it, as arrays."""
        return {name: np.atleast_1d(np.asarray(getattr(self.likeness, name), dtype=np.float64)) for name in _PARTS} | {
            name: getattr(self, name) for name in _ARRAYS
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats], bands: Mapping[str, Sequence[float]]) -> Reference:
        """Undo ``tensors``."""
        try:
            parts = {name: tensors[name] for name in _PARTS}
            likeness = Likeness(**parts | {"left_out": float(parts["left_out"][0])})  # type: ignore[arg-type]
            rest = {name: tensors[name] for name in _ARRAYS}
            edges = {str(name): (float(low), float(high)) for name, (low, high) in bands.items()}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadData(f"the bundle's reference is damaged ({error!r})") from None
        return cls(edges, likeness, **rest)


_PARTS = ("centre", "scale", "mean", "directions", "variances", "left_out")
_ARRAYS = ("distances", "spreads", "windows", "class_power", "class_shares", "covariance_rows")


def make_reference(cohort: Cohort, features: Floats | None = None) -> Reference:
    """The reference of a cohort's people.

    Parameters
    ----------
    cohort
        All of whom trained the model.
    features : shape (S, F)
        Mean features of each person, as the model's first layer has them, if they have names: patterns are computed
        over their covariance.
    """
    bands = held_bands(cohort.signal, cohort.preparation.get("high"))
    people = [person_features(cohort.windows(subject), cohort.sfreq, bands) for subject in cohort.subjects]
    vectors = np.stack([person.vector for person in people])
    distances = [Likeness.fit(vectors[rest]).distance(vectors[i]) for rest, who in _left_out(len(vectors)) for i in who]
    spreads = np.array([person.spread for person in people])
    counts = np.array([cohort.records[subject].n_windows for subject in cohort.subjects], dtype=np.float64)
    members = [[p for p, y in zip(people, cohort.y, strict=True) if y == k] for k in range(len(cohort.classes))]
    power, shares = (
        np.stack([np.quantile([getattr(p, part) for p in each], QUANTILES, axis=0) for each in members])
        for part in ("power", "shares")
    )
    return Reference(
        bands, Likeness.fit(vectors), np.sort(np.array(distances)), _summary(spreads), _summary(counts), power, shares,
        _covariance_rows(features),
    )  # fmt: skip


def _covariance_rows(features: Floats | None) -> Floats:
    """Main directions of the people's features, each as long as people differ along it: nobody's own features."""
    if features is None or len(features) < 2:
        return np.zeros((0, 0 if features is None else features.shape[1]))
    _, lengths, directions = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    rows: Floats = lengths[:MOST_ROWS, None] * directions[:MOST_ROWS] / np.sqrt(len(features) - 1)
    return rows[lengths[:MOST_ROWS] > TINY]


def _left_out(n: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rounds of (the others, those left out)."""
    for who in np.array_split(np.random.default_rng(0).permutation(n), min(n, MOST_ROUNDS)):
        yield np.setdiff1d(np.arange(n), who), who


def _summary(values: Floats) -> Floats:
    return np.array([values.min(), np.median(values), values.max()])
