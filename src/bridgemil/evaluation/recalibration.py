"""Calibration at another site: slope and intercept, and a shift of the log-odds of one class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import LEAST, Calibration, Floats, Ints, log_odds
from bridgemil.evaluation.metrics import Z


@dataclass(frozen=True)
class Shift(Calibration):
    """The log-odds of one class against the others plus ``value``, before another calibration.

    At another site discrimination may carry over and the threshold not: the intercept alone is then updated (Steyerberg
    et al., 2004).
    """

    value: float
    of: int  # number of the class
    first: Calibration
    kind: ClassVar[str] = "shift"

    def raw(self, p: Floats) -> Floats:
        """The shifted probabilities, before the other calibration."""
        own = p[..., self.of]
        new = 1 / (1 + np.exp(-(log_odds(own) + self.value)))
        factor = (1 - new) / np.maximum(1 - own, LEAST)
        shifted: Floats = p * factor[..., None]
        shifted[..., self.of] = new
        return shifted

    def __call__(self, p: Floats) -> Floats:
        """Shifted and calibrated."""
        return self.first(self.raw(p))

    @property
    def sentence(self) -> str:
        """For reports and the model card."""
        return f"log-odds shifted by {self.value:+.2f} for another site; {self.first.sentence}"

    def for_json(self) -> dict[str, Any]:
        """As a bundle holds it."""
        return {"kind": self.kind, "value": self.value, "of": self.of, "first": self.first.for_json()}


def fit_shift(p: Floats, y: Ints, shares: Sequence[float], of: int, first: Calibration) -> Shift:
    """The shift at which the mean calibrated probability is the observed frequency; of two classes.

    Parameters
    ----------
    p : shape (n, 2)
        Probabilities before any calibration, of subjects who had no part in the model.
    y : shape (n,)
        True class numbers, both among them.
    shares : sequence of float
        Of the two classes among those to predict.
    of : int
        The class whose log-odds are shifted.
    first : Calibration
        Applied afterwards.
    """
    from scipy.optimize import brentq

    weights = np.asarray(shares)[y] / np.bincount(y, minlength=2)[y]

    def excess(value: float) -> float:
        return float((weights * ((y == of) - Shift(value, of, first)(p)[:, of])).sum())

    return Shift(round(float(brentq(excess, -60, 60)), 6), of, first)


def calibration_line(p: Floats, y: NDArray[np.bool_]) -> dict[str, dict[str, Any]]:
    """Calibration slope and intercept of two classes (Cox, 1958), with Wald's 95 % intervals.

    The slope is that of a logistic regression of the outcome on the log-odds: below 1 the probabilities are too
    extreme. The intercept is that of a regression with slope 1 (calibration-in-the-large): below 0 they are too high.

    Parameters
    ----------
    p : ndarray of shape (n,)
        Probability of the positive class.
    y : ndarray of shape (n,)
        Whether the subject has it.

    Returns
    -------
    dict
        ``slope`` and ``intercept``, each with ``value`` and ``ci95``; None where the classes are separated perfectly.
    """
    logit = log_odds(p)
    ones = np.ones((len(p), 1))
    slope, error = _logistic(np.column_stack([ones, logit]), y, 0 * logit)
    intercept, alone = _logistic(ones, y, logit)
    found = {"slope": (slope[-1], error[-1]), "intercept": (intercept[0], alone[0])}
    return {
        name: {"value": float(value), "ci95": [float(value - Z * se), float(value + Z * se)]}
        if np.isfinite(value) else {"value": None, "ci95": [None, None]}
        for name, (value, se) in found.items()
    }  # fmt: skip


def _logistic(x: Floats, y: NDArray[np.bool_], offset: Floats) -> tuple[Floats, Floats]:
    """Coefficients and standard errors of an unpenalised logistic regression (Newton); NaN if there is no maximum."""
    beta: Floats = np.zeros(x.shape[1])
    for _ in range(100):
        mean = 1 / (1 + np.exp(-np.clip(x @ beta + offset, -500, 500)))
        information = x.T @ (x * (mean * (1 - mean))[:, None])
        if np.linalg.cond(information) > 1e12 or np.abs(beta).max() > 1e3:
            break
        step = np.linalg.solve(information, x.T @ (y - mean))
        beta = beta + np.clip(step, -1, 1)  # from 0, a full step may overshoot
        if np.abs(step).max() < 1e-8:
            return beta, np.sqrt(np.diag(np.linalg.inv(information)))
    return np.full(len(beta), np.nan), np.full(len(beta), np.nan)
