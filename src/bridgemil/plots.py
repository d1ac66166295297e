"""Figures of results, cohorts and models on matplotlib axes, and tables as HTML for notebooks.

Every function draws on the axes it is given, or on new ones, and returns them, as in seaborn and MNE. They take plain
tables; ``Results.plot``, ``Cohort.plot`` and ``Bundle.plot_patterns`` call them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.registry import class_colour

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


def new_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The axes that were given, or those of a new figure of this size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def forest(table: pd.DataFrame, ax: Axes | None = None, colours: Sequence[str] | None = None) -> Axes:
    """Accuracy of each method with its 95 % interval, and the 95 % chance interval.

    ``table`` has one row per method: method, accuracy, ci95_low, ci95_high, chance95_low, chance95_high, n_subjects.
    """
    ax = new_axes(ax, 7, 1.2 + 0.45 * len(table))
    first = table.iloc[0]
    chance = f"95 % chance interval for n = {first['n_subjects']}"
    ax.axvspan(first["chance95_low"], first["chance95_high"], color="grey", alpha=0.2, label=chance)
    rows = np.arange(len(table))
    ax.hlines(rows, table["ci95_low"], table["ci95_high"], colours, linewidth=2)
    ax.scatter(table["accuracy"], rows, c=colours, zorder=3)
    ax.set_yticks(rows, table["method"])
    ax.set(xlim=(0, 1), ylim=(len(table) + 0.2, -0.6), xlabel="accuracy on held-out subjects")
    ax.set_title("Accuracy with 95 % intervals over subjects")
    ax.legend(loc="lower left", frameon=False)
    return ax


def subjects(predictions: pd.DataFrame, classes: Sequence[str], shown: str, ax: Axes | None = None) -> Axes:
    """Probability of the class ``shown`` of every held-out subject, by diagnosis; mean over seeds.

    ``predictions`` has seed, subject, label and p_<class>; ``classes`` go from top to bottom.
    """
    ax = new_axes(ax, 6, 1.2 + 0.7 * len(classes))
    means = predictions.groupby(["subject", "label"])[f"p_{shown}"].mean().reset_index()
    for row, name in enumerate(classes):
        own = means.loc[means["label"] == name, f"p_{shown}"]
        offsets = np.random.default_rng(0).uniform(-0.18, 0.18, len(own))
        ax.scatter(own, row + offsets, s=18, alpha=0.7)
    ax.set_yticks(range(len(classes)), classes)
    if len(classes) == 2:
        ax.axvline(0.5, color="grey", linewidth=1)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(classes) - 0.5, -0.5), xlabel=f"predicted probability of {shown}")
    return ax


def curve(x: Floats, y: Floats, label: str, ax: Axes | None = None) -> Axes:
    """A receiver operating characteristic."""
    ax = new_axes(ax, 4.2, 4)
    ax.plot([0, 1], [0, 1], color="grey", linewidth=1)
    ax.plot(x, y, label=label)
    ax.set(xlabel="1 - specificity", ylabel="sensitivity", aspect="equal", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    ax.legend(loc="lower right", frameon=False)
    return ax


def calibration(bins: Sequence[tuple[float, float, int]], label: str, ax: Axes | None = None) -> Axes:
    """Observed frequency over predicted probability, of bins (predicted, observed, subjects)."""
    ax = new_axes(ax, 4.2, 4)
    predicted, observed, n = np.array(bins).T
    ax.plot([0, 1], [0, 1], color="grey", linewidth=1)
    ax.plot(predicted, observed, linewidth=1)
    ax.scatter(predicted, observed, s=3 * n, label=label)
    ax.set(xlabel="predicted probability", ylabel="observed frequency", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", frameon=False)
    return ax


def confusion(counts: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """A confusion matrix, subjects by diagnosis (rows) and prediction (columns); colours are shares of a row."""
    size = 1.6 + 0.9 * len(counts)
    ax = new_axes(ax, size, size)
    values = counts.to_numpy(dtype=float)
    shares = values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if shares[row, column] > 0.6 else "black"
        ax.text(column, row, f"{value:g}", ha="center", va="center", color=colour)
    ax.set_xticks(range(len(counts)), counts.columns)
    ax.set_yticks(range(len(counts)), counts.index)
    ax.set(xlabel="predicted", ylabel="true")
    return ax


def quartiles(density: Floats) -> Floats:
    """Lower quartile, median and upper quartile (3, F) over subjects, in dB, of densities (subjects, F) in µV²/Hz."""
    return np.asarray(np.percentile(10 * np.log10(density + 1e-12), [25, 50, 75], axis=0))


def spectra(frequencies: Floats, by_class: Mapping[str, Floats], ax: Axes | None = None) -> Axes:
    """Power spectra by class, median and quartiles over subjects, of densities (subjects, F) in µV²/Hz."""
    ax = new_axes(ax, 6, 4)
    for number, (name, density) in enumerate(by_class.items()):
        low, middle, high = quartiles(density)
        hue = class_colour(number)
        ax.plot(frequencies, middle, color=hue, label=f"{name or 'no label'} ({len(density)})")
        ax.fill_between(frequencies, low, high, color=hue, alpha=0.2, linewidth=0)
    ax.set(xlabel="frequency (Hz)", ylabel="power (dB re 1 µV²/Hz)", title="median and quartiles over subjects")
    ax.legend(title="class (subjects)", frameon=False)
    return ax


def html(title: str, table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A heading, a table and notes, as ``_repr_html_`` of notebooks returns them."""
    lines = "".join(f"<p style='margin:.2em 0'>{escape(note)}</p>" for note in notes)
    return f"<strong>{escape(title)}</strong>{table.to_html(index=False, border=0, na_rep='')}{lines}"


def percent(value: Any) -> str:
    """A share as percent with one decimal."""
    return f"{100 * value:.1f}"
