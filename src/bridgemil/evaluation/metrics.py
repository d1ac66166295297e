"""Scores of held-out predictions: accuracy pooled over subjects, the usual scores, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 10_000


def accuracy(predictions: pd.DataFrame) -> float:
    """Accuracy pooled over held-out subjects; with several seeds or splits, of each subject's mean correctness."""
    return float(correctness(predictions).mean())


def fold_mean(predictions: pd.DataFrame) -> float:
    """Mean over folds of the fold's subject accuracy, mean over seeds: how the paper reports accuracy.

    Folds of unequal size weigh subjects unequally; it is reported beside the paper's numbers only.
    """
    correct = (predictions["label"] == predictions["predicted"]).astype(float)
    return float(correct.groupby([predictions["seed"], predictions["fold"]]).mean().groupby(level=0).mean().mean())


def correctness(predictions: pd.DataFrame) -> pd.Series:
    """By subject: the share of its predictions that are correct, over seeds and splits."""
    correct = (predictions["label"] == predictions["predicted"]).astype(float)
    return correct.groupby(predictions["subject"]).mean()


def scores(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Scores of one seed over all its held-out subjects; AUROC (one against the rest) from their probabilities."""
    from sklearn.metrics import f1_score, matthews_corrcoef, recall_score, roc_auc_score

    true = predictions["label"].map(list(classes).index).to_numpy()
    said = predictions["predicted"].map(list(classes).index).to_numpy()
    p = predictions[[f"p_{name}" for name in classes]].to_numpy()
    labels = list(range(len(classes)))
    return {
        "balanced_accuracy": float(recall_score(true, said, labels=labels, average="macro", zero_division=0)),
        "macro_f1": float(f1_score(true, said, labels=labels, average="macro", zero_division=0)),
        "auroc": float(np.mean([roc_auc_score(true == k, p[:, k]) for k in labels])),
        "mcc": float(matthews_corrcoef(true, said)),
    }


def accuracy_interval(predictions: pd.DataFrame) -> tuple[float, float]:
    """A 95 % Wilson interval of the accuracy over subjects.

    A percentile bootstrap covers less than it says where accuracy is high (``benchmarks/null_simulation.py``). With
    several seeds or splits a subject counts with its mean correctness, whose variance sets the effective number of
    subjects. The interval does not include retraining variance.
    """
    correct = correctness(predictions).to_numpy(dtype=np.float64)
    return wilson(float(correct.mean()), effective_size(correct, len(predictions) / len(correct)))


def effective_size(correct: NDArray[np.float64], repeats: float) -> float:
    """How many independent subjects have a mean as certain as this one: share (1 - share) / variance of the mean.

    Parameters
    ----------
    correct
        Mean correctness of each subject, 0 to 1.
    repeats
        Predictions per subject; the size is at most that many times the subjects.
    """
    share, variance, n = float(correct.mean()), float(correct.var()), len(correct)
    return n * min(repeats, share * (1 - share) / variance) if variance > 0 else float(n)


def bootstrap(values: NDArray[np.float64]) -> tuple[float, float]:
    """A 95 % percentile interval of the mean of one value per subject, subjects drawn with replacement.

    Parameters
    ----------
    values
        One value per subject.
    """
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.round(np.quantile(values[drawn].mean(axis=1), [0.025, 0.975]), 12) + 0.0  # no -0.0
    return float(low), float(high)


def chance(labels: Sequence[str]) -> tuple[float, float, float]:
    """Chance level (the share of the largest class) and its 95 % chance interval for this number of subjects."""
    from scipy.stats import binom

    n = len(labels)
    rate = max(list(labels).count(name) for name in set(labels)) / n
    low, high = binom.interval(0.95, n, rate)
    return rate, float(low) / n, float(high) / n


def wilson(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share: it stays wide where all subjects, or none, were correctly classified.

    Parameters
    ----------
    share
        Of subjects correctly classified.
    n
        Number of subjects.
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
