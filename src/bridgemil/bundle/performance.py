"""What cross-validation shows of a bundle's model: scores with intervals, and calibration, cross-fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import Decision, calibration_error, cross_calibrated, decide, log_loss
from bridgemil.evaluation.results import Results

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RESAMPLES = 1000


@dataclass(frozen=True)
class HeldOut:
    """Every person's held-out prediction: n people, K classes."""

    p: Floats  # n x K
    y: Ints  # n
    predicted: Ints  # n
    folds: Ints  # n

    @classmethod
    def of(cls, results: Results) -> HeldOut:
        """From the results of one seed."""
        table, classes = results.predictions, list(results.classes)
        return cls(
            table[[f"p_{name}" for name in classes]].to_numpy(dtype=float),
            table["label"].map(classes.index).to_numpy(dtype=np.int64),
            table["predicted"].map(classes.index).to_numpy(dtype=np.int64),
            table["fold"].to_numpy(dtype=np.int64),
        )


def judge_calibration(held_out: HeldOut) -> tuple[Decision, dict[str, Any]]:
    """The calibration that these predictions carry, and the calibration error before and after, honestly.

    The error after is of probabilities that were calibrated by the other folds only, decision included.
    """
    p, y, folds = held_out.p, held_out.y, held_out.folds
    decision, after = decide(p, y, folds), cross_calibrated(p, y, folds)
    figures = {
        "before": calibration_error(p, y).for_json() | {"log_loss": log_loss(p, y)},
        "after": calibration_error(after, y).for_json() | {"log_loss": log_loss(after, y)},
    }
    return decision, figures


def measure(results: Results) -> dict[str, Any]:
    """Accuracy, balanced accuracy and AUROC of held-out people, each with a 95 % bootstrap interval over people."""
    held_out = HeldOut.of(results)
    row = results.for_machines()
    k = held_out.p.shape[1]
    return {
        "accuracy": {"value": row["accuracy"]["mean"], "ci95": row["ci95"]},
        "balanced_accuracy": {
            "value": row["balanced_accuracy"],
            "ci95": _interval(held_out, lambda h: _balanced(h.y, h.predicted, k)),
        },
        "auroc": {"value": row["auroc"], "ci95": _interval(held_out, lambda h: _auroc(h.y, h.p))},
        **{name: row[name] for name in ("macro_f1", "mcc", "chance", "chance95", "confusion", "n_subjects", "folds")},
        "split": row["split"],
        "floors": {name: floor["mean"] for name, floor in row["floors"].items()},
    }


def no_better_than_guessing(found: Mapping[str, Any]) -> str | None:
    """A sentence if cross-validation does not show more than guessing; None if it does.

    Parameters
    ----------
    found
        From ``measure``.
    """
    low, guessing = found["balanced_accuracy"]["ci95"][0], 1 / len(found["confusion"]["classes"])
    if low > guessing:
        return None
    return (
        "the model was not shown to be better than guessing: balanced accuracy "
        f"{found['balanced_accuracy']['value']:.2f}"
        f" on {found['n_subjects']} held-out people, from {low:.2f} at the low end of its interval; guessing gives "
        f"{guessing:.2f}"
    )


def _interval(held_out: HeldOut, score: Callable[[HeldOut], float]) -> list[float]:
    """Percentiles over people drawn with replacement; draws without one of the classes do not count."""
    rng, values = np.random.default_rng(0), list[float]()
    n, k = held_out.p.shape
    for rows in rng.integers(0, n, (RESAMPLES, n)):
        drawn = HeldOut(held_out.p[rows], held_out.y[rows], held_out.predicted[rows], held_out.folds[rows])
        if len(np.unique(drawn.y)) == k:
            values.append(score(drawn))
    low, high = np.quantile(values, [0.025, 0.975])
    return [float(low), float(high)]


def _balanced(y: Ints, predicted: Ints, n_classes: int) -> float:
    return float(np.mean([(predicted[y == k] == k).mean() for k in range(n_classes)]))


def _auroc(y: Ints, p: Floats) -> float:
    """One class against the rest, mean over classes."""
    from scipy.stats import rankdata

    values = []
    for k in range(p.shape[1]):
        ranks, positive = rankdata(p[:, k]), y == k
        n_positive, n_negative = positive.sum(), (~positive).sum()
        values.append((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))
    return float(np.mean(values))
