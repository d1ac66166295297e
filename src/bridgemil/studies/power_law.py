"""How a score grows with the number of people, and how far that may be drawn out: score(n) = a - b n^-c."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SIZES = 4  # three parameters go through any three points
WIDEST = 0.2  # an interval wider than this says nothing
FARTHEST = 100.0  # times the people there are; what lies beyond is called endless
SLOWEST, FASTEST = 0.01, 2.0  # of c


@dataclass(frozen=True)
class PowerLaw:
    """score(n) = a - b n^-c, with a <= 1, b >= 0 and 0 < c <= 2.

    Parameters
    ----------
    ceiling
        a: what endlessly many people would give.
    gap
        What is missing to the ceiling at ``largest`` people: b largest^-c.
    rate
        c.
    largest
        The number of people that ``gap`` belongs to.
    """

    ceiling: float
    gap: float
    rate: float
    largest: float

    def __call__(self, n: Floats | float) -> Floats:
        """The score with so many people.

        Parameters
        ----------
        n
            People.
        """
        return np.asarray(self.ceiling - self.gap * (np.asarray(n) / self.largest) ** -self.rate)

    @property
    def scale(self) -> float:
        """b."""
        return float(self.gap * self.largest**self.rate)

    @property
    def half_gap(self) -> float:
        """How many people halve what is missing to the ceiling; infinite where nothing is, or it takes far too many."""
        times = 2 ** (1 / self.rate) if self.gap > 1e-6 else np.inf
        return float(self.largest * times) if times <= FARTHEST else np.inf


def fit(n: Floats, score: Floats, weights: Floats) -> PowerLaw:
    """The power law that comes nearest, by weighted least squares.

    Parameters
    ----------
    n
        People, (sizes).
    score
        0 to 1, (sizes).
    weights
        Of the squared errors, (sizes).
    """
    from scipy.optimize import least_squares

    x, root = n / n.max(), np.sqrt(weights)

    def errors(p: Floats) -> Floats:
        return np.asarray(root * (p[0] - p[1] * x ** -p[2] - score))

    def slopes(p: Floats) -> Floats:
        power = x ** -p[2]
        return np.asarray(root[:, None] * np.stack([np.ones_like(x), -power, p[1] * power * np.log(x)], axis=1))

    top = float(np.clip(score.max(), 0.05, 0.9))
    solved: list[Any] = [
        least_squares(errors, [top + 0.05, 0.05, rate], slopes, bounds=([0, 0, SLOWEST], [1, 1, FASTEST]))
        for rate in (0.3, 1.0)
    ]
    best = min(solved, key=lambda solution: float(solution.cost))
    ceiling, gap, rate = map(float, best.x)
    return PowerLaw(ceiling, gap, rate, float(n.max()))


@dataclass(frozen=True)
class Forecast:
    """A learning curve, and what it lets one expect of more people.

    Parameters
    ----------
    law
        The fit; None where the scores do not rise.
    refits
        Of people drawn anew.
    why_not
        Why nothing is forecast; empty where something is.
    """

    law: PowerLaw | None
    refits: tuple[PowerLaw, ...]
    why_not: str

    def at(self, n: Floats | float) -> tuple[Floats, Floats, Floats]:
        """The score with so many people, and its 95 % interval.

        Parameters
        ----------
        n
            People.
        """
        assert self.law is not None
        low, high = np.quantile([refit(n) for refit in self.refits], [0.025, 0.975], axis=0)
        return self.law(n), low, high

    def more(self, n: float) -> tuple[float, float, float]:
        """By how much the curve is higher with n people than with all there are now, with its 95 % interval.

        Parameters
        ----------
        n
            People.
        """
        assert self.law is not None
        each = [float(refit(n) - refit(self.law.largest)) for refit in self.refits]
        low, high = np.quantile(each, [0.025, 0.975])
        return float(self.law(n) - self.law(self.law.largest)), float(low), float(high)

    def is_useful(self, n: float) -> bool:
        """Whether the interval at n people is narrow enough to say something."""
        if self.law is None:
            return False
        _, low, high = self.at(n)
        return bool(high - low <= WIDEST)

    def half_gap(self) -> tuple[float, float, float] | None:
        """How many people halve what is missing to the ceiling, with a 95 % interval; None where it has no end."""
        if self.law is None or self.why_not:
            return None
        # Not between two values: an endless one beside a finite one has no middle.
        each = [refit.half_gap for refit in self.refits]
        low, high = np.quantile(each, [0.025, 0.975], method="inverted_cdf")
        return (self.law.half_gap, float(low), float(high)) if np.isfinite([self.law.half_gap, high]).all() else None


def forecast(n: Floats, score: Floats, resampled: Floats, weights: Floats, beyond: Sequence[float]) -> Forecast:
    """Fit the curve, refit it on people drawn anew, and judge whether it may be drawn out.

    Parameters
    ----------
    n, score, weights
        As ``fit``.
    resampled
        Scores of the same models on people drawn anew, (resamples, sizes).
    beyond
        The numbers of people to forecast.
    """
    if len(n) < LEAST_SIZES:
        return Forecast(
            None,
            (),
            f"a curve needs at least {LEAST_SIZES} numbers of people, and {len(n)} were tried (choose more: --sizes)",
        )
    low, high = np.quantile(_rise(n, resampled, weights), [0.025, 0.975])
    span = f"{_rise(n, score[None], weights)[0]:+.3f} for every doubling, 95 % {low:+.3f} to {high:+.3f}"
    if high < 0:
        return Forecast(None, (), f"the score falls with more people ({span})")
    if low <= 0:
        return Forecast(None, (), f"these people do not show that more of them help ({span})")
    law = fit(n, score, weights)
    made = Forecast(law, tuple(fit(n, row, weights) for row in resampled), "")
    if any(made.is_useful(more) for more in beyond):
        return made
    _, below, above = made.at(min(beyond))
    return Forecast(
        law,
        made.refits,
        f"its interval would be useless ({float(below):.2f} to {float(above):.2f} with {min(beyond):.0f} people)",
    )


def _rise(n: Floats, scores: Floats, weights: Floats) -> Floats:
    """By how much each row of scores rises when the people double: the slope of a straight line, (rows)."""
    x = np.log2(n) - np.average(np.log2(n), weights=weights)
    return np.asarray((scores * weights * x).sum(axis=1) / (weights * x**2).sum())
