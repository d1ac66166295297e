"""The arithmetic of a diagnostic test: operating point, proportions with intervals, predictive values, curves.

The threshold applied to a fold is chosen on the held-out predictions of the other folds (cross-fitting, as for
calibration): it does not depend on the fold's diagnoses, given those predictions. The models behind them had the fold's
subjects among their training subjects; a threshold on predictions nested inside each training set would need k times
the runs. ``benchmarks/clinical_coverage.py`` measures that the sensitivity reached is not below the one asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.metrics import wilson

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RULES = "argmax, youden, sensitivity=VALUE or specificity=VALUE, such as sensitivity=.9"
MEASURES = ("sensitivity", "specificity", "ppv", "npv")
THRESHOLDS = np.arange(1, 100) / 100  # of the decision curve


@dataclass(frozen=True)
class OperatingPoint:
    """How the threshold is chosen.

    ``argmax``: no threshold, the class that the method predicts (of two classes, from .5 on). ``youden``: the largest
    sensitivity + specificity - 1 (Youden, 1950). ``sensitivity``, ``specificity``: the stated value (``target``, above
    0 and below 1) is reached at the least cost to the other one.
    """

    rule: str = "argmax"
    target: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """``sensitivity=.9`` and the like, as the command line and ``evaluate`` take it; None is ``argmax``."""
        text = "argmax" if text is None else text
        name, _, value = (part.strip() for part in text.lower().partition("="))
        if name in ("argmax", "youden") and "=" not in text:
            return cls(name)
        try:
            if name in ("sensitivity", "specificity") and 0 < float(value) < 1:
                return cls(name, float(value))
        except ValueError:
            pass
        raise BadUse(f"operating point {text!r}: expected {RULES}, a value above 0 and below 1")

    def __str__(self) -> str:
        return self.rule if self.target is None else f"{self.rule}={self.target:g}"

    @property
    def sentence(self) -> str:
        """How subjects are called positive, for a methods section."""
        if self.rule == "argmax":
            return "A subject is positive where that class is predicted; no threshold was chosen."
        aim = "for the largest Youden index" if self.target is None else f"for a {self.rule} of {100 * self.target:g} %"
        return (
            f"The threshold of a fold was chosen {aim} on the held-out predictions of the other folds only "
            "(cross-fitted; the models of the other folds have trained on its subjects)."
        )

    def threshold(self, p: Floats, y: Bools) -> float:
        """The threshold these subjects give, from 0 (everyone is positive) to just above 1 (nobody is).

        Positive is who has at least this probability ``p`` (n) of the positive class, which the subjects ``y`` (n)
        have. A stated sensitivity is reached as in split conformal prediction (Vovk et al., 2005): with n patients the
        threshold is the ceil(s (n + 1))-th largest of their probabilities, so that a further patient lies at or above
        it with probability s or more; the plain quantile would give ceil(s n) / (n + 1), less than asked for. With too
        few patients for that (s > n / (n + 1)) everyone is positive; likewise for specificity.
        """
        if not y.any() or y.all():
            raise BadData("the operating point needs subjects of both classes in the other folds")
        if self.rule == "argmax":
            return 0.5
        if self.rule == "youden":
            # Halfway between two neighbouring probabilities; of equally good thresholds the one nearest to .5.
            values = np.unique(p)
            candidates = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [np.nextafter(1.0, 2)]])
            positive = p[:, None] >= candidates  # n x thresholds
            index = positive[y].mean(axis=0) - positive[~y].mean(axis=0)
            best = candidates[index >= index.max() - 1e-12]
            return float(best[np.abs(best - 0.5).argmin()])
        assert self.target is not None
        own = np.sort(p[y] if self.rule == "sensitivity" else p[~y])
        rank = math.ceil(round(self.target * (len(own) + 1), 9))
        if self.rule == "sensitivity":
            return float(own[-rank]) if rank <= len(own) else 0.0
        return float(np.nextafter(own[rank - 1] if rank <= len(own) else 1.0, 2))

    def cross_fitted(self, p: Floats, y: Bools, folds: NDArray[np.int64]) -> Floats:
        """The threshold of each subject (n), chosen by ``threshold`` on the subjects of the other folds."""
        thresholds = np.empty(len(p))
        for fold in np.unique(folds):
            here = folds == fold
            thresholds[here] = self.threshold(p[~here], y[~here])
        return thresholds


ARGMAX = OperatingPoint()


@dataclass(frozen=True)
class Proportion:
    """A share of n subjects with its 95 % interval; NaN and 0 to 1 where n is 0."""

    value: float
    low: float
    high: float
    n: float

    @classmethod
    def of(cls, part: float, n: float) -> Self:
        """``part`` of ``n`` with Wilson's interval; means over seeds are no whole numbers."""
        if n <= 0:
            return cls(math.nan, 0.0, 1.0, 0.0)
        share = min(1.0, float(part / n))  # means over seeds round
        return cls(share, *wilson(share, float(n)), float(n))

    @property
    def rest(self) -> Proportion:
        """1 - this."""
        return Proportion(1 - self.value, 1 - self.high, 1 - self.low, self.n)

    def to_dict(self) -> dict[str, Any]:
        """``value`` (None where it is not defined) and ``ci95``."""
        return {"value": None if math.isnan(self.value) else self.value, "ci95": [self.low, self.high]}

    def __str__(self) -> str:
        value = "-" if math.isnan(self.value) else f"{100 * self.value:.0f}"
        return f"{value} ({100 * self.low:.0f} - {100 * self.high:.0f})"


def measures(y: Bools, called: Floats) -> dict[str, Proportion]:
    """``sensitivity``, ``specificity``, ``ppv`` and ``npv``, the last two at the class shares of these subjects.

    Of n subjects, ``y``: whether the subject has the positive class; ``called``: the share of seeds that called it so.
    """
    rest = 1 - called
    parts = (called[y], y), (rest[~y], ~y), (called[y], called), (rest[~y], rest)
    return {name: Proportion.of(part.sum(), n.sum()) for name, (part, n) in zip(MEASURES, parts, strict=True)}


def predictive_values_at(
    prevalence: float, sensitivity: Proportion, specificity: Proportion
) -> tuple[Proportion, Proportion]:
    """PPV and NPV where ``prevalence`` of those tested are patients, by Bayes' rule.

    1 - PPV has the odds (1 - prevalence) / prevalence x (1 - specificity) / sensitivity, likewise 1 - NPV. The interval
    of that ratio of two independent proportions is MOVER's (Donner and Zou, 2012), from the Wilson intervals of both.
    """
    if not (sensitivity.n and specificity.n):  # subjects of one class only
        return Proportion.of(0, 0), Proportion.of(0, 0)
    odds, n = (1 - prevalence) / prevalence, sensitivity.n + specificity.n
    sides = (odds, specificity.rest, sensitivity), (1 / odds, sensitivity.rest, specificity)
    values = [[1 / (1 + prior * factor) for factor in ratio_interval(*pair)] for prior, *pair in sides]
    ppv, npv = (Proportion(value, high, low, n) for value, low, high in values)
    return ppv, npv


def ratio_interval(one: Proportion, other: Proportion) -> tuple[float, float, float]:
    """one / other of independent proportions with a 95 % interval (MOVER-R, Donner and Zou, 2012); NaN for 0 / 0."""
    a, b = one.value, other.value
    least, most = one.low * (2 * a - one.low), one.high * (2 * a - one.high)
    small, large = other.low * (2 * b - other.low), other.high * (2 * b - other.high)
    below = a * b + math.sqrt(max(0.0, (a * b) ** 2 - least * large))
    above = a * b + math.sqrt(max(0.0, (a * b) ** 2 - most * small))
    value = a / b if b > 0 else math.inf if a > 0 else math.nan
    return value, least / below if below > 0 else 0.0, above / small if small > 0 else math.inf


@dataclass(frozen=True)
class Curve:
    """Points of a ROC or precision-recall curve, and its area."""

    x: Floats
    y: Floats
    area: float


def roc_curve(y: Bools, p: Floats) -> Curve:
    """Sensitivity over 1 - specificity, mean over seeds at each number of false positives.

    A staircase whose area is the mean AUROC of the seeds; ties count half. ``y`` (n): whether the subject has the
    positive class; ``p`` (seeds x n): held-out probability of it.
    """
    steps = []
    for row in p:
        patients, others = np.sort(row[y]), row[~y]
        below = np.searchsorted(patients, others, "left") + np.searchsorted(patients, others, "right")
        steps.append(np.sort(1 - below / (2 * len(patients))))  # share of patients above each other subject
    height = np.mean(steps, axis=0)
    across = np.arange(len(height) + 1) / len(height)
    x = np.concatenate([[0.0], np.repeat(across, 2)[1:-1], [1.0]])
    return Curve(x, np.concatenate([[0.0], np.repeat(height, 2), [1.0]]), float(height.mean()))


def precision_recall_curve(y: Bools, p: Floats) -> Curve:
    """Precision over recall, mean over seeds at each number of patients found; parameters as for ``roc_curve``.

    One point per patient; its area is the average precision.
    """
    precision = []
    for row in p:
        thresholds = np.sort(row[y])[::-1]
        found = [np.searchsorted(np.sort(values), thresholds, "left") for values in (row[y], row)]
        precision.append((y.sum() - found[0]) / (len(y) - found[1]))
    mean = np.mean(precision, axis=0)
    return Curve(np.arange(1, len(mean) + 1) / len(mean), mean, float(mean.mean()))


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit over threshold probabilities (Vickers and Elkin, 2006), in true positives per subject."""

    threshold: Floats
    net_benefit: Floats
    low: Floats  # pointwise 95 %
    high: Floats
    treat_all: Floats  # treating nobody has a net benefit of 0
    prevalence: float


def decision_curve(y: Bools, p: Floats, prevalence: float | None = None) -> DecisionCurve:
    """Net benefit of treating whoever has at least the threshold probability t; ``y`` and ``p`` as for ``roc_curve``.

    With prevalence q (by default the cohort's share of patients): sensitivity x q - (1 - specificity) x (1 - q) x t /
    (1 - t). Intervals by MOVER (Zou and Donner, 2008) from Wilson's of both. At another prevalence the odds of all
    probabilities are multiplied by the ratio of the prior odds, which presumes probabilities that are calibrated for
    the cohort.
    """
    share = float(y.mean())
    q = share if prevalence is None else prevalence
    factor = q / (1 - q) / (share / (1 - share))
    p = p * factor / (p * factor + 1 - p)
    found = []
    for t in THRESHOLDS:
        sensitivity, specificity, *_ = measures(y, (p >= t).mean(axis=0)).values()
        false, weight = specificity.rest, (1 - q) * t / (1 - t)
        value = q * sensitivity.value - weight * false.value
        down = math.hypot(q * (sensitivity.value - sensitivity.low), weight * (false.high - false.value))
        up = math.hypot(q * (sensitivity.high - sensitivity.value), weight * (false.value - false.low))
        found.append((value, value - down, value + up, q - weight))
    value, low, high, treat_all = np.array(found).T
    return DecisionCurve(THRESHOLDS, value, low, high, treat_all, q)
