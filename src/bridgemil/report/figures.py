"""Figures as PNG, PDF or SVG files: a cohort, accuracies of methods, and what the figures of studies are drawn with."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil import methods, plots
from bridgemil.registry import class_colour
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

PLAIN: Any = {"text.parse_math": False}  # of matplotlib: a class may be called $x
CHANCE = "chance level (largest class)"
CLASS_MARKERS = "osD^vP"
METHOD_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}
SCORE = ("accuracy", "ci95_low", "ci95_high")  # keys of a row: a value and both ends of its interval


def canvas(
    columns: int = 1, rows: int = 1, width: float = 5.0, height: float = 3.8, **how: Any
) -> tuple[Figure, list[Axes]]:
    """A figure outside pyplot, with its axes from left to right and top to bottom; ``how`` as for ``subplots``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **how).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def drawn(figure: Figure, ending: str) -> bytes:
    """A figure as a file; the same figure gives the same bytes: no date, and names in the SVG that do not change."""
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bridgemil"}):
        figure.savefig(stream, format=ending, dpi=130, metadata={"Date": None} if ending == "svg" else None)
    return stream.getvalue()


def look(method: str) -> dict[str, Any]:
    """Colour and marker of a method, for matplotlib."""
    style = methods.entry(method)
    return {"color": style.colour, "marker": METHOD_MARKERS[style.marker]}


def class_look(number: int) -> dict[str, Any]:
    """Colour and marker of a class, by its number in the cohort."""
    return {"color": class_colour(number), "marker": CLASS_MARKERS[number % len(CLASS_MARKERS)]}


def interval_rows(
    ax: Axes, rows: Sequence[Mapping[str, Any]], names: Sequence[str], keys: Sequence[str] = SCORE
) -> None:
    """Values with their intervals, one below the other, each in the colour of its method.

    ``names`` are the methods of the rows; a row without the value is left out.
    """
    for y, (row, name) in enumerate(zip(rows, names, strict=True)):
        if keys[0] in row:
            value, low, high = (row[key] for key in keys)
            ax.plot([low, high], [y, y], color=look(name)["color"], linewidth=2)
            ax.plot(value, y, markersize=7, linestyle="none", **look(name))
    ax.set_yticks(range(len(rows)), names)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="0.92", linewidth=0.8)
    ax.set_ylim(len(rows) - 0.4, -0.6)


def intervals(
    ax: Axes, x: Sequence[float], rows: Sequence[Mapping[str, Any]], keys: Sequence[str] = SCORE, **how: Any
) -> None:
    """Values with their intervals, side by side; ``how`` as for ``errorbar``."""
    value, low, high = (np.array([row[key] for row in rows], dtype=float) for key in keys)
    ends = [np.maximum(value - low, 0), np.maximum(high - value, 0)]  # where all are alike, rounding may turn the sign
    style: dict[str, Any] = {"linestyle": "none", "elinewidth": 2, **how}
    ax.errorbar(x, value, ends, **style)


def chance_line(ax: Axes, level: float, *, vertical: bool = False, named: bool = False) -> None:
    """The chance level in percent; ``named`` writes what it is next to it, for axes without a legend."""
    draw = ax.axvline if vertical else ax.axhline
    draw(level, color="0.45", linewidth=1, linestyle=":", label=CHANCE, zorder=1)
    if named:
        ax.annotate(
            CHANCE, (level, 0) if vertical else (1, level), xytext=(3, 4) if vertical else (0, 2),
            xycoords=("data", "axes fraction") if vertical else ("axes fraction", "data"), textcoords="offset points",
            rotation=90 if vertical else 0, ha="left" if vertical else "right", va="bottom", fontsize=7, color="0.35",
        )  # fmt: skip


def _write(figure: Figure, path: Path) -> None:
    with new_file(path) as stream:
        stream.write(drawn(figure, path.suffix[1:].lower()))


def draw_cohort(cohort: Cohort, path: Path, show: bool = True) -> None:
    """Draw power spectra by class with their quartiles over subjects, and the number of windows of each subject.

    The suffix of ``path`` (PNG, PDF or SVG) is the format; ``show`` shows on standard error that it is being drawn.
    """
    import matplotlib as mpl
    from rich.console import Console

    classes = cohort.classes or [""]
    counts = [[r.n_windows for r in cohort.records.values() if r.label == name] for name in classes]
    with Console(stderr=True, quiet=not show).status("drawing"), mpl.rc_context(PLAIN):
        figure, (left, right) = canvas(2, width=5.5, height=4.2, width_ratios=(1.6, 1))
        cohort.plot(left)
        for number, own in enumerate(counts):
            offsets = np.random.default_rng(0).uniform(-0.15, 0.15, len(own))
            right.scatter(number + offsets, own, s=14, alpha=0.7, **class_look(number))
        right.set(ylabel="windows", title="windows of each subject", ylim=(0, 1.08 * max(map(max, counts))))
        right.set_xticks(range(len(classes)), [name or "no label" for name in classes])
        size = f"{len(cohort)} subjects, {cohort.n_windows:,} windows, {len(cohort.channels)} channels"
        title = f"{cohort.path.name if cohort.path else 'cohort'}: {size}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        _write(figure, path)


def draw_accuracy(path: Path, results: Sequence[Results]) -> None:
    """Draw the accuracy of methods on the same subjects with 95 % intervals, and the chance interval; as a PNG, …."""
    import matplotlib as mpl
    import pandas as pd

    table = pd.concat([result.summary.assign(method=result.name) for result in results])
    with mpl.rc_context(PLAIN):
        figure, (ax,) = canvas(width=7, height=1.2 + 0.45 * len(results))
        plots.forest(table, ax, [methods.colour(result.name) for result in results])
        _write(figure, path)
