"""Methods of ``Results``: figures, one table, JSON and notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bridgemil import plots
from bridgemil.errors import BadUse, one_of
from bridgemil.evaluation.calibration import calibration_error
from bridgemil.evaluation.clinical import TwoClassMetrics, positive_class
from bridgemil.evaluation.metrics import SCORES, labelled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bridgemil.evaluation.results import Results

BASELINE_KEYS = (  # of a baseline, in JSON
    "accuracy", "balanced_accuracy", "macro_f1", "auroc", "mcc", "ci95", "fold_mean", "sensitivity", "specificity",
    "ppv", "npv", "per_class",
)  # fmt: skip
KINDS = ("forest", "subjects", "roc", "calibration", "confusion")


def plot(results: Results, kind: str = "forest", ax: Axes | None = None) -> Axes:
    """Draw the results.

    Parameters
    ----------
    kind : {"forest", "subjects", "roc", "calibration", "confusion"}
        Accuracy of the method and its baselines with intervals; probabilities of all held-out subjects; ROC curve
        (two classes); calibration of the predicted class; confusion matrix.
    ax : matplotlib.axes.Axes, optional
        New ones by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    one_of("kind", kind, KINDS)
    if kind == "forest":
        return plots.forest(results.to_frame(), ax)
    if kind == "confusion":
        return plots.confusion(results.confusion, ax)
    if kind == "calibration":
        error = calibration_error(*labelled(results.ensemble.predictions, results.classes))
        return plots.calibration(error.bins, f"calibration error {error.value:.3f}", ax)
    if kind == "subjects":
        shown = positive_class(results.classes)[0] if len(results.classes) == 2 else results.classes[0]
        return plots.subjects(results.predictions, results.classes, shown, ax)
    found = results.clinical
    if not isinstance(found, TwoClassMetrics) or not found.has_curves:
        raise BadUse("plot: a ROC curve needs subjects of two classes; use kind='confusion'")
    return plots.curve(found.roc.x, found.roc.y, f"{results.name}: AUROC {found.roc.area:.3f}", ax)


def to_frame(results: Results) -> pd.DataFrame:
    """One row for the method, each baseline and each member of an ensemble: ``role``, then as ``summary``.

    Returns
    -------
    DataFrame
    """
    import pandas as pd

    rows = [results.summary.assign(role="method"), *(one.summary.assign(role=role) for role, one in _others(results))]
    return pd.concat(rows, ignore_index=True)


def _others(results: Results) -> list[tuple[str, Results]]:
    """The baselines, and the members of an ensemble, each with its role."""
    several = {"baseline": results.baselines, "member": results.members}
    return [(role, one) for role, own in several.items() for one in own.values()]


def to_html(results: Results) -> str:
    """The table of ``print(results)`` for notebooks, with audit warnings and comparisons."""
    import pandas as pd

    table = results.to_frame()
    shown = pd.DataFrame({"method": [results.name, *(f"{one.name} ({role})" for role, one in _others(results))]})
    shown["accuracy"] = [plots.percent(value) for value in table["accuracy"]]
    ends = zip(table["ci95_low"], table["ci95_high"], strict=True)
    shown["95 %"] = [f"{plots.percent(low)} to {plots.percent(high)}" for low, high in ends]
    shown["balanced"], shown["AUROC"] = table["balanced_accuracy"].round(3), table["auroc"].round(3)
    notes = [f"{w['level']} {w['check']}: {w['message']}" for w in results.warnings]
    notes += [comparison.sentence for comparison in results.comparisons.values()]
    row = table.iloc[0]
    title = f"{results.settings.title}: {row['n_subjects']} subjects, chance level {plots.percent(row['chance'])} %"
    return plots.html(title, shown, notes)


def to_dict(results: Results) -> dict[str, Any]:
    """The summary, and the comparison with each baseline, as JSON holds them."""
    row = results.summary.iloc[0].to_dict()
    baselines = {}
    for name, baseline in results.baselines.items():
        own = {key: value for key, value in baseline.to_dict().items() if key in BASELINE_KEYS}
        baselines[name] = own | {"comparison": results.comparisons[name].to_dict()}
    return {
        **{name: row[name] for name in ("method", "backbone", "recipe")},
        **{name: {"mean": row[name], "std": row[f"{name}_std"]} for name in ("accuracy", "fold_mean")},
        **{name: None if math.isnan(row[name]) else row[name] for name in SCORES},
        "ci95": [row["ci95_low"], row["ci95_high"]],
        "chance": row["chance"],
        "chance95": [row["chance95_low"], row["chance95_high"]],
        "confusion": {"classes": results.classes, "matrix": results.confusion.to_numpy().tolist()},
        **results.clinical.to_dict(),
        **{name: int(row[name]) for name in ("n_subjects", "folds", "seeds")},
        "split": dict(results.split),
        "budget": row["budget"],
        "subbag_pairs": None if row["subbag_pairs"] is None else int(row["subbag_pairs"]),
        "settings": results.settings.model_dump(mode="json"),
        **{name: row[name] for name in ("settings_hash", "seconds")},
        **{name: getattr(results, name) for name in ("warnings", "adjustment", "tuning")},
        "bands_left_out": dict(results.bands_left_out),
        "groups": records(results.groups),
        "covariates": records(results.covariates(results.unadjusted)),
        "missing_baselines": dict(results.missing_baselines),
        "baselines": baselines,
    }


def records(table: pd.DataFrame) -> list[Any]:
    """The rows of a table; None where a value is not defined."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
