"""Calibration of held-out probabilities, and the expected calibration error.

A calibration is a function from probabilities to probabilities, stored as a few numbers. Which one is applied, if any,
is decided by cross-fitting over the folds:

- ``none``: the probabilities unchanged.
- ``temperature``: temperature scaling (Guo et al., 2017). It sharpens or softens, and never changes the prediction.
- ``isotonic``: isotonic regression of each class, renormalised (Zadrozny and Elkan, 2002); with many subjects only.

A calibration is applied only if, cross-fitted, it lowers both the log loss and the expected calibration error; among
those, the one with the lowest log loss. Log loss alone is not enough: a few confident errors dominate it, and the
temperature that repairs them can make the probabilities of everyone else worse. What is reported of the calibrated
probabilities is cross-fitted once more around that decision, so that no subject's outcome is used for the calibration
that is evaluated on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData
from bridgemil.evaluation.metrics import resampled_rows

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENOUGH_FOR_ISOTONIC = 200  # subjects; with fewer a step function overfits
LEAST = 1e-12  # probabilities below are rounding errors
TEMPERATURES = (0.05, 20.0)
UNINFORMATIVE = 10.0  # a temperature at which the probabilities of all classes become about equal
BINS, SUBJECTS_PER_BIN = 10, 15  # of the calibration error: at most so many bins, at least so many subjects in each
RESAMPLES = 1000


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
        return {"kind": self.kind, **vars(self)}


@dataclass(frozen=True)
class Temperature(Calibration):
    """Temperature scaling, logits divided by ``value``: above 1 it softens, below 1 it sharpens."""

    value: float
    kind: ClassVar[str] = "temperature"

    def __call__(self, p: Floats) -> Floats:
        """Probabilities to the power of 1 / value, renormalised."""
        logits = np.log(np.maximum(p, LEAST)) / self.value
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scaled: Floats = weights / weights.sum(axis=-1, keepdims=True)
        return scaled

    @property
    def sentence(self) -> str:
        """For reports and the model card."""
        if self.value >= UNINFORMATIVE:
            return f"temperature scaling (T = {self.value:.1f}): confidence was uninformative, all classes about equal"
        return f"temperature scaling: {'softened' if self.value > 1 else 'sharpened'} (T = {self.value:.2f})"


@dataclass(frozen=True)
class Isotonic(Calibration):
    """Isotonic regression of each class, by its thresholds; probabilities are renormalised.

    Parameters
    ----------
    corners
        Of each class: predicted probabilities, rising, and calibrated ones.
    least
        Lower limit of a class before renormalising: so few subjects do not support certainty.
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


def from_json(content: Mapping[str, Any]) -> Calibration:
    """Undo ``for_json``."""
    try:
        if content["kind"] == "none":
            return Calibration()
        if content["kind"] == "temperature":
            value = float(content["value"])
            if not TEMPERATURES[0] / 2 <= value <= TEMPERATURES[1] * 2:
                raise ValueError(f"a temperature of {value}")
            return Temperature(value)
        if content["kind"] == "isotonic":
            corners = tuple((tuple(map(float, x)), tuple(map(float, y))) for x, y in content["corners"])
            return Isotonic(corners, float(content["least"]))
        if content["kind"] == "shift":
            from bridgemil.evaluation.recalibration import Shift

            return Shift(float(content["value"]), int(content["of"]), from_json(content["first"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"the calibration is damaged ({error!r})") from None
    raise BadData(f"calibration {content['kind']!r}: this version knows none, temperature, isotonic and shift")


def log_loss(p: Floats, y: Ints) -> float:
    """Mean of -log of the true class's probability; of probabilities n x K and class numbers n."""
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], LEAST)).mean())


def fit_temperature(p: Floats, y: Ints) -> Temperature:
    """The temperature with the lowest log loss on held-out subjects.

    Targets are smoothed as Platt's are, by the number of subjects of each class: even if all are classified correctly,
    no temperature makes the model certain. Parameters as for ``decide``.
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


FITTERS: dict[str, Callable[[Floats, Ints], Calibration]] = {
    "none": lambda p, y: Calibration(),
    "temperature": fit_temperature,
    "isotonic": fit_isotonic,
}


@dataclass(frozen=True)
class Decision:
    """Which calibration is applied."""

    calibration: Calibration
    losses: Mapping[str, float]  # cross-fitted log loss of each candidate
    errors: Mapping[str, float]  # cross-fitted expected calibration error of each candidate
    why: str

    def for_json(self) -> dict[str, Any]:
        """As a bundle holds it."""
        return self.calibration.for_json() | {
            "log_loss": dict(self.losses), "calibration_error": dict(self.errors), "why": self.why
        }  # fmt: skip


def candidates(n: int) -> list[str]:
    """The calibrations that n subjects can support."""
    return [name for name in FITTERS if name != "isotonic" or n >= ENOUGH_FOR_ISOTONIC]


def decide(p: Floats, y: Ints, folds: Ints, names: Sequence[str] | None = None) -> Decision:
    """Choose a calibration by cross-fitting over folds, and fit it on all subjects given.

    Parameters
    ----------
    p : shape (n, K)
        Held-out probabilities.
    y : shape (n,)
        True class numbers.
    folds : shape (n,)
        Fold of each subject: a fold is calibrated by the others only.
    names
        The candidates, ``none`` among them; by default those that so many subjects can support.
    """
    names = names or candidates(len(y))
    fitted = {name: cross_fitted(FITTERS[name], p, y, folds) for name in names}
    losses = {name: log_loss(values, y) for name, values in fitted.items()}
    errors = {name: expected_calibration_error(values, y) for name, values in fitted.items()}
    helpful = [name for name in names if losses[name] < losses["none"] and errors[name] < errors["none"]]
    best = min(helpful, key=lambda name: losses[name], default="none")
    figures = ", ".join(f"{name} {losses[name]:.4f} and {errors[name]:.3f}" for name in names)
    few = "" if "isotonic" in losses else f"; isotonic needs {ENOUGH_FOR_ISOTONIC} subjects, here are {len(y)}"
    why = f"log loss and calibration error, cross-fitted over folds: {figures}; applied only if both are lower{few}"
    return Decision(FITTERS[best](p, y), losses, errors, why)


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
        calibrated[here] = decide(p[~here], y[~here], folds[~here], names).calibration(p[here])
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
    """Expected calibration error, with an interval.

    Bins hold equal numbers of subjects, at least 15 each, at most ten bins: with few subjects bins of equal width would
    be empty or hold one.

    Distances are never negative, so with few subjects the error is too large, and resampled it is larger still:
    quantiles of a bootstrap never reach 0, also under perfect calibration. The interval therefore begins at 0 unless
    the error is larger than 95 % of those under perfect calibration for these subjects; otherwise at the reflected
    quantile (2 error - upper). It ends at the bootstrap's upper quantile. In simulations of 65 to 200 subjects (two
    classes; calibrated, overconfident and far overconfident) it covered the true error in 93 to 99 %, the quantiles
    in 0 to 98 %.

    Parameters
    ----------
    p : shape (n, K)
        Probabilities of held-out subjects.
    y : shape (n,)
        True class numbers.
    """
    confidence, correct = _confidence(p, y)
    rng = np.random.default_rng(0)
    again = [_error(confidence[rows], correct[rows]) for rows in resampled_rows(len(y), RESAMPLES, rng)]
    by_chance = [_error(confidence, rng.random(len(y)) < confidence) for _ in range(RESAMPLES)]
    value, high = _error(confidence, correct), float(np.quantile(again, 0.975))
    low = max(0.0, 2 * value - high) if value > np.quantile(by_chance, 0.95) else 0.0
    bins = [(float(confidence[part].mean()), float(correct[part].mean()), len(part)) for part in _bins(confidence)]
    return CalibrationError(value, low, max(value, high), float(np.mean(by_chance)), tuple(bins))


def expected_calibration_error(p: Floats, y: Ints) -> float:
    """The value of ``calibration_error`` alone."""
    return _error(*_confidence(p, y))


def calibration_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Means over seeds of ``calibration_error``'s ``value``, ``low``, ``high`` and ``expected``."""
    found = []
    for _, rows in predictions.groupby("seed"):
        y = rows["label"].map(list(classes).index).to_numpy(dtype=np.int64)
        found.append(calibration_error(rows[[f"p_{name}" for name in classes]].to_numpy(dtype=float), y))
    names = ("value", "low", "high", "expected")
    return {name: float(np.mean([getattr(error, name) for error in found])) for name in names}


def _confidence(p: Floats, y: Ints) -> tuple[Floats, Floats]:
    """Probability of the predicted class, and whether it is correct."""
    return p.max(axis=1), (p.argmax(axis=1) == y).astype(float)


def _bins(confidence: Floats) -> list[NDArray[np.intp]]:
    """The subjects of each bin."""
    n_bins = min(BINS, max(1, len(confidence) // SUBJECTS_PER_BIN))
    return np.array_split(np.argsort(confidence, kind="stable"), n_bins)


def _error(confidence: Floats, correct: NDArray[Any]) -> float:
    gaps = [abs(float((confidence[part] - correct[part]).sum())) for part in _bins(confidence)]
    return sum(gaps) / len(confidence)
