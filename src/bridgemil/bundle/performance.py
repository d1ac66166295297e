"""What cross-validation shows of a bundle's model: scores with intervals, and calibration, cross-fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import Decision, calibration_error, cross_calibrated, decide, log_loss
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.score_intervals import score_intervals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HeldOut:
    """Every person's held-out prediction: n people, K classes."""

    p: Floats  # n x K
    y: Ints  # n
    folds: Ints  # n

    @classmethod
    def of(cls, results: Results) -> HeldOut:
        """From the results of one seed."""
        table, classes = results.predictions, list(results.classes)
        return cls(
            table[[f"p_{name}" for name in classes]].to_numpy(dtype=float),
            table["label"].map(classes.index).to_numpy(dtype=np.int64),
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
    row = results.for_machines()
    intervals = score_intervals(results.predictions, results.classes)
    return {
        "accuracy": {"value": row["accuracy"]["mean"], "ci95": row["ci95"]},
        **{name: {"value": row[name], "ci95": list(intervals[name])} for name in ("balanced_accuracy", "auroc")},
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
