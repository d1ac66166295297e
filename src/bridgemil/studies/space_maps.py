"""Pictures of spaces: a panel each, a point a window; classes by colour and marker, people by shade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.registry import class_colour
from bridgemil.studies import drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
_LAYERS = 8  # classes take turns, so that none covers the others


def draw(points: pd.DataFrame, rows: Sequence[dict[str, Any]], classes: Sequence[str], title: str) -> Figure:
    """A panel for each space, and a legend.

    Parameters
    ----------
    points
        A row a window of a space: space, subject, label, x, y.
    rows
        A row a space: space, accuracy (%), silhouette_by_class, davies_bouldin.
    classes
        In their order.
    title
        Over all.
    """
    down = -(-(len(rows) + 1) // COLUMNS)
    figure, axes = drawing.canvas(COLUMNS, down, width=3.1, height=3.65)
    figure.suptitle(title, fontsize=11)
    for ax, row in zip(axes, rows, strict=False):
        panel = points[points["space"] == row["space"]]
        _panel(ax, panel, classes)
        ax.set_title(f"{row['space']}\n{_numbers(row)}", fontsize=9)
    axes[(down - 1) * COLUMNS].set(xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)")
    for ax in axes[len(rows) :]:
        ax.set_axis_off()
    people = {name: points.loc[points["label"] == name, "subject"].nunique() for name in classes}
    _legend(axes[len(rows)], people)
    return figure


def shade(number: int, position: int, n: int) -> tuple[float, float, float]:
    """The colour of a person: the class's, from dark to light by the person's place among the n of the class."""
    from matplotlib.colors import to_rgb

    plain = np.array(to_rgb(class_colour(number)))
    place = 2 * position / (n - 1) - 1 if n > 1 else 0.0  # -1 darkest, 1 lightest
    mixed = plain + 0.55 * place * (1 - plain) if place > 0 else plain * (1 + 0.55 * place)
    red, green, blue = mixed.tolist()
    return red, green, blue


def _numbers(row: dict[str, Any]) -> str:
    if row["silhouette_by_class"] is None:
        return f"accuracy {row['accuracy']:.1f} %\nno scores"
    return (
        f"accuracy {row['accuracy']:.1f} %\n"
        f"silhouette {row['silhouette_by_class']:.3f}, Davies-Bouldin {row['davies_bouldin']:.2f}"
    )


def _panel(ax: Axes, points: pd.DataFrame, classes: Sequence[str]) -> None:
    layer = np.arange(len(points)) % _LAYERS
    marks = []
    for number, name in enumerate(classes):
        people = sorted(points.loc[points["label"] == name, "subject"].unique())
        tint = {subject: shade(number, i, len(people)) for i, subject in enumerate(people)}
        mine = points["label"] == name
        marks.append((points[mine], [tint[s] for s in points.loc[mine, "subject"]], layer[mine]))
    size = float(np.clip(12000 / max(len(points), 1), 6, 22))
    for turn in range(_LAYERS):
        for number, (part, tints, layers) in enumerate(marks):
            chosen = np.flatnonzero(layers == turn)
            ax.scatter(
                part["x"].to_numpy()[chosen], part["y"].to_numpy()[chosen], s=size, c=[tints[i] for i in chosen],
                marker=drawing.class_marker(number), linewidths=0, alpha=0.75, rasterized=True,
            )  # fmt: skip
    ax.set(xticks=[], yticks=[])
    ax.margins(0.04)
    ax.set_box_aspect(1)
    ax.grid(visible=False)
    ax.spines[["top", "right"]].set_visible(True)
    for side in ax.spines.values():
        side.set_color("0.75")


def _legend(ax: Axes, people: dict[str, int]) -> None:
    """Each class with its marker in the shades of its people."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for number, (name, n) in enumerate(people.items()):
        shown = [
            Line2D([], [], color=shade(number, i, 3), marker=drawing.class_marker(number), linestyle="", markersize=8)
            for i in range(3)
        ]
        handles.append(tuple(shown))
        labels.append(f"{name}: {n} people")
    ax.legend(
        handles, labels, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.4)}, handlelength=4, loc="center",
        frameon=False, fontsize=10, title_fontsize=10,
        title="a point is a window,\na shade a person;\naccuracy: all folds",
    )  # fmt: skip
