"""How figures of studies look: labelled, readable in grey, each method in its colour and marker everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from bridgemil import methods

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLASS_MARKERS = "osD^vP"
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}


def canvas(columns: int = 1, rows: int = 1, width: float = 5.0, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to nobody else, with its axes from left to right and top to bottom."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False)
    axes = list(places.flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def look(method: str) -> dict[str, Any]:
    """Colour and marker of a method, for matplotlib."""
    style = methods.entry(method)
    return {"color": style.colour, "marker": _MARKERS[style.marker]}


def class_marker(number: int) -> str:
    """The marker of a class, by its number in the cohort; its colour is ``registry.class_colour``."""
    return _CLASS_MARKERS[number % len(_CLASS_MARKERS)]


def plain_words() -> AbstractContextManager[None]:
    """While this lasts, text is drawn as it is: a class may be called $x, and the user's own figures stay theirs."""
    import matplotlib as mpl

    return mpl.rc_context({"text.parse_math": False})


def intervals(ax: Axes, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Accuracies with their 95 % intervals, one below the other.

    Parameters
    ----------
    ax
        Where to draw.
    rows
        With ``accuracy``, ``ci95_low`` and ``ci95_high`` in percent.
    names
        The method that each is, and whose colour it takes.
    """
    for y, (row, name) in enumerate(zip(rows, names, strict=True)):
        style = look(name)
        ax.plot([row["ci95_low"], row["ci95_high"]], [y, y], color=style["color"], linewidth=2)
        ax.plot(row["accuracy"], y, markersize=7, linestyle="none", **style)
    ax.set_yticks(range(len(rows)), names)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="0.92", linewidth=0.8)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="accuracy of held-out subjects (%), 95 % over subjects")


def gains(ax: Axes, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Differences to a reference with their 95 % intervals, one below the other, at the heights of ``intervals``.

    Parameters
    ----------
    ax
        Where to draw.
    rows
        With ``gain``, ``gain95_low`` and ``gain95_high`` in points; the reference has none.
    names
        The method whose colour each takes.
    """
    ax.axvline(0, color="0.3", linewidth=1)
    for y, (row, name) in enumerate(zip(rows, names, strict=True)):
        if "gain" in row:
            style = look(name)
            ax.plot([row["gain95_low"], row["gain95_high"]], [y, y], color=style["color"], linewidth=2)
            ax.plot(row["gain"], y, markersize=7, linestyle="none", **style)
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="0.92", linewidth=0.8)
    ax.set_ylim(len(rows) - 0.4, -0.6)


def chance_line(ax: Axes, level: float, *, vertical: bool = False, named: bool = False) -> None:
    """What guessing the largest class gives, in percent.

    Parameters
    ----------
    ax
        Where to draw; a legend there knows the line.
    level
        In percent.
    vertical
        Where accuracy runs from left to right.
    named
        Write what it is beside it, for axes without a legend.
    """
    draw, words = (ax.axvline if vertical else ax.axhline), "guessing the largest class"
    draw(level, color="0.45", linewidth=1, linestyle=":", label=words, zorder=1)
    if named:
        ax.annotate(
            words, (level, 0) if vertical else (1, level), xytext=(3, 4) if vertical else (0, 2),
            xycoords=("data", "axes fraction") if vertical else ("axes fraction", "data"), textcoords="offset points",
            rotation=90 if vertical else 0, ha="left" if vertical else "right", va="bottom", fontsize=7, color="0.35",
        )  # fmt: skip
