"""How a score grows with the number of training subjects, and the gain to expect of more: score(n) = a - b n^-c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SIZES = 4  # three parameters go through any three points
RATES = np.geomspace(0.01, 2.0, 150)  # of c


@dataclass(frozen=True)
class PowerLaws:
    """Fits score(n) = a - b n^-c with a <= 1 and b >= 0, one per row of scores.

    Parameters
    ----------
    ceiling : array (rows)
        a.
    gap : array (rows)
        What is missing to the ceiling at ``largest`` subjects: b largest^-c.
    rate : array (rows)
        c, from 0.01 to 2.
    largest : float
        The number of subjects that ``gap`` belongs to.
    """

    ceiling: Floats
    gap: Floats
    rate: Floats
    largest: float

    def at(self, n: float) -> Floats:
        """The scores with n subjects, (rows)."""
        return np.asarray(self.ceiling - self.gap * (n / self.largest) ** -self.rate)

    def gain(self, n: float) -> Floats:
        """How much more n subjects give than the largest number tried, (rows)."""
        return np.asarray(self.at(n) - self.at(self.largest))


def fit(n: Floats, scores: Floats, weights: Floats) -> PowerLaws:
    """Fit a power law to each row by weighted least squares: linear in a and b, c from a grid.

    Parameters
    ----------
    n : array (sizes)
        Training subjects.
    scores : array (rows, sizes)
        0 to 1.
    weights : array (sizes)
        Of the squared errors.
    """
    share, largest = weights / weights.sum(), float(n.max())
    x = (n / largest) ** -RATES[:, None]  # rates x sizes
    centred = x - (x * share).sum(axis=1, keepdims=True)
    mean = (scores * share).sum(axis=1)
    gap = np.maximum(0, -(scores * share) @ centred.T / (share * centred**2).sum(axis=1))  # rows x rates
    ceiling = mean[:, None] + gap * (x * share).sum(axis=1)
    # Where the ceiling would be above 1 it is 1, and the gap is fitted alone.
    alone = np.maximum(0, ((1 - scores) * share) @ x.T / (share * x**2).sum(axis=1))
    gap, ceiling = np.where(ceiling > 1, alone, gap), np.minimum(ceiling, 1.0)
    errors = ((ceiling[:, :, None] - gap[:, :, None] * x - scores[:, None]) ** 2 * share).sum(axis=2)
    best = errors.argmin(axis=1)
    rows = np.arange(len(scores))
    return PowerLaws(ceiling[rows, best], gap[rows, best], RATES[best], largest)


@dataclass(frozen=True)
class Forecast:
    """A learning curve, and the gain to expect of more subjects.

    Parameters
    ----------
    now : float
        The score with the largest number of subjects, as observed.
    nows : array (resamples)
        The same of subjects and training sets drawn anew.
    law : PowerLaws
        Of the observed scores, one row.
    refits : PowerLaws
        Of the resampled scores.
    rise : tuple
        The straight-line gain per doubling of subjects, and the ends of its 95 % interval.
    """

    now: float
    nows: Floats
    law: PowerLaws
    refits: PowerLaws
    rise: tuple[float, float, float]

    def gain(self, n: float) -> tuple[float, float, float]:
        """The expected gain of n subjects over those there are now, with its 95 % interval."""
        return float(self.law.gain(n)[0]), *_interval(self.refits.gain(n))

    def score(self, n: float) -> tuple[float, float, float]:
        """Today's score and the expected gain, with the 95 % interval of their sum; at most 1."""
        expected = min(1.0, self.now + float(self.law.gain(n)[0]))
        return expected, *_interval(np.minimum(1, self.nows + self.refits.gain(n)))

    def fitted(self, n: Floats) -> tuple[Floats, Floats, Floats]:
        """The fitted curve and the bounds of its 95 % interval, (n) each."""
        every = np.array([self.refits.at(float(one)) for one in n])
        low, high = np.quantile(every, [0.025, 0.975], axis=1)
        return np.array([float(self.law.at(float(one))[0]) for one in n]), low, high


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def forecast(n: Floats, score: Floats, resampled: Floats, weights: Floats) -> Forecast | None:
    """Fit the curve, and refit it on resampled scores; None where too few sizes were tried.

    It forecasts whether or not the rise is significant: a forecast of significant rises only is biased upwards. A curve
    that does not rise has a gain of zero.

    Parameters
    ----------
    n, score, weights : array (sizes)
        Training subjects, observed scores, weights of the squared errors.
    resampled : array (resamples, sizes)
        Scores of test subjects and training sets drawn anew.
    """
    if len(n) < LEAST_SIZES:
        return None
    now = int(n.argmax())
    rises = _rise(n, resampled, weights)
    return Forecast(
        float(score[now]), resampled[:, now], fit(n, score[None], weights), fit(n, resampled, weights),
        (float(_rise(n, score[None], weights)[0]), *_interval(rises)),
    )  # fmt: skip


def with_draws(resampled: Floats, draws: list[Floats], rng: np.random.Generator) -> Floats:
    """Resampled scores with the variance of which training subjects were drawn.

    The variance over draws, pooled over the sizes that have several, is added to each size as that of its mean.

    Parameters
    ----------
    resampled : array (resamples, sizes)
        Scores of test subjects drawn anew; the models as they are.
    draws : list of arrays
        The score of each draw of training subjects, by size.
    rng
        Of the noise.
    """
    several = [values for values in draws if len(values) > 1]
    if not several:
        return resampled
    freedom = sum(len(values) - 1 for values in several)
    variance = sum(float(((values - values.mean()) ** 2).sum()) for values in several) / freedom
    spread = np.sqrt(variance / np.array([len(values) for values in draws]))
    return np.asarray(resampled + rng.normal(size=resampled.shape) * spread)


def _rise(n: Floats, scores: Floats, weights: Floats) -> Floats:
    """By how much each row of scores rises when the subjects double: the slope of a straight line, (rows)."""
    x = np.log2(n) - np.average(np.log2(n), weights=weights)
    return np.asarray((scores * weights * x).sum(axis=1) / (weights * x**2).sum())
