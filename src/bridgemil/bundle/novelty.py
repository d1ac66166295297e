"""What a bundle keeps of its training subjects: statistics, the out-of-distribution test, hashes; no subject's data.

How far a recording is from the training subjects is stated as a percentile. ``adapt`` maps the features of a new site
to the mean and the standard deviation of the training controls (ComBat's adjustment of location and scale: Johnson et
al., 2007): a bundle keeps these two of every feature, of the controls and of all training subjects.

The *features* of a recording do not depend on the amplifier's gain: log relative band power, the amplitude of each
electrode relative to the others, and its mean correlation with them. The *distance* is computed on robustly
standardised features (median and median absolute deviation of the training subjects). It weights two parts equally: the
Mahalanobis distance along the main directions in which the training subjects differ, and the residual (as in
probabilistic PCA: Tipping and Bishop, 1999).

Features of a short recording are noisier, so its distance is larger. The *percentile* is therefore taken among
distances of training recordings of the same length: contiguous windows of each training subject, measured by a
distance that was fitted without that subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.measures import BLOCK, TABLES, WindowHash, spectra
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, Signal, held_bands, relative_band_power, rereferenced
from bridgemil.models.harmonisation import Scale, mapped
from bridgemil.storage.artifact import array_checksum

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]

NOVELTY = "novelty"  # the population of the features of the out-of-distribution test
LENGTHS = (5, 10, 20, 30, 60, 120, 300, 600, 1200)  # windows; lengths at which reference distances are kept
SEGMENTS = 8  # per training subject and length
PERCENTILES = np.linspace(0, 100, 401)  # at which the distribution of the distances is kept
MOST_DIRECTIONS, SUBJECTS_PER_DIRECTION = 8, 5
MOST_FITS = 100  # leave one subject out, or a hundredth of many
CLIP = 10.0  # standardised features beyond are clipped
TINY = 1e-12
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
OUTSIDE = 95.0  # out-of-distribution percentile above which a warning is given
WITHHELD = 99.0  # and above which no class is predicted
STANDS_OUT = 4.0  # standardised features beyond are named
MOST_ROWS = 64  # of the features' covariance
KEPT = 8  # one in so many hash codes is kept, chosen by its value, so that two recordings keep the same
ENOUGH = 2  # codes in common that make two recordings one signal: one may be an artefact's


@dataclass(frozen=True)
class WindowFeatures:
    """Features of n windows of a recording; C channels, B bands."""

    power: Floats  # log relative band power, n x C x B
    deviation: Floats  # standard deviation in microvolts, n x C
    coupling: Floats  # mean correlation with the other electrodes, n x C
    shares: Floats  # relative band power in percent, mean over electrodes, n x B

    @property
    def n(self) -> int:
        """How many windows."""
        return len(self.deviation)

    @property
    def typical(self) -> Floats:
        """Median standard deviation of each electrode, in microvolts; C."""
        return np.maximum(np.median(self.deviation, axis=0), TINY)

    @property
    def spread(self) -> float:
        """Standard deviation of the median electrode, in microvolts."""
        return float(np.median(self.typical))

    @property
    def vector(self) -> Floats:
        """The recording's features that do not depend on gain, f = C x B + 2 C."""
        amplitude = np.log(self.typical / self.spread)
        return np.concatenate([self.power.mean(axis=0).ravel(), amplitude, self.coupling.mean(axis=0)])

    def part(self, rows: slice) -> WindowFeatures:
        """Of some of the windows."""
        return WindowFeatures(self.power[rows], self.deviation[rows], self.coupling[rows], self.shares[rows])

    def segments(self) -> dict[int, Floats]:
        """Feature vectors of contiguous segments (m x f) by length in windows; 0 is the whole recording."""
        found = {0: self.vector[None]}
        for length in LENGTHS:
            if length <= self.n:
                starts = np.linspace(0, self.n - length, min(SEGMENTS, self.n // length)).round().astype(int)
                found[length] = np.stack([self.part(slice(i, i + length)).vector for i in starts])
        return found


def window_features(
    bag: NDArray[np.float32], sfreq: float, bands: Mapping[str, Band], reference: str = "recorded"
) -> WindowFeatures:
    """Features of each window of a bag (n_windows x C x n_times, in microvolts) at ``sfreq`` Hz, by bands in Hz.

    ``reference`` average: of windows re-referenced to the average of the electrodes.
    """
    from scipy.fft import rfft

    n, n_channels, n_times = bag.shape
    taper = np.hanning(n_times).astype(np.float32)
    frequency = np.fft.rfftfreq(n_times, 1 / sfreq)
    power, deviations = np.zeros((n, n_channels, len(bands))), np.empty((n, n_channels))
    coupling, shares = np.empty((n, n_channels)), np.zeros((n, len(bands)))
    for first in range(0, n, BLOCK):
        rows = slice(first, first + BLOCK)
        x = rereferenced(np.array(bag[rows], dtype=np.float32), reference)
        x -= x.mean(axis=2, keepdims=True)
        deviation = np.sqrt(np.square(x, dtype=np.float64).mean(axis=2))  # windows x C
        deviations[rows] = deviation
        if bands:
            density = np.abs(np.asarray(rfft(x * taper, axis=2))) ** 2
            relative = relative_band_power(density, frequency, bands.values())
            power[rows], shares[rows] = np.log(relative), 100 * relative.mean(axis=1)
        x /= np.maximum(deviation, TINY)[..., None].astype(np.float32)
        own = np.einsum("nct,nct->nc", x, x) / n_times
        together = np.einsum("nct,nt->nc", x, x.sum(axis=1)) / n_times  # sum of an electrode's correlations
        coupling[rows] = (together - own) / max(n_channels - 1, 1)
    return WindowFeatures(power, deviations, coupling, shares)


@dataclass(frozen=True)
class Distance:
    """Distance of feature vectors from n subjects; f features, d main directions."""

    centre: Floats  # f
    scale: Floats  # f
    mean: Floats  # f, of standardised features
    directions: Floats  # d x f
    variances: Floats  # d
    residual: float  # mean squared length of what the directions do not explain

    @classmethod
    def fit(cls, features: Floats) -> Distance:
        """Fit on one feature vector per subject (n x f)."""
        n = len(features)
        centre = np.median(features, axis=0)
        scale = 1.4826 * np.median(np.abs(features - centre), axis=0)
        scale = np.where(scale > TINY, scale, np.maximum(features.std(axis=0), 1e-3))
        z = np.clip((features - centre) / scale, -CLIP, CLIP)
        mean = z.mean(axis=0)
        _, lengths, directions = np.linalg.svd(z - mean, full_matrices=False)
        d = min(MOST_DIRECTIONS, max(1, (n - 1) // SUBJECTS_PER_DIRECTION), len(lengths))
        variances = np.maximum(lengths[:d] ** 2 / max(n - 1, 1), TINY)
        rest = max(float((lengths[d:] ** 2).sum()) / n, TINY)
        return cls(centre, scale, mean, directions[:d], variances, rest)

    def __call__(self, features: Floats) -> Floats:
        """Distance of each row (m x f) from the subjects, m."""
        z = np.clip((features - self.centre) / self.scale, -CLIP, CLIP) - self.mean
        along = z @ self.directions.T
        beside = np.maximum((z**2).sum(axis=1) - (along**2).sum(axis=1), 0.0)
        distance: Floats = np.sqrt((along**2 / self.variances).mean(axis=1) + beside / self.residual)
        return distance


@dataclass(frozen=True)
class NoveltyModel:
    """The out-of-distribution test: a distance, and its distribution among the training subjects at L lengths."""

    distance: Distance  # fitted on all training subjects
    lengths: Floats  # L numbers of windows, rising; the last is the training subjects' median, for whole recordings
    quantiles: Floats  # L x len(PERCENTILES): distances of held-out training subjects at each length

    @classmethod
    def fit(cls, subjects: Sequence[Mapping[int, Floats]], counts: Sequence[int]) -> NoveltyModel:
        """Fit on the ``WindowFeatures.segments`` of training subjects, with the windows that each has."""
        median = float(np.median(counts))
        held = {length: sum(length in subject for subject in subjects) for length in LENGTHS}
        lengths = [length for length in LENGTHS if length < median and 2 * held[length] >= len(subjects)]
        distances: dict[int, list[Floats]] = {length: [] for length in (*lengths, 0)}
        whole = np.concatenate([subject[0] for subject in subjects])
        for rest, left_out in leave_out(len(subjects)):
            distance = Distance.fit(whole[rest])
            for i in left_out:
                for length in distances.keys() & subjects[i].keys():
                    distances[length].append(distance(subjects[i][length]))
        # Weibull's positions, i / (n + 1): a new subject exceeds the 95th percentile in 5 % of cases also if n is small
        quantiles = [np.percentile(np.concatenate(own), PERCENTILES, method="weibull") for own in distances.values()]
        return cls(Distance.fit(whole), np.array([*lengths, median], dtype=np.float64), np.stack(quantiles))

    def percentile(self, features: Floats, n_windows: int) -> float:
        """Percentile (0 to 100) of a feature vector (f) among training recordings of ``n_windows`` windows.

        Between two stored lengths it is interpolated linearly in the logarithm of the length.
        """
        distance = float(self.distance(features[None])[0])
        at = [np.interp(distance, row, PERCENTILES) for row in self.quantiles]
        return float(np.interp(np.log(n_windows), np.log(self.lengths), at))


def leave_out(n: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of (the others, those left out) in which each of n subjects is left out once."""
    for who in np.array_split(np.random.default_rng(0).permutation(n), min(n, MOST_FITS)):
        yield np.setdiff1d(np.arange(n), who), who


@dataclass(frozen=True)
class Reference:
    """Statistics of the training subjects; K classes, C channels, B bands."""

    bands: Mapping[str, Band]
    novelty: NoveltyModel
    spreads: Floats  # lowest, median and highest standard deviation of the median electrode, in microvolts
    windows: Floats  # fewest, median and most windows of a subject
    class_shares: Floats  # K x quantiles x B: relative band power in percent, within each class
    covariance_rows: Floats  # r x F: R'R is proportional to the covariance of the model's features; 0 rows: unknown
    reference: str = "recorded"  # of the windows that the features are computed from, or "average"
    populations: Mapping[str, Floats] = field(default_factory=dict)  # by name, 4 x F: see ``population``
    site: Scale | None = None  # of a model that was adapted: the map of the site's features (f) to the training site's

    @property
    def highest(self) -> float:
        """The highest frequency in Hz that the bands reach."""
        return max((end for _, end in self.bands.values()), default=0.0)

    def vector(self, features: WindowFeatures) -> Floats:
        """The features that do not depend on gain (f), mapped from the site that the model was adapted to."""
        return mapped(features.vector, self.site)

    def percentile(self, features: WindowFeatures) -> float:
        """Out-of-distribution percentile of a recording; see ``NoveltyModel.percentile``."""
        return self.novelty.percentile(self.vector(features), features.n)

    def unusual(self, features: WindowFeatures, channels: Sequence[str]) -> list[str]:
        """Names of the three features that are farthest outside of the training subjects' range; C channels."""
        z = (self.vector(features) - self.novelty.distance.centre) / self.novelty.distance.scale
        names = [f"{band} power at {channel}" for channel in channels for band in self.bands]
        names += [f"relative amplitude of {channel}" for channel in channels]
        names += [f"correlation of {channel} with the other electrodes" for channel in channels]
        largest = np.argsort(-np.abs(z), kind="stable")[:3]
        return [f"{names[i]} {'high' if z[i] > 0 else 'low'}" for i in largest if abs(z[i]) > STANDS_OUT]

    def tensors(self) -> dict[str, Floats]:
        """All arrays by name, as a bundle stores them."""
        novelty = self.novelty
        parts = vars(novelty.distance) | {"lengths": novelty.lengths, "quantiles": novelty.quantiles}
        parts |= {name: getattr(self, name) for name in _ARRAYS}
        parts |= {f"{POPULATION}{name}": values for name, values in self.populations.items()}
        parts |= {} if self.site is None else {"site": np.stack(self.site)}
        return {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats], stated: Mapping[str, Any]) -> Reference:
        """Inverse of ``tensors``; ``stated`` are bands and reference, as ``bundle.json`` holds them."""
        parts = {one.name: tensors[one.name] for one in fields(Distance)}
        distance = Distance(**parts | {"residual": float(parts["residual"][0])})  # type: ignore[arg-type]
        edges = {str(name): (float(low), float(high)) for name, (low, high) in stated["bands"].items()}
        populations = {n.removeprefix(POPULATION): v for n, v in tensors.items() if n.startswith(POPULATION)}
        return cls(
            edges,
            NoveltyModel(distance, tensors["lengths"], tensors["quantiles"]),
            **{name: tensors[name] for name in _ARRAYS},
            reference=stated["windows"],
            populations=populations,
            site=(tensors["site"][0], tensors["site"][1]) if "site" in tensors else None,
        )


def population(features: Floats, controls: NDArray[np.bool_]) -> Floats:
    """Mean and standard deviation of the controls, then of all subjects (4 x F), of features (S x F).

    ``controls`` (S) are who is one; with fewer than two, the first two rows are NaN.
    """
    rows = []
    for own in (features[controls], features):
        known = len(own) > 1
        rows += [own.mean(axis=0), own.std(axis=0, ddof=1)] if known else [np.full(features.shape[1], np.nan)] * 2
    return np.stack(rows)


POPULATION = "population."  # in the names of tensors
_ARRAYS = ("spreads", "windows", "class_shares", "covariance_rows")


def make_reference(
    cohort: Cohort,
    features: Floats | None = None,
    reference: str = "recorded",
    control: str | None = None,
    populations: Mapping[str, Floats] | None = None,
) -> Reference:
    """Compute the reference statistics of a cohort, the training subjects.

    ``features`` (S x F) are the mean named features of each subject, of the model's first layer, if they have names:
    patterns are computed over their covariance. ``reference`` of the windows is ``average`` if the model's features do
    not depend on the recorded reference either. ``control`` is the class of the controls, if there is one;
    ``populations`` are of the model's features.
    """
    held, _ = held_bands(CLINICAL_BANDS, cohort.signal)
    bands = {name: (float(low), float(high)) for name, (low, high) in held.items()}  # as they are read back
    every = (window_features(cohort.windows(who), cohort.sfreq, bands, reference) for who in cohort.subjects)
    rows = [(one.shares.mean(axis=0), one.spread, one.n, one.vector, one.segments()) for one in every]
    shares, spreads, counts, vectors, segments = zip(*rows, strict=True)
    by_class = [np.quantile(np.stack(shares)[cohort.y == k], QUANTILES, axis=0) for k in range(len(cohort.classes))]
    spread, length = (np.array([min(own), np.median(own), max(own)], dtype=float) for own in (spreads, counts))
    own = {NOVELTY: population(np.stack(vectors), np.array(cohort.labels) == control)}
    return Reference(
        bands, NoveltyModel.fit(segments, counts), spread, length, np.stack(by_class), _covariance_rows(features),
        reference, {**own, **(populations or {})},
    )  # fmt: skip


def _covariance_rows(features: Floats | None) -> Floats:
    """Main directions of the subjects' features, scaled by the standard deviation along them."""
    if features is None or len(features) < 2:
        return np.zeros((0, 0 if features is None else features.shape[1]))
    _, lengths, directions = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    rows: Floats = lengths[:MOST_ROWS, None] * directions[:MOST_ROWS] / np.sqrt(len(features) - 1)
    return rows[lengths[:MOST_ROWS] > TINY]


@dataclass(frozen=True)
class TrainingSignals:
    """Hashes of the signals that a model was trained or adapted with, by which subjects are recognised; sorted.

    Two kinds. The hash of a subject's windows is equal for the same recordings, prepared in the same way. Hash codes of
    single windows (random hyperplanes: Charikar, 2002; as in the audit's search for duplicate signals) do not depend on
    length, reference, gain and sign, and hardly on filters: they also recognise a part of a recording, of about half a
    minute or more, if its windows begin at the same samples. On 65 training subjects of ``adftd-300s``, all 65 minutes
    of theirs had 3 codes in common or more (with another band 2 or more); 36 subjects of another site, and the training
    subjects among each other, had none.
    """

    subjects: Keys  # one per subject
    windows: Keys  # of some windows

    @classmethod
    def of(cls, bags: Iterable[NDArray[np.float32]], signal: Signal) -> TrainingSignals:
        """The hashes of subjects' windows, each n x C x T."""
        pairs = [(_subject_key(bag), window_keys(bag, signal)) for bag in bags]
        windows = np.unique(np.concatenate([keys for _, keys in pairs]))
        return cls(np.unique(np.array([key for key, _ in pairs], dtype=np.int64)), windows)

    def __or__(self, other: TrainingSignals) -> TrainingSignals:
        return TrainingSignals(np.union1d(self.subjects, other.subjects), np.union1d(self.windows, other.windows))

    def holds(self, bag: NDArray[np.float32], signal: Signal) -> bool:
        """Whether the signal of these windows (n x C x T), or a part of it, is among them."""
        if _subject_key(bag) in self.subjects:
            return True
        return int(np.isin(window_keys(bag, signal), self.windows).sum()) >= ENOUGH

    def tensors(self) -> dict[str, Keys]:
        """As a bundle stores them."""
        return {"signals.subjects": self.subjects, "signals.windows": self.windows}


def _subject_key(bag: NDArray[np.float32]) -> int:
    return int.from_bytes(bytes.fromhex(array_checksum(bag)[:16]), "big", signed=True)


def window_keys(bag: NDArray[np.float32], signal: Signal) -> Keys:
    """Some hash codes of windows: 24 bits of one of the audit's tables, 8 of the next, and the number of the table."""
    hashing, found = WindowHash(signal), []
    for first in range(0, len(bag), BLOCK):
        part = np.array(bag[first : first + BLOCK], dtype=np.float32)
        found.append(hashing.codes(part, spectra(part)))
    codes = np.concatenate(found).astype(np.int64)  # n x TABLES; -1 where a window is flat
    codes = codes[codes[:, 0] >= 0]
    further = np.roll(codes, -1, axis=1) >> 1 & 0xFF  # the lowest bit is always 1
    joined = codes | further << 24 | np.arange(TABLES) << 32
    keys: Keys = np.unique(joined[(codes >> 1) % KEPT == 0])
    return keys
