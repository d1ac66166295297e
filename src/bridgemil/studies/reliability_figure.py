"""The figure of the study ``reliability``: agreement of single subjects, and accuracy against K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.evaluation import metrics
from bridgemil.registry import class_colour
from bridgemil.studies import drawing
from bridgemil.studies.context import StudyContext

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RULES: dict[str, dict[str, Any]] = {  # told apart by marker and line, too
    "top": {"color": "#d55e00", "marker": "o", "linestyle": "-"},
    "random": {"color": "#7d8287", "marker": "D", "linestyle": ":"},
    "bottom": {"color": "#2f6f9f", "marker": "s", "linestyle": "--"},
}
_SHIFT = 0.13  # between the rules at one K, so that their intervals stand side by side


def figure(
    context: StudyContext, people: pd.DataFrame, by_class: pd.DataFrame, rows: Sequence[dict[str, Any]]
) -> Figure:
    """A row of panels a cohort: agreement, then accuracy against K for each kind of gates.

    Parameters
    ----------
    context
        Its cohorts.
    people
        A row a subject: cohort, label, and the agreement of its windows.
    by_class
        Mean agreement of each class with its interval.
    rows
        Of the table of accuracies.
    """
    kinds = [kind for kind in ("plain", "nested") if any(row["gates"] == kind for row in rows)]
    drawn, axes = drawing.canvas(1 + len(kinds), len(context.cohorts), width=4.9, height=4.4)
    places = iter(axes)
    for cohort in context.cohorts:
        name = context.name(cohort)
        _agreement(
            next(places), people[people["cohort"] == name], by_class[by_class["cohort"] == name], cohort.classes, name
        )
        mine = [row for row in rows if row["cohort"] == name]
        level = 100 * metrics.chance(cohort.labels)[0]
        span = _span(mine, level)
        for kind in kinds:
            shown = [row for row in mine if row["gates"] in ("none", kind)]
            _accuracy(next(places), shown, level, span, f"{name}: {kind} gates")
    return drawn


def _agreement(ax: Axes, people: pd.DataFrame, by_class: pd.DataFrame, classes: Sequence[str], name: str) -> None:
    rng = np.random.default_rng(0)  # the same picture each time
    for x, label in enumerate(classes):
        shares = 100 * people.loc[people["label"] == label, "agreement"].to_numpy()
        ax.scatter(
            x - 0.08 + rng.uniform(-0.2, 0.2, len(shares)), shares, s=24, alpha=0.75, color=class_colour(x),
            marker=drawing.class_marker(x), edgecolors="white", linewidths=0.5,
        )  # fmt: skip
        row = by_class[by_class["label"] == label].iloc[0]
        mean, low, high = (100 * float(row[key]) for key in ("agreement", "agreement95_low", "agreement95_high"))
        below, above = max(0, mean - low), max(0, high - mean)  # where all are alike, rounding may turn the sign
        ax.errorbar(
            x + 0.28, mean, [[below], [above]], color="black", marker="_", markersize=13, capsize=4, linewidth=1.6,
            markeredgewidth=1.8, label="mean, 95 % over subjects" if x == 0 else None,
        )  # fmt: skip
    ax.axhline(50, color="0.45", linewidth=1, linestyle="--", zorder=1, label="below: most windows disagree")
    counts = [int((people["label"] == label).sum()) for label in classes]
    ax.set_xticks(range(len(classes)), [f"{label} (n = {n})" for label, n in zip(classes, counts, strict=True)])
    ax.set(xlim=(-0.5, len(classes) - 0.4), ylim=(-3, 103), ylabel="windows that agree with the subject's label (%)")
    ax.set_title(f"{name}: held-out subjects, majority vote", fontsize=10)
    _legend(ax, 2)


def _span(rows: Sequence[dict[str, Any]], level: float) -> tuple[float, float]:
    """Limits of accuracy, the same for the panels of a cohort."""
    low = min(level, *(row["ci95_low"] for row in rows))
    high = max(level, *(row["ci95_high"] for row in rows))
    return max(0.0, low - 4), min(102.0, high + 4)


def _accuracy(ax: Axes, rows: Sequence[dict[str, Any]], level: float, span: tuple[float, float], title: str) -> None:
    sizes = sorted({row["k"] for row in rows if row["k"]})
    for number, (rule, style) in enumerate(_RULES.items()):
        mine = sorted((row for row in rows if row["rule"] == rule), key=lambda row: int(row["k"]))
        x = np.array([sizes.index(row["k"]) for row in mine]) + (number - 1) * _SHIFT
        y = np.array([row["accuracy"] for row in mine])
        low, high = (np.array([row[key] for row in mine]) for key in ("ci95_low", "ci95_high"))
        ax.errorbar(
            x, y, [np.maximum(y - low, 0), np.maximum(high - y, 0)], markersize=6.5, linewidth=1.5, capsize=3,
            markeredgecolor="white", markeredgewidth=0.5, label=f"{rule} K", zorder=3, **style,
        )  # fmt: skip
    everything = next(row for row in rows if row["rule"] == "all")
    ax.axhspan(everything["ci95_low"], everything["ci95_high"], color="0.9", zorder=0, label="all: 95 %")
    ax.axhline(everything["accuracy"], color="black", linewidth=1.4, linestyle="-.", zorder=2, label="all windows")
    drawing.chance_line(ax, level)
    ax.set_xticks(range(len(sizes)), [str(k) for k in sizes])
    ax.set(xlim=(-0.5, len(sizes) - 0.5), ylim=span, xlabel="K: training windows of each subject")
    ax.set_ylabel("accuracy of held-out subjects (%)")
    ax.set_title(title, fontsize=10)
    _legend(ax, 3)


def _legend(ax: Axes, columns: int) -> None:
    """Below the axes, where nothing is drawn; what has intervals first."""
    from matplotlib.container import ErrorbarContainer

    pairs = sorted(
        zip(*ax.get_legend_handles_labels(), strict=True), key=lambda p: not isinstance(p[0], ErrorbarContainer)
    )
    handles, labels = zip(*pairs, strict=True)
    ax.legend(
        handles, labels, frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns
    )
