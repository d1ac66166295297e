"""95 % intervals of balanced accuracy, AUROC and calibration error over subjects.

Closed forms: where scores are high, a percentile bootstrap covers far less than 95 %
(``benchmarks/null_simulation.py``). None of them includes retraining variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import calibration_error
from bridgemil.evaluation.metrics import correctness, effective_size, wilson

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Z = 1.96


def score_intervals(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Intervals of ``balanced_accuracy`` and ``auroc``, each of the mean over seeds.

    Parameters
    ----------
    predictions
        Held-out predictions: seed, subject, label, predicted, p_<class>…; the same subjects for every seed.
    classes
        K names, each of them somebody's label.

    Returns
    -------
    dict
        Name of the score to its low and high end.
    """
    seeds = [rows.set_index("subject").sort_index() for _, rows in predictions.groupby("seed", sort=False)]
    labels = seeds[0]["label"].to_numpy()
    members = np.stack([labels == name for name in classes])  # K x n
    correct = correctness(predictions).sort_index().to_numpy(dtype=np.float64)
    p = np.stack([rows[[f"p_{name}" for name in classes]].to_numpy(dtype=np.float64) for rows in seeds])
    return {
        "balanced_accuracy": balanced_accuracy_interval(correct, members, len(seeds)),
        "auroc": auroc_interval(p, members),
    }


def balanced_accuracy_interval(correct: Floats, members: NDArray[np.bool_], repeats: float = 1) -> tuple[float, float]:
    """Wilson intervals of the classes, joined for their mean (MOVER: Zou and Donner 2008).

    Parameters
    ----------
    correct : array (n)
        Mean correctness of each subject.
    members : array (K, n)
        Who is of each class.
    repeats
        Predictions per subject, seeds times splits.
    """
    shares = [float(correct[own].mean()) for own in members]
    ends = [wilson(share, effective_size(correct[own], repeats)) for share, own in zip(shares, members, strict=True)]
    below = math.hypot(*(share - low for share, (low, _) in zip(shares, ends, strict=True)))
    above = math.hypot(*(high - share for share, (_, high) in zip(shares, ends, strict=True)))
    mean, k = float(np.mean(shares)), len(shares)
    return max(0.0, mean - below / k), min(1.0, mean + above / k)


def auroc_interval(p: Floats, members: NDArray[np.bool_]) -> tuple[float, float]:
    """Of the mean AUROC over classes and seeds: DeLong's (1988) variance on the logit scale.

    Where everybody is ranked perfectly, Wilson's for the smallest class.

    Parameters
    ----------
    p : array (seeds, n, K)
        Probabilities, or any score that ranks subjects.
    members : array (K, n)
        Who is of each class.
    """
    areas, influence = [], np.zeros(p.shape[1])
    for scores in p:
        for k, positive in enumerate(members):
            area, own = _influence(scores[:, k], positive)
            areas.append(area)
            influence += own / (len(p) * len(members))
    mean, error = float(np.mean(areas)), math.sqrt(float((influence**2).sum()))
    if error == 0 or not 0 < mean < 1:
        return wilson(mean, int(members.sum(axis=1).min()))
    middle, half = math.log(mean / (1 - mean)), Z * error / (mean * (1 - mean))
    return 1 / (1 + math.exp(half - middle)), 1 / (1 + math.exp(-half - middle))


def _influence(scores: Floats, positive: NDArray[np.bool_]) -> tuple[float, Floats]:
    """The AUROC, and by how much each subject moves it: the sum of squares is DeLong's variance."""
    from scipy.stats import rankdata

    ranks, influence = rankdata(scores), np.empty(len(scores))
    for own, sign in ((positive, 1), (~positive, -1)):
        n, others = int(own.sum()), int((~own).sum())
        beaten = (ranks[own] - rankdata(scores[own])) / others  # share of the other class ranked below
        area = float(beaten.mean())
        influence[own] = sign * (beaten - area) / math.sqrt(n * max(n - 1, 1))
    return 1 - area, influence


def calibration_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Means over seeds of ``calibration_error``'s ``value``, ``low``, ``high`` and ``expected``."""
    found = []
    for _, rows in predictions.groupby("seed"):
        y = rows["label"].map(list(classes).index).to_numpy(dtype=np.int64)
        found.append(calibration_error(rows[[f"p_{name}" for name in classes]].to_numpy(dtype=float), y))
    names = ("value", "low", "high", "expected")
    return {name: float(np.mean([getattr(error, name) for error in found])) for name in names}
