"""Do held-out scores follow age, sex or another covariate, before and after its effect is removed from the features?

The measure is a concordance on the scale of the AUROC: of two subjects of one class, the share of pairs in which the
one with the higher value has the higher score. It is .5 where a score says nothing about the covariate within the
classes, whatever the covariate says about the diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.tables import is_missing

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
RESAMPLES = 2000


def concordance(scores: Floats, values: Floats, strata: Sequence[str]) -> tuple[float, float, float]:
    """Share of pairs of one stratum that scores and values order alike (ties of scores: half), with a 95 % interval.

    Parameters
    ----------
    scores, values : ndarray of shape (n,)
        Of each subject; pairs of equal values are not counted.
    strata : sequence, length n
        Only pairs of one stratum are counted.

    Returns
    -------
    tuple of float
        The share and its percentile bootstrap interval over subjects; NaN where there is no pair.
    """
    codes = np.unique(np.asarray(strata), return_inverse=True)[1]
    order = np.sign(values[:, None] - values[None, :])
    counted = (order > 0) & (codes[:, None] == codes[None, :])
    alike = np.where(counted, (np.sign(scores[:, None] - scores[None, :]) + 1) / 2, 0.0)
    rng, n = np.random.default_rng(0), len(scores)
    weights = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float64)
    shares = [_share(weight, alike, counted) for weight in (np.ones((1, n)), weights)]
    low, high = np.nanquantile(shares[1], [0.025, 0.975]) if counted.any() else (np.nan, np.nan)
    return float(shares[0][0]), float(low), float(high)


def _share(weights: Floats, alike: Floats, counted: NDArray[np.bool_]) -> Floats:
    """Of each row of weights (m x n), the share of pairs that are ordered alike."""
    pairs = ((weights @ counted) * weights).sum(axis=1)
    sums: Floats = ((weights @ alike) * weights).sum(axis=1)
    shares: Floats = np.divide(sums, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)
    return shares


def numbers(values: Sequence[Any]) -> Floats:
    """A column as numbers; words as their place in sorted order."""
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError):
        return np.unique([str(value) for value in values], return_inverse=True)[1].astype(np.float64)


def associations(
    predictions: pd.DataFrame,
    rows: Mapping[str, Mapping[str, Any]],
    columns: Sequence[str],
    control: str,
    within_folds: bool,
) -> list[dict[str, Any]]:
    """How far the covariates tell patients from controls, and how far held-out scores follow them within classes.

    Parameters
    ----------
    predictions : DataFrame
        seed, fold, subject, label, p_<class>…; the score is 1 - p_<control>, mean over seeds.
    rows : mapping
        Columns by subject.
    columns : sequence of str
        The covariates.
    control : str
        The control class.
    within_folds : bool
        Compare subjects of one fold only, where folds are sites.

    Returns
    -------
    list of dict
        ``covariate``; ``diagnosis``, the AUROC of the covariate alone, in the better direction; ``score``,
        ``score_low`` and ``score_high``, the concordance of the held-out scores with it.
    """
    if not columns:
        return []
    table = predictions.groupby("subject").agg(
        label=("label", "first"), fold=("fold", "first"), p=(f"p_{control}", "mean")
    )
    found = []
    for column in columns:
        known = table[[not is_missing(rows.get(str(subject), {}).get(column)) for subject in table.index]]
        values = numbers([rows[str(subject)][column] for subject in known.index])
        patient = np.array([float(label != control) for label in known["label"]])
        alone = concordance(values, patient, [""] * len(known))[0]
        strata = [
            f"{label} {fold if within_folds else ''}" for label, fold in zip(known["label"], known["fold"], strict=True)
        ]
        score, low, high = concordance(1 - known["p"].to_numpy(dtype=np.float64), values, strata)
        names = {"covariate": column, "diagnosis": max(alone, 1 - alone)}
        found.append(names | {"score": score, "score_low": low, "score_high": high})
    return found
