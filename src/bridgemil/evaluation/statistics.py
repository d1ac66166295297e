"""Comparing two methods on the same subjects and folds: how large the difference is, and whether it may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.metrics import difference, sign_flip_test

if TYPE_CHECKING:
    import pandas as pd

TEST = "max(sign-flip, corrected resampled t)"  # what p is the larger of
NO_VARIANCE = 1e-12  # of accuracies: nothing but rounding


@dataclass(frozen=True)
class Comparison:
    """One method against another."""

    one: str
    other: str
    gain: float  # accuracy of ``one`` minus that of ``other``
    low: float  # 95 %, paired bootstrap over subjects
    high: float
    p: float  # corrected resampled t-test over folds, or sign-flip test over subjects: the larger
    p_holm: float  # corrected for the family of comparisons
    seeds: int  # that both were run with

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; differences as shares, not points."""
        return {
            "difference": self.gain, "ci95": [self.low, self.high], "p": self.p, "test": TEST,
            "sentence": self.sentence,
        }  # fmt: skip

    @property
    def sentence(self) -> str:
        """What the data do and do not show."""
        span = f"{points(self.gain)} points, 95 % {points(self.low)} to {points(self.high)}; "
        span += f"{p_text(self.p)}{f', after Holm {p_text(self.p_holm)}' if self.p_holm != self.p else ''}; "
        span += "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        if self.low > 0 or self.high < 0:
            better, worse = (self.one, self.other) if self.gain > 0 else (self.other, self.one)
            if self.p_holm < 0.05:
                return f"{better} is more accurate than {worse} here ({self.one} minus {self.other}: {span})."
            return (
                f"{better} may be more accurate than {worse}: the interval over subjects leaves zero out, but the "
                f"tests do not confirm it ({self.one} minus {self.other}: {span})."
            )
        return f"No difference between {self.one} and {self.other} is shown ({span})."


def points(gain: float) -> str:
    """A difference of accuracies in points, with its sign; what rounds to nothing has a plus."""
    return f"{round(100 * gain, 1) + 0.0:+.1f}"


def p_text(value: float) -> str:
    """A p-value as it is printed."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def corrected_t_test(differences: NDArray[np.float64], test_to_train: float) -> float:
    """Two-sided p of Nadeau and Bengio's corrected resampled t-test; NaN where the differences do not vary.

    Folds share training subjects, so their differences are not independent; the variance of their mean is taken as
    (1/n + n_test/n_train) times their variance.
    """
    from scipy.stats import t

    n, variance = len(differences), float(np.var(differences, ddof=1))
    if variance < NO_VARIANCE:
        return math.nan
    return float(2 * t.sf(abs(np.mean(differences)) / math.sqrt((1 / n + test_to_train) * variance), n - 1))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that may be read as one family."""
    order = np.argsort(values)
    adjusted, most = np.empty(len(values)), 0.0
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = most
    return [float(value) for value in adjusted]


def compare(one: pd.DataFrame, other: pd.DataFrame, names: tuple[str, str]) -> Comparison:
    """Two methods' predictions on the same seeds, folds and subjects.

    All seeds share one split, so they are no further resamples: a fold's difference is its mean over seeds. Where folds
    hardly vary, one subject in each, the test over them is far too sure: p is the larger of it and the sign-flip test.
    """
    keys = ["seed", "fold", "subject"]
    if set(map(tuple, one[keys].to_numpy())) != set(map(tuple, other[keys].to_numpy())):
        raise ValueError(f"{names[0]} and {names[1]} were not run on the same seeds, folds and subjects")
    gain, low, high = difference(one, other)
    p = corrected_t_test(_gains(one, other), 1 / max(1, int(one["fold"].nunique()) - 2))
    p = max(0.0 if math.isnan(p) else p, sign_flip_test(one, other))
    return Comparison(*names, gain, low, high, p, p, int(one["seed"].nunique()))


def _gains(one: pd.DataFrame, other: pd.DataFrame) -> NDArray[np.float64]:
    """Of each fold."""
    right = [(own["label"] == own["predicted"]).astype(float).groupby(own["fold"]).mean() for own in (one, other)]
    return np.asarray(right[0] - right[1], dtype=np.float64)
