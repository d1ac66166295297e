"""Comparing two methods on the same subjects and folds: how large the difference is, and whether it may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.metrics import difference

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """One method against another."""

    one: str
    other: str
    gain: float  # accuracy of ``one`` minus that of ``other``
    low: float  # 95 %, paired bootstrap over subjects
    high: float
    p: float  # corrected resampled t-test over folds and seeds
    p_holm: float  # corrected for the family of comparisons

    @property
    def sentence(self) -> str:
        """What the data do and do not show."""
        span = f"{100 * self.gain:+.1f} points, 95 % {100 * self.low:+.1f} to {100 * self.high:+.1f}; "
        span += f"p = {self.p:.3f}, {self.p_holm:.3f} after Holm"
        if self.low > 0 or self.high < 0:
            better, worse = (self.one, self.other) if self.gain > 0 else (self.other, self.one)
            if self.p_holm < 0.05:
                return f"{better} is more accurate than {worse} here ({self.one} minus {self.other}: {span})."
            return (
                f"{better} may be more accurate than {worse}: the interval over subjects leaves zero out, but the "
                f"corrected test over folds does not confirm it ({self.one} minus {self.other}: {span})."
            )
        return f"No difference between {self.one} and {self.other} is shown ({span})."


def corrected_t_test(differences: NDArray[np.float64], test_to_train: float) -> float:
    """Two-sided p of Nadeau and Bengio's corrected resampled t-test.

    Folds share training subjects, so their differences are not independent; the variance of their mean is taken as
    (1/n + n_test/n_train) times their variance.
    """
    from scipy.stats import t

    n = len(differences)
    if n < 2:
        return 1.0
    variance = float(np.var(differences, ddof=1))
    mean = float(np.mean(differences))
    if variance == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * t.sf(abs(mean) / math.sqrt((1 / n + test_to_train) * variance), n - 1))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that may be read as one family."""
    order = np.argsort(values)
    adjusted, most = np.empty(len(values)), 0.0
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = most
    return [float(value) for value in adjusted]


def compare(one: pd.DataFrame, other: pd.DataFrame, names: tuple[str, str]) -> Comparison:
    """Two methods' predictions on the same seeds, folds and subjects."""
    keys = ["seed", "fold", "subject"]
    if set(map(tuple, one[keys].to_numpy())) != set(map(tuple, other[keys].to_numpy())):
        raise ValueError(f"{names[0]} and {names[1]} were not run on the same seeds, folds and subjects")
    gain, low, high = difference(one, other)
    first, second = (
        (own["label"] == own["predicted"]).astype(float).groupby([own["seed"], own["fold"]]).mean().to_numpy()
        for own in (one, other)
    )
    p = corrected_t_test(first - second, 1 / (int(one["fold"].nunique()) - 2))
    return Comparison(*names, gain, low, high, p, p)


def compare_all(predictions: dict[str, pd.DataFrame]) -> list[Comparison]:
    """Every pair, Holm-corrected as one family."""
    found = [compare(predictions[a], predictions[b], (a, b)) for a, b in combinations(predictions, 2)]
    return [replace(one, p_holm=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)]
