"""How sure balanced accuracy, AUROC and calibration error are: 95 % intervals over people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import calibration_error
from bridgemil.evaluation.metrics import wilson

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
RESAMPLES = 1000


def score_intervals(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Intervals of ``balanced_accuracy`` and ``auroc``, each the mean over seeds of what a seed's people give.

    Percentiles, or Wilson's where all draws agree; draws in which a class has nobody do not count. Nothing is trained
    anew.

    Parameters
    ----------
    predictions
        Held-out predictions: seed, subject, label, predicted, p_<class>…; the same people for every seed.
    classes
        K names, each of them somebody's label.

    Returns
    -------
    dict
        Name of the score to its low and high end.
    """
    seeds = [rows.set_index("subject") for _, rows in predictions.groupby("seed", sort=False)]
    people = seeds[0].index
    y = seeds[0]["label"].map(list(classes).index).to_numpy(dtype=np.int64)
    drawn = np.random.default_rng(0).integers(0, len(y), (RESAMPLES, len(y)))
    members = np.stack([y == k for k in range(len(classes))])  # K x n
    drawn = drawn[(members[:, drawn].any(axis=2)).all(axis=0)]
    scores = {"balanced_accuracy": np.zeros(len(drawn)), "auroc": np.zeros(len(drawn))}
    for rows in (seed.loc[people] for seed in seeds):
        correct = (rows["label"] == rows["predicted"]).to_numpy()
        p = rows[[f"p_{name}" for name in classes]].to_numpy(dtype=float)
        scores["balanced_accuracy"] += _balanced(correct[drawn], members[:, drawn]) / len(seeds)
        scores["auroc"] += _auroc(p[drawn], members[:, drawn]) / len(seeds)
    found = {}
    for name, values in scores.items():
        low, high = map(float, np.quantile(values, [0.025, 0.975]))
        # All right, or perfectly ranked: to draw them anew shows nothing. The smallest class is what is known least.
        found[name] = wilson(min(1.0, low), int(members.sum(axis=1).min())) if low == high else (low, high)
    return found


def calibration_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Means over seeds of ``calibration_error``'s ``value``, ``low``, ``high`` and ``expected``."""
    found = []
    for _, rows in predictions.groupby("seed"):
        y = rows["label"].map(list(classes).index).to_numpy(dtype=np.int64)
        found.append(calibration_error(rows[[f"p_{name}" for name in classes]].to_numpy(dtype=float), y))
    names = ("value", "low", "high", "expected")
    return {name: float(np.mean([getattr(error, name) for error in found])) for name in names}


def _balanced(correct: NDArray[np.bool_], members: NDArray[np.bool_]) -> Floats:
    """Of each draw (D x n, K x D x n) the mean over classes of the share said right."""
    right: Floats = ((correct & members).sum(axis=2) / members.sum(axis=2)).mean(axis=0)
    return right


def _auroc(p: Floats, members: NDArray[np.bool_]) -> Floats:
    """Of each draw (D x n x K, K x D x n): one class against the rest, mean over classes."""
    from scipy.stats import rankdata

    areas = np.zeros(len(p))
    for k, positive in enumerate(members):
        ranks, n_positive = rankdata(p[:, :, k], axis=1), positive.sum(axis=1)
        beaten = (ranks * positive).sum(axis=1) - n_positive * (n_positive + 1) / 2
        areas += beaten / (n_positive * (p.shape[1] - n_positive)) / len(members)
    return areas
