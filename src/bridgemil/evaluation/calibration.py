"""Calibration of held-out probabilities, the expected calibration error, and the calibration line.

A calibration is a function from probabilities to probabilities, stored as a few numbers. Which one is applied, if any,
is decided by cross-fitting over the folds:

- ``none``: the probabilities unchanged.
- ``temperature``: temperature scaling (Guo et al., 2017). It sharpens or softens, and never changes the prediction.
- ``isotonic``: isotonic regression of each class, renormalised (Zadrozny and Elkan, 2002); with many subjects only.

It is applied only if, cross-fitted, it lowers both the log loss and the expected calibration error; among those, the
one with the lowest log loss. Log loss alone is dominated by a few confident errors, and the temperature that repairs
them can make the probabilities of everyone else worse. What is reported of the calibrated probabilities is cross-fitted
once more around that decision, so that no subject's outcome is used for the calibration that is evaluated on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator, TypeAdapter, ValidationError

from bridgemil.errors import BadData
from bridgemil.evaluation.metrics import Z, labelled, resampled_rows

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENOUGH_FOR_ISOTONIC = 200  # subjects; with fewer a step function overfits
LEAST = 1e-12  # probabilities below are rounding errors
TEMPERATURES = (0.05, 20.0)  # that are tried; half and twice as much is read
UNINFORMATIVE = 10.0  # a temperature at which the probabilities of all classes become about equal
BINS, SUBJECTS_PER_BIN = 10, 15  # of the calibration error: at most so many bins, at least so many subjects in each
RESAMPLES = 1000


@dataclass(frozen=True)
class Calibration:
    """Probabilities (n x K, or K; rows sum to 1) to calibrated ones of the same shape; this one changes nothing."""

    kind: ClassVar[str] = "none"

    def __call__(self, p: Floats) -> Floats:
        """Calibrated probabilities."""
        return p

    def raw(self, p: Floats) -> Floats:
        """Probabilities before calibration, as prediction sets compare them."""
        return p

    @property
    def sentence(self) -> str:
        """For reports and the model card."""
        return "not calibrated: no calibration lowered both log loss and calibration error on held-out subjects"

    def for_json(self) -> dict[str, Any]:
        """As a bundle holds it."""
        own = {name: v.for_json() if isinstance(v, Calibration) else v for name, v in vars(self).items()}
        return {"kind": self.kind, **own}


@dataclass(frozen=True)
class Temperature(Calibration):
    """Temperature scaling, logits divided by ``value``: above 1 it softens, below 1 it sharpens."""

    value: Annotated[float, Field(ge=TEMPERATURES[0] / 2, le=TEMPERATURES[1] * 2)]
    kind: ClassVar[str] = "temperature"

    def __call__(self, p: Floats) -> Floats:
        """Probabilities to the power of 1 / value, renormalised."""
        from scipy.special import softmax

        return np.asarray(softmax(np.log(np.maximum(p, LEAST)) / self.value, axis=-1))

    @property
    def sentence(self) -> str:
        """For reports and the model card."""
        if self.value >= UNINFORMATIVE:
            return f"temperature scaling (T = {self.value:.1f}): confidence was uninformative, all classes about equal"
        return f"temperature scaling: {'softened' if self.value > 1 else 'sharpened'} (T = {self.value:.2f})"


@dataclass(frozen=True)
class Isotonic(Calibration):
    """Isotonic regression of each class, by its thresholds; probabilities are renormalised.

    ``corners`` has for each class predicted probabilities, rising, and calibrated ones. No class gets less than
    ``least`` before renormalising: so few subjects do not support certainty.
    """

    corners: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]
    least: float
    kind: ClassVar[str] = "isotonic"

    def __call__(self, p: Floats) -> Floats:
        """Each class through its function, renormalised."""
        columns = [np.interp(p[..., k], x, y) for k, (x, y) in enumerate(self.corners)]
        weights = np.maximum(np.stack(columns, axis=-1), self.least)
        renormalised: Floats = weights / weights.sum(axis=-1, keepdims=True)
        return renormalised

    @property
    def sentence(self) -> str:
        """For reports and the model card."""
        return "isotonic regression of each class against the rest, renormalised"


def log_odds(p: Floats) -> Floats:
    """Of probabilities; those of 0 and 1 are finite."""
    odds: Floats = np.log(np.maximum(p, LEAST)) - np.log(np.maximum(1 - p, LEAST))
    return odds


@dataclass(frozen=True)
class Shift(Calibration):
    """The log-odds of one class against the others plus ``value``, before another calibration.

    At another site discrimination may carry over and the threshold not: the intercept alone is then updated (Steyerberg
    et al., 2004).
    """

    value: float
    of: int  # number of the class
    first: Annotated[Calibration, PlainValidator(lambda content: from_json(content))]
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


KINDS: dict[str, type[Calibration]] = {one.kind: one for one in (Calibration, Temperature, Isotonic, Shift)}


def from_json(content: Mapping[str, Any]) -> Calibration:
    """Undo ``for_json``."""
    try:
        return TypeAdapter(KINDS[content["kind"]]).validate_python(content)
    except (KeyError, TypeError, ValidationError) as error:
        known = f"expected the values of one of {', '.join(KINDS)}"
        raise BadData(f"the calibration is damaged or of a later version; {known} ({error!r})") from None


def log_loss(p: Floats, y: Ints) -> float:
    """Mean of -log of the true class's probability; of probabilities n x K and class numbers n."""
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], LEAST)).mean())


def fit_temperature(p: Floats, y: Ints) -> Temperature:
    """The temperature with the lowest log loss on held-out subjects; parameters as for ``decide``.

    Targets are smoothed as Platt's are, by the number of subjects of each class: no temperature makes the model
    certain.
    """
    from scipy.optimize import minimize_scalar

    n_classes = p.shape[1]
    counts = np.bincount(y, minlength=n_classes)
    off = 1 / (counts[y] + n_classes)
    target = np.repeat(off[:, None], n_classes, axis=1)
    target[np.arange(len(y)), y] = 1 - (n_classes - 1) * off
    logits = np.log(np.maximum(p, LEAST))

    def loss(log_value: float) -> float:
        scaled = logits / np.exp(log_value)
        top = scaled.max(axis=1, keepdims=True)
        norm = top[:, 0] + np.log(np.exp(scaled - top).sum(axis=1))
        return float((norm - (target * scaled).sum(axis=1)).mean())

    found = minimize_scalar(loss, bounds=tuple(np.log(TEMPERATURES)), method="bounded", options={"xatol": 1e-4})
    return Temperature(round(float(np.exp(found.x)), 6))


def fit_isotonic(p: Floats, y: Ints) -> Isotonic:
    """A rising function for each class against the rest; parameters as for ``decide``."""
    from sklearn.isotonic import IsotonicRegression

    corners = []
    for k in range(p.shape[1]):
        fitted = IsotonicRegression(y_min=0, y_max=1).fit(p[:, k], (y == k).astype(float))
        corners.append((tuple(map(float, fitted.X_thresholds_)), tuple(map(float, fitted.y_thresholds_))))
    return Isotonic(tuple(corners), 1 / (len(y) + p.shape[1]))


def fit_shift(p: Floats, y: Ints, shares: Sequence[float], of: int, first: Calibration) -> Shift:
    """The shift of the log-odds of class ``of`` at which the mean calibrated probability is the observed frequency.

    Of two classes: ``p`` (n x 2) before any calibration, of subjects who had no part in the model, true class numbers
    ``y`` (n) and the classes' ``shares`` among those to predict. The calibration ``first`` is applied afterwards.
    """
    from scipy.optimize import brentq

    weights = np.asarray(shares)[y] / np.bincount(y, minlength=2)[y]

    def excess(value: float) -> float:
        return float((weights * ((y == of) - Shift(value, of, first)(p)[:, of])).sum())

    return Shift(round(float(brentq(excess, -60, 60)), 6), of, first)


FITTERS: dict[str, Callable[[Floats, Ints], Calibration]] = {
    "none": lambda p, y: Calibration(),
    "temperature": fit_temperature,
    "isotonic": fit_isotonic,
}


def candidates(n: int) -> list[str]:
    """The calibrations that n subjects can support."""
    return [name for name in FITTERS if name != "isotonic" or n >= ENOUGH_FOR_ISOTONIC]


def decide(p: Floats, y: Ints, folds: Ints, names: Sequence[str] | None = None) -> tuple[Calibration, dict[str, Any]]:
    """Choose a calibration by cross-fitting over folds, and fit it on all subjects given.

    Of held-out probabilities ``p`` (n x K), true class numbers ``y`` (n) and the fold of each subject (n); ``names``
    are the candidates, ``none`` among them, by default those that so many subjects can support. Also returns, for the
    bundle, the cross-fitted ``log_loss`` and ``calibration_error`` of each candidate, and ``why`` it was chosen.
    """
    names = names or candidates(len(y))
    fitted = {name: cross_fitted(FITTERS[name], p, y, folds) for name in names}
    losses = {name: log_loss(values, y) for name, values in fitted.items()}
    errors = {name: _error(values.max(axis=1), values.argmax(axis=1) == y) for name, values in fitted.items()}
    helpful = [name for name in names if losses[name] < losses["none"] and errors[name] < errors["none"]]
    best = min(helpful, key=lambda name: losses[name], default="none")
    figures = ", ".join(f"{name} {losses[name]:.4f} and {errors[name]:.3f}" for name in names)
    few = "" if "isotonic" in losses else f"; isotonic needs {ENOUGH_FOR_ISOTONIC} subjects, here are {len(y)}"
    why = f"log loss and calibration error, cross-fitted over folds: {figures}; applied only if both are lower{few}"
    return FITTERS[best](p, y), {"log_loss": losses, "calibration_error": errors, "why": why}


def cross_fitted(fitter: Callable[[Floats, Ints], Calibration], p: Floats, y: Ints, folds: Ints) -> Floats:
    """Probabilities of each fold, calibrated by the other folds (n x K)."""
    calibrated = np.array(p)
    for fold in np.unique(folds):
        here = folds == fold
        if not here.all():
            calibrated[here] = fitter(p[~here], y[~here])(p[here])
    return calibrated


def cross_calibrated(p: Floats, y: Ints, folds: Ints) -> Floats:
    """Probabilities of each fold, calibrated by a decision that the other folds alone took; parameters as ``decide``.

    The candidates are those of everyone's decision, so that what is judged is what is chosen.
    """
    calibrated, names = np.array(p), candidates(len(y))
    for fold in np.unique(folds):
        here = folds == fold
        calibrated[here] = decide(p[~here], y[~here], folds[~here], names)[0](p[here])
    return calibrated


@dataclass(frozen=True)
class CalibrationError:
    """Expected calibration error of the predicted class: distance of confidence from accuracy, mean over bins.

    ``expected`` is its expectation under perfect calibration, for these subjects: only an error above it is evidence of
    miscalibration.
    """

    value: float
    low: float  # 95 %, see ``calibration_error``
    high: float
    expected: float
    bins: tuple[tuple[float, float, int], ...]  # mean confidence, accuracy, subjects

    def for_json(self) -> dict[str, Any]:
        """As a bundle holds it."""
        return {
            "value": self.value, "ci95": [self.low, self.high], "expected_if_calibrated": self.expected,
            "bins": [{"confidence": c, "accuracy": a, "n": n} for c, a, n in self.bins],
        }  # fmt: skip


def calibration_error(p: Floats, y: Ints) -> CalibrationError:
    """Expected calibration error of held-out probabilities (n x K) and true class numbers (n), with an interval.

    Bins hold equal numbers of subjects, at least 15 each, at most ten bins: with few subjects bins of equal width would
    be empty or hold one.

    Distances are never negative, so with few subjects the error is too large, and resampled it is larger still:
    quantiles of a bootstrap never reach 0, also under perfect calibration. The interval therefore begins at 0 unless
    the error is larger than 95 % of those under perfect calibration for these subjects; otherwise at the reflected
    quantile (2 error - upper). It ends at the bootstrap's upper quantile. In simulations of 65 to 200 subjects (two
    classes; calibrated, overconfident and far overconfident) it covered the true error in 93 to 99 %, the quantiles
    in 0 to 98 %.
    """
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    rng = np.random.default_rng(0)
    again = [_error(confidence[rows], correct[rows]) for rows in resampled_rows(len(y), RESAMPLES, rng)]
    by_chance = [_error(confidence, rng.random(len(y)) < confidence) for _ in range(RESAMPLES)]
    value, high = _error(confidence, correct), float(np.quantile(again, 0.975))
    low = max(0.0, 2 * value - high) if value > np.quantile(by_chance, 0.95) else 0.0
    bins = [(float(confidence[part].mean()), float(correct[part].mean()), len(part)) for part in _bins(confidence)]
    return CalibrationError(value, low, max(value, high), float(np.mean(by_chance)), tuple(bins))


def calibration_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Means over seeds of ``calibration_error``'s ``value``, ``low``, ``high`` and ``expected``."""
    found = [calibration_error(*labelled(rows, classes)) for _, rows in predictions.groupby("seed")]
    names = ("value", "low", "high", "expected")
    return {name: float(np.mean([getattr(error, name) for error in found])) for name in names}


def _bins(confidence: Floats) -> list[NDArray[np.intp]]:
    """The subjects of each bin."""
    n_bins = min(BINS, max(1, len(confidence) // SUBJECTS_PER_BIN))
    return np.array_split(np.argsort(confidence, kind="stable"), n_bins)


def _error(confidence: Floats, correct: NDArray[Any]) -> float:
    gaps = [abs(float((confidence[part] - correct[part]).sum())) for part in _bins(confidence)]
    return sum(gaps) / len(confidence)


def calibration_line(p: Floats, y: NDArray[np.bool_]) -> dict[str, dict[str, Any]]:
    """Calibration slope and intercept of two classes (Cox, 1958), with Wald's 95 % intervals.

    The slope is that of a logistic regression of the outcome on the log-odds: below 1 the probabilities are too
    extreme. The intercept is that of a regression with slope 1 (calibration-in-the-large): below 0 they are too high.
    Each has ``value`` and ``ci95``, None where the classes are separated perfectly.

    Parameters
    ----------
    p, y : ndarray of shape (n,)
        Probability of the positive class, and whether the subject has it.
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
