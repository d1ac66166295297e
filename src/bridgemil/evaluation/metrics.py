"""Scores of held-out predictions with 95 % intervals over subjects.

Intervals are closed forms: where scores are high, a percentile bootstrap covers far less than 95 %
(``benchmarks/null_simulation.py``). None of them includes retraining variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
RESAMPLES = 10_000
Z = 1.96
SCORES = ("balanced_accuracy", "macro_f1", "auroc", "mcc")  # beside accuracy; not defined unless all classes occur


def labelled(predictions: pd.DataFrame, classes: Sequence[str]) -> tuple[Floats, NDArray[np.int64]]:
    """Held-out probabilities (n x K) and true class numbers (n) of a table of predictions."""
    p = predictions[[f"p_{name}" for name in classes]].to_numpy(dtype=np.float64)
    return p, predictions["label"].map(list(classes).index).to_numpy(dtype=np.int64)


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
    """Scores of one seed over all its held-out subjects; AUROC (one against the rest) from their probabilities.

    All are NaN where one of the classes is nobody's label, as in a test set of controls only.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef, recall_score, roc_auc_score

    if set(predictions["label"]) != set(classes):
        return dict.fromkeys(SCORES, math.nan)
    p, true = labelled(predictions, classes)
    predicted = predictions["predicted"].map(list(classes).index).to_numpy()
    how: dict[str, Any] = {"labels": range(len(classes)), "average": "macro", "zero_division": 0}
    return {
        "balanced_accuracy": float(recall_score(true, predicted, **how)),
        "macro_f1": float(f1_score(true, predicted, **how)),
        "auroc": float(np.mean([roc_auc_score(true == k, p[:, k]) for k in range(len(classes))])),
        "mcc": float(matthews_corrcoef(true, predicted)),
    }


def accuracy_interval(predictions: pd.DataFrame) -> tuple[float, float]:
    """A 95 % Wilson interval of the accuracy over subjects; it does not include retraining variance.

    With several seeds or splits a subject counts with its mean correctness, whose variance sets the effective number of
    subjects.
    """
    correct = correctness(predictions).to_numpy(dtype=np.float64)
    return wilson(float(correct.mean()), effective_size(correct, len(predictions) / len(correct)))


def effective_size(correct: Floats, repeats: float) -> float:
    """How many independent subjects have a mean as certain as this one: share (1 - share) / variance of the mean.

    At most ``repeats`` (the predictions of a subject) times the subjects, whose mean correctness is ``correct``.
    """
    share, variance, n = float(correct.mean()), float(correct.var()), len(correct)
    return n * min(repeats, share * (1 - share) / variance) if variance > 0 else float(n)


def resampled_means(values: Floats, classes: Sequence[str] | None = None, resamples: int = RESAMPLES) -> Floats:
    """Means of subjects drawn with replacement: (resamples, …) from one value (or several, n x …) per subject.

    With ``classes`` (n) subjects are drawn within their class, and the mean is over the classes' means.
    """
    rng, names = np.random.default_rng(0), np.asarray(["all"] * len(values) if classes is None else classes)
    groups = [values[names == name] for name in np.unique(names)]
    return np.asarray(np.mean([own[resampled_rows(len(own), resamples, rng)].mean(axis=1) for own in groups], axis=0))


def bootstrap(values: Floats) -> tuple[float, float]:
    """A 95 % percentile interval of the mean of one value per subject, subjects drawn with replacement."""
    low, high = np.round(np.quantile(resampled_means(values), [0.025, 0.975]), 12) + 0.0  # no -0.0
    return float(low), float(high)


def resampled_rows(n: int, resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of n subjects drawn with replacement (resamples x n): every bootstrap of the package draws them here."""
    return rng.integers(0, n, (resamples, n))


def chance(labels: Sequence[str]) -> tuple[float, float, float]:
    """Chance level (the share of the largest class) and its 95 % chance interval for this number of subjects."""
    from scipy.stats import binom

    n = len(labels)
    rate = max(list(labels).count(name) for name in set(labels)) / n
    low, high = binom.interval(0.95, n, rate)
    return rate, float(low) / n, float(high) / n


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n subjects: it stays wide where all of them, or none, are counted."""
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * np.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def score_intervals(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Low and high end of ``balanced_accuracy`` and ``auroc``, each of the mean over seeds.

    Of held-out predictions (seed, subject, label, predicted, p_<class>…) with the same subjects for every seed, and K
    classes, each of them somebody's label.
    """
    seeds = [rows.set_index("subject").sort_index() for _, rows in predictions.groupby("seed", sort=False)]
    p, y = zip(*(labelled(rows, classes) for rows in seeds), strict=True)
    members = y[0] == np.arange(len(classes))[:, None]  # K x n
    correct = correctness(predictions).sort_index().to_numpy(dtype=np.float64)
    return {
        "balanced_accuracy": balanced_accuracy_interval(correct, members, len(seeds)),
        "auroc": auroc_interval(np.stack(p), members),
    }


def balanced_accuracy_interval(correct: Floats, members: NDArray[np.bool_], repeats: float = 1) -> tuple[float, float]:
    """Wilson intervals of the classes, joined for their mean (MOVER: Zou and Donner 2008).

    ``correct`` (n) is the mean correctness of each subject over ``repeats`` predictions (seeds times splits),
    ``members`` (K x n) who is of each class.
    """
    shares = [float(correct[own].mean()) for own in members]
    ends = [wilson(share, effective_size(correct[own], repeats)) for share, own in zip(shares, members, strict=True)]
    below = math.hypot(*(share - low for share, (low, _) in zip(shares, ends, strict=True)))
    above = math.hypot(*(high - share for share, (_, high) in zip(shares, ends, strict=True)))
    mean, k = float(np.mean(shares)), len(shares)
    return max(0.0, mean - below / k), min(1.0, mean + above / k)


def auroc_interval(p: Floats, members: NDArray[np.bool_]) -> tuple[float, float]:
    """Of the mean AUROC over classes and seeds: DeLong's (1988) variance on the logit scale.

    Where everybody is ranked perfectly, Wilson's for the smallest class. ``p`` (seeds x n x K) are probabilities, or
    any score that ranks subjects, ``members`` (K x n) who is of each class.
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
