"""Clinical metrics of held-out predictions: what a diagnostic test is reported with (STARD, TRIPOD+AI).

Two classes, one of them the positive (patient) class: sensitivity, specificity and predictive values at an operating
point, predictive values at another prevalence, ROC, precision-recall and decision curves. More classes: sensitivity and
specificity of each class against the rest. Everything is computed from predictions: no run changes.

Several seeds judge the same subjects. A subject counts once, with the share of seeds that called it positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.tables import control_classes
from bridgemil.errors import BadUse, one_of
from bridgemil.evaluation.diagnostic_accuracy import (
    ARGMAX,
    MEASURES,
    Bools,
    Curve,
    DecisionCurve,
    Floats,
    OperatingPoint,
    Proportion,
    decision_curve,
    measures,
    precision_recall_curve,
    predictive_values_at,
    roc_curve,
)

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str, str, float | None, Proportion]  # class, measure, prevalence, its value
TITLES = dict(zip(MEASURES, ("sensitivity", "specificity", "PPV", "NPV"), strict=True))
INTERVALS = (
    "95 % intervals: Wilson's over subjects, with the thresholds as chosen. They do not include retraining variance."
)


def positive_class(classes: Sequence[str], named: str | None = None) -> tuple[str, str]:
    """The positive class of two, and why it is that one.

    By default the class that is not named as controls; where both or neither are, the second in sorted order (class
    number 1, scikit-learn's convention).
    """
    if named is not None:
        one_of("positive class", named, classes)
        return named, "as given"
    controls = control_classes(classes)
    if len(controls) == 1:
        return next(name for name in classes if name not in controls), f"{controls[0]} is interpreted as the controls"
    what = "both names are" if controls else "neither name is"
    return sorted(classes)[1], f"{what} known for controls, so the second class is taken; name it with --positive"


@dataclass(frozen=True)
class ClinicalOptions:
    """What the user chose; see ``evaluate``."""

    positive: str | None = None
    operating_point: OperatingPoint = ARGMAX
    prevalence: float | None = None

    def __post_init__(self) -> None:
        if self.prevalence is not None and not 0 < self.prevalence < 1:
            raise BadUse(f"prevalence must lie between 0 and 1 (10 % is .1), got {self.prevalence:g}")

    def check(self, classes: Sequence[str]) -> None:
        """Refuse what these classes do not allow, before anything is run."""
        if len(classes) == 2:
            positive_class(classes, self.positive)
        elif self != ClinicalOptions():
            raise BadUse(
                f"--positive, --operating-point and --prevalence are for two classes; this cohort has {len(classes)} "
                f"({', '.join(classes)}). Prepare it with two of them (`prepare --classes`), or leave the options out."
            )


@dataclass(frozen=True)
class TwoClassMetrics:
    """Clinical metrics of one positive class against another, of n subjects."""

    positive: str
    reason: str  # why it is the positive class
    options: ClinicalOptions
    thresholds: pd.DataFrame  # seed, fold, threshold; empty for ``argmax``
    y: Bools  # n: whether the subject has the positive class
    p: Floats  # seeds x n: held-out probability of it
    called: Floats  # n: share of seeds that called the subject positive at the operating point

    @property
    def measures(self) -> dict[str, Proportion]:
        """``sensitivity``, ``specificity``, ``ppv`` and ``npv``, the last two at the cohort's class shares."""
        return measures(self.y, self.called)

    @property
    def at_prevalence(self) -> dict[str, Proportion]:
        """``ppv`` and ``npv`` at the stated prevalence; empty where none was stated."""
        if self.options.prevalence is None:
            return {}
        sensitivity, specificity, *_ = self.measures.values()
        found = predictive_values_at(self.options.prevalence, sensitivity, specificity)
        return dict(zip(MEASURES[2:], found, strict=True))

    @property
    def has_curves(self) -> bool:
        """Whether both classes occur: without that there is no ROC, precision-recall or decision curve."""
        return bool(self.y.any() and not self.y.all())

    @cached_property
    def roc(self) -> Curve:
        """1 - specificity and sensitivity."""
        return roc_curve(self.y, self.p)

    @cached_property
    def pr(self) -> Curve:
        """Recall and precision."""
        return precision_recall_curve(self.y, self.p)

    @cached_property
    def decision(self) -> DecisionCurve:
        """Net benefit, at the stated prevalence if there is one."""
        return decision_curve(self.y, self.p, self.options.prevalence)

    @property
    def table(self) -> pd.DataFrame:
        """One row per measure: class, measure, prevalence, value, ci95_low, ci95_high, n."""
        share = float(self.y.mean())
        sides = (share, self.measures), (self.options.prevalence, self.at_prevalence)
        return _table([(self.positive, name, at, one) for at, own in sides for name, one in own.items()])

    @property
    def sentences(self) -> list[str]:
        """What the numbers are to be read with."""
        return [
            f"Positive class: {self.positive} ({self.reason}). Operating point: {self.options.operating_point}. "
            f"{self.options.operating_point.sentence}",
            f"PPV and NPV at the cohort's share of {self.positive}, {100 * self.y.mean():.0f} %.",
        ]

    @property
    def method(self) -> str:
        """How the measures were computed, for a methods section."""
        stated = self.options.prevalence
        bayes = "" if stated is None else (
            f" Predictive values at a prevalence of {100 * stated:g} % follow by Bayes' rule, with intervals that "
            "combine those of sensitivity and specificity (MOVER; Donner and Zou 2012)."
        )  # fmt: skip
        return (
            f"Sensitivity, specificity and predictive values (at the cohort's class shares) are of the positive class "
            f"{self.positive}. {self.options.operating_point.sentence}{bayes} Net benefit follows Vickers and Elkin "
            "(2006)."
        )

    @property
    def threshold_range(self) -> str:
        """The lowest and highest threshold of the folds, in words."""
        low, high = self.thresholds["threshold"].min(), min(1.0, self.thresholds["threshold"].max())
        return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"

    @property
    def unreached(self) -> str | None:
        """A warning where too few subjects carry the stated sensitivity or specificity."""
        one_sided = (self.thresholds["threshold"] <= 0) | (self.thresholds["threshold"] > 1)
        if not one_sided.any():
            return None
        return (
            f"too few subjects for {self.options.operating_point}: in {one_sided.sum()} of {len(one_sided)} folds "
            "everyone is called the same class"
        )

    def to_dict(self, curves: bool = True) -> dict[str, Any]:
        """As ``evaluate --json`` prints it; without curves, as a bundle holds it."""
        point = {"rule": str(self.options.operating_point), "thresholds": self.thresholds.to_dict("records")}
        content: dict[str, Any] = {"positive": self.positive, "positive_reason": self.reason, "operating_point": point}
        content |= {name: found.to_dict() for name, found in self.measures.items()}
        if self.at_prevalence:
            stated = {name: found.to_dict() for name, found in self.at_prevalence.items()}
            content["at_prevalence"] = {"prevalence": self.options.prevalence, **stated}
        if not curves:
            return content
        if not self.has_curves:
            return content | dict.fromkeys(("roc", "pr", "decision_curve"))
        roc, pr, decision = self.roc, self.pr, self.decision
        return content | {
            "roc": {"fpr": _short(roc.x), "tpr": _short(roc.y), "auroc": roc.area},
            "pr": {"recall": _short(pr.x), "precision": _short(pr.y), "average_precision": pr.area},
            "decision_curve": {
                "prevalence": decision.prevalence,
                **{name: _short(getattr(decision, name)) for name in ("threshold", "net_benefit", "treat_all")},
                "ci95_low": _short(decision.low), "ci95_high": _short(decision.high),
            },
        }  # fmt: skip


@dataclass(frozen=True)
class PerClassMetrics:
    """Sensitivity and specificity of each of several classes against the rest, of the predicted class."""

    classes: dict[str, dict[str, Proportion]]

    @property
    def table(self) -> pd.DataFrame:
        """One row per class and measure: class, measure, prevalence, value, ci95_low, ci95_high, n."""
        return _table([(name, m, None, found) for name, own in self.classes.items() for m, found in own.items()])

    @property
    def method(self) -> str:
        """How the measures were computed, for a methods section."""
        return "Sensitivity and specificity are of each class against the rest, by the predicted class."

    def to_dict(self, curves: bool = True) -> dict[str, Any]:
        """As ``evaluate --json`` prints it."""
        return {
            "per_class": {name: {m: found.to_dict() for m, found in own.items()} for name, own in self.classes.items()}
        }


def clinical_metrics(
    predictions: pd.DataFrame, classes: Sequence[str], options: ClinicalOptions | None = None
) -> TwoClassMetrics | PerClassMetrics:
    """Clinical metrics of held-out predictions of K classes; ``options`` are for two classes only.

    Predictions are ``seed, fold, subject, label, predicted, p_<class>…``; every seed has every subject once, in the
    same fold.
    """
    import pandas as pd

    options = options or ClinicalOptions()
    options.check(classes)
    rows = predictions.sort_values(["seed", "subject"], kind="stable")
    seeds = int(rows["seed"].nunique())
    first = rows[rows["seed"] == rows["seed"].iloc[0]]
    label, folds = first["label"].to_numpy(), first["fold"].to_numpy(dtype=np.int64)
    predicted = rows["predicted"].to_numpy().reshape(seeds, -1)
    if len(classes) != 2:
        each = {name: measures(label == name, (predicted == name).mean(axis=0)) for name in classes}
        return PerClassMetrics({name: {m: found[m] for m in MEASURES[:2]} for name, found in each.items()})
    positive, reason = positive_class(classes, options.positive)
    y, p = label == positive, rows[f"p_{positive}"].to_numpy(dtype=np.float64).reshape(seeds, -1)
    called, thresholds = predicted == positive, pd.DataFrame(columns=["seed", "fold", "threshold"])
    if options.operating_point.rule != "argmax":
        chosen = np.stack([options.operating_point.cross_fitted(row, y, folds) for row in p])
        called = p >= chosen
        thresholds = rows[["seed", "fold"]].assign(threshold=chosen.ravel()).drop_duplicates(["seed", "fold"])
        thresholds = thresholds.sort_values(["seed", "fold"], ignore_index=True)
    return TwoClassMetrics(positive, reason, options, thresholds, y, p, called.mean(axis=0))


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    import pandas as pd

    columns = ["class", "measure", "prevalence", "value", "ci95_low", "ci95_high", "n"]
    return pd.DataFrame([(*names, f.value, f.low, f.high, f.n) for *names, f in rows], columns=columns)


def _short(values: Floats) -> list[float]:
    return [round(float(value), 6) for value in values]
