"""What cross-validation shows of a bundle's model: scores with intervals, and calibration, cross-fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.evaluation.calibration import Decision, calibration_error, cross_calibrated, decide, log_loss
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.score_intervals import score_intervals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DEALS = 2000  # permutations of the diagnoses


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


def as_said(results: Results) -> Results:
    """The held-out people with the class that a bundle would say: the likeliest after a calibration by other folds.

    A vote's own prediction, and the likeliest class before an isotonic calibration, may be another.
    """
    held_out = HeldOut.of(results)
    likeliest = cross_calibrated(held_out.p, held_out.y, held_out.folds).argmax(axis=1)
    return replace(results, predictions=results.predictions.assign(predicted=np.asarray(results.classes)[likeliest]))


def measure(results: Results) -> dict[str, Any]:
    """Accuracy, balanced accuracy and AUROC of held-out people, each with a 95 % bootstrap interval over people.

    ``p_guessing``: permutation p-value of the balanced accuracy, diagnoses permuted over subjects.
    """
    row = results.to_dict()
    intervals = score_intervals(results.predictions, results.classes)
    return {
        "accuracy": {"value": row["accuracy"]["mean"], "ci95": row["ci95"]},
        **{name: {"value": row[name], "ci95": list(intervals[name])} for name in ("balanced_accuracy", "auroc")},
        **{name: row[name] for name in ("macro_f1", "mcc", "chance", "chance95", "confusion", "n_subjects", "folds")},
        "clinical": results.clinical.to_dict(curves=False),
        "p_guessing": _by_guessing(results),
        "split": row["split"],
        "baselines": {name: baseline["accuracy"]["mean"] for name, baseline in row["baselines"].items()},
    }


def _by_guessing(results: Results) -> float:
    said, true = (results.predictions[name].to_numpy() for name in ("predicted", "label"))
    rng, classes = np.random.default_rng(0), results.classes

    def balanced(labels: NDArray[Any]) -> float:
        return float(np.mean([(said[labels == name] == name).mean() for name in classes]))

    dealt = np.array([balanced(rng.permutation(true)) for _ in range(DEALS)])
    return float((1 + (dealt >= balanced(true) - 1e-12).sum()) / (1 + DEALS))


def not_better_than_chance(found: Mapping[str, Any]) -> str | None:
    """A sentence if cross-validation does not show a performance above chance level; None if it does.

    Parameters
    ----------
    found
        From ``measure``.
    """
    low, chance = found["balanced_accuracy"]["ci95"][0], 1 / len(found["confusion"]["classes"])
    p = found["p_guessing"]
    if low > chance and p < 0.025:
        return None
    return (
        f"not shown to be better than chance: balanced accuracy {found['balanced_accuracy']['value']:.2f} on "
        f"{found['n_subjects']} held-out subjects (lower limit of the 95 % interval {low:.2f}, chance level "
        f"{chance:.2f}, permutation p = {p:.3f})"
    )
