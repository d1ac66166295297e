"""What held-out predictions show: accuracy as the protocol defines it, the usual scores, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 10_000


def seed_accuracy(predictions: pd.DataFrame) -> float:
    """Accuracy of one seed: the mean over folds of the fold's subject accuracy."""
    correct = predictions["label"] == predictions["predicted"]
    return float(correct.groupby(predictions["fold"]).mean().mean())


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


def bootstrap(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> tuple[float, float]:
    """A 95 % percentile interval of the (weighted) mean, subjects drawn with replacement."""
    weights = np.ones(len(values)) if weights is None else weights
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    means = (values * weights)[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    low, high = np.round(np.quantile(means, [0.025, 0.975]), 12) + 0.0  # rounding is no difference; and no -0.0
    return float(low), float(high)


def accuracy_interval(predictions: pd.DataFrame) -> tuple[float, float]:
    """A 95 % bootstrap interval of the accuracy over subjects.

    A subject counts with its mean over seeds and the weight its fold gives it, so that the interval is that of the
    reported number. It says how far another draw of test subjects could move it; it does not retrain. Where all are
    right, or all wrong, it is Wilson's.
    """
    people = _people(predictions)
    correct = people["correct"].to_numpy(dtype=float)
    if correct.min() == correct.max():  # all right, or all wrong: to draw them anew shows nothing
        return wilson(float(correct[0]), len(correct))
    return bootstrap(correct, people["weight"].to_numpy(dtype=float))


def difference(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float, float, float]:
    """How much more accurate the first is than the second on the same subjects, with a paired 95 % interval."""
    gains, weights = _gains(one, other)
    return float(np.average(gains, weights=weights)), *bootstrap(gains, weights)


def sign_flip_test(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """Two-sided p of the difference, were each subject's gain as likely to have the other sign.

    Where few subjects differ, the interval of ``difference`` is too narrow and this test is not.
    """
    gains, weights = _gains(one, other)
    parts = (gains * weights)[gains != 0]
    exact = 2 ** len(parts) <= RESAMPLES  # then every pattern of signs is looked at
    if exact:
        patterns = np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1
    else:
        patterns = np.random.default_rng(0).integers(0, 2, (RESAMPLES, len(parts)))
    as_large = np.abs((2.0 * patterns - 1) @ parts) >= abs(parts.sum()) - 1e-12
    return float(as_large.mean() if exact else (1 + as_large.sum()) / (1 + RESAMPLES))


def _gains(one: pd.DataFrame, other: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much more often each subject is right with the first, and what the subject weighs."""
    first, second = _people(one), _people(other)
    if set(first.index) != set(second.index):
        raise ValueError("the two were not evaluated on the same subjects")
    gains = first["correct"] - second["correct"].reindex(first.index)
    return gains.to_numpy(dtype=np.float64), first["weight"].to_numpy(dtype=np.float64)


def _people(predictions: pd.DataFrame) -> pd.DataFrame:
    """A row a subject: how often it was right over seeds, and the weight its folds give it in the accuracy.

    Seeds may be of several splits: their weighted mean is the mean over seeds of the accuracy of each.
    """
    sizes = predictions.groupby(["seed", "fold"])["subject"].transform("size")
    correct = (predictions["label"] == predictions["predicted"]).astype(float)
    table = predictions[["subject"]].assign(weight=1 / sizes, correct=correct / sizes)
    people = table.groupby("subject")[["correct", "weight"]].sum()
    return people.assign(correct=people["correct"] / people["weight"])


def chance(labels: Sequence[str]) -> tuple[float, float, float]:
    """What guessing the largest class gives, and the 95 % range of a guesser with that rate on so many subjects."""
    from scipy.stats import binom

    n = len(labels)
    rate = max(list(labels).count(name) for name in set(labels)) / n
    low, high = binom.interval(0.95, n, rate)
    return rate, float(low) / n, float(high) / n


def wilson(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share: it stays wide where few people were all right or all wrong.

    Parameters
    ----------
    share
        Of people said right.
    n
        How many people.
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
