"""Scores of several results taken together: seeds, and splits of several split seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results, compare_splits
from bridgemil.evaluation.statistics import Comparison

if TYPE_CHECKING:
    import pandas as pd


def pooled(results: Sequence[Results]) -> pd.DataFrame:
    """Held-out predictions of several results (splits), each seed of each as a seed of its own."""
    import pandas as pd

    tables, first = [], 0
    for result in results:
        codes = {seed: first + i for i, seed in enumerate(sorted(result.predictions["seed"].unique()))}
        tables.append(result.predictions.assign(seed=result.predictions["seed"].map(codes)))
        first += len(codes)
    return pd.concat(tables, ignore_index=True)


def score(results: Sequence[Results]) -> dict[str, Any]:
    """Accuracy in percent with its spread over seeds and splits and a 95 % interval over subjects; and the others."""
    predictions, classes = pooled(results), results[0].classes
    per_seed = [rows for _, rows in predictions.groupby("seed")]
    each = [metrics.accuracy(rows) for rows in per_seed]
    others = [metrics.scores(rows, classes) for rows in per_seed]
    low, high = metrics.accuracy_interval(predictions)
    return {
        "accuracy": 100 * metrics.accuracy(predictions),
        "sd": round(100 * float(np.std(each)), 9),  # rounding is no spread
        "ci95_low": 100 * low,
        "ci95_high": 100 * high,
        "fold_mean": 100 * metrics.fold_mean(predictions),
        **{name: float(np.mean([row[name] for row in others])) for name in ("balanced_accuracy", "auroc")},
        "subjects": int(predictions["subject"].nunique()),
        "runs_of_all_folds": len(per_seed),
    }


def compared(
    results: Sequence[Results], reference: Sequence[Results], names: tuple[str, str] | None = None
) -> Comparison:
    """A condition against its reference on the same subjects, seeds and splits, by the one test of the package."""
    found = compare_splits(results, reference)
    return found if names is None else replace(found, one=names[0], other=names[1])


def columns(comparison: Comparison) -> dict[str, Any]:
    """A comparison as columns of a table; differences in points."""
    c = comparison
    gains = {"gain": 100 * c.difference, "gain95_low": 100 * c.low, "gain95_high": 100 * c.high}
    return gains | {"p": c.p, "p_holm": c.p_holm}


def right_of_each(results: Sequence[Results]) -> pd.DataFrame:
    """By subject: its ``label``, and how often it was ``right`` over all results and seeds, 0 to 1."""
    predictions = pooled(results)
    right = (predictions["label"] == predictions["predicted"]).astype(float)
    table = predictions[["subject", "label"]].assign(right=right)
    return table.groupby("subject").agg(label=("label", "first"), right=("right", "mean"))


def balanced_resamples(
    right: NDArray[np.float64], labels: Sequence[str], resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Balanced accuracy, and what it is on people drawn anew within their class.

    Parameters
    ----------
    right
        How often each person was right in each condition, people x conditions.
    labels
        Of the people.
    resamples
        How often to draw.

    Returns
    -------
    (conditions) and (resamples x conditions); the same people are drawn for every condition.
    """
    rng, names = np.random.default_rng(0), np.asarray(labels)
    observed, drawn = [], []
    for name in sorted(set(labels)):
        mine = right[names == name]
        observed.append(mine.mean(axis=0))
        counts = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), resamples)
        drawn.append(counts @ mine / len(mine))
    return np.mean(observed, axis=0), np.mean(drawn, axis=0)


def balanced_interval(results: Sequence[Results]) -> tuple[float, float]:
    """A 95 % interval of the balanced accuracy, subjects drawn anew within their class."""
    people = right_of_each(results)
    right = people[["right"]].to_numpy(dtype=np.float64)
    _, drawn = balanced_resamples(right, people["label"].tolist(), metrics.RESAMPLES)
    low, high = np.quantile(drawn[:, 0], [0.025, 0.975])
    return float(low), float(high)
