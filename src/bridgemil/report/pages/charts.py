"""Small charts as SVG text: calibration, clinical and training curves. Colours follow the page's theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bridgemil.evaluation.metrics import wilson

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

WIDTH, HEIGHT = 300, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34
BINS = 5  # of a calibration curve; each holds the same number of predictions
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bin:
    """Predictions of about one probability: their mean, the share that came true with its 95 % interval, how many."""

    said: float
    true: float
    low: float
    high: float
    n: int


def calibration_bins(predictions: pd.DataFrame, classes: Sequence[str]) -> list[Bin]:
    """Bins of held-out probabilities.

    Of two classes the second one's probabilities are taken, of more all of them, each class against the rest. Seeds
    judge the same people: an interval counts each person once.

    Parameters
    ----------
    predictions
        seed, subject, label, p_<class>….
    classes
        K names.
    """
    shown = classes[1:] if len(classes) == 2 else classes
    said = np.concatenate([predictions[f"p_{name}"].to_numpy(dtype=float) for name in shown])
    true = np.concatenate([(predictions["label"] == name).to_numpy(dtype=float) for name in shown])
    seeds, order = int(predictions["seed"].nunique()), np.argsort(said, kind="stable")
    bins = []
    for part in np.array_split(order, min(BINS, len(order))):
        share, n = float(true[part].mean()), len(part)
        low, high = wilson(share, max(1.0, n / seeds))
        bins.append(Bin(float(said[part].mean()), share, low, high, n))
    return bins


def calibration_chart(bins: Sequence[Bin], colour: str) -> Markup:
    """Said against true, with the diagonal."""

    def x(value: float) -> float:
        return LEFT + value * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM)

    parts = [_frame([(x(v), f"{v:g}") for v in (0, 0.5, 1)], [(y(v), f"{v:g}") for v in (0, 0.5, 1)])]
    parts.append(f'<line class="axis" x1="{x(0)}" y1="{y(0)}" x2="{x(1)}" y2="{y(1)}"/>')
    parts.append(_path([(x(b.said), y(b.true)) for b in bins], "curve"))
    for b in bins:
        words = f"said {b.said:.0%}, true of {b.true:.0%} ({b.n} predictions)"
        parts.append(
            f'<line class="whisker" x1="{x(b.said):.1f}" x2="{x(b.said):.1f}" '
            f'y1="{y(b.low):.1f}" y2="{y(b.high):.1f}"/>'
        )
        parts.append(
            f'<circle class="spot" cx="{x(b.said):.1f}" cy="{y(b.true):.1f}" r="4"><title>{words}</title></circle>'
        )
    return _svg(parts, colour, "probability said", "share that came true", "Calibration curve")


def curves_chart(curves: pd.DataFrame, columns: Mapping[str, str], colour: str) -> Markup:
    """A line for each run and their mean, of each column over epochs.

    Parameters
    ----------
    curves
        seed, fold, epoch and the columns.
    columns
        Column to the style of its line: ``""`` or ``"dashed"``.
    colour
        Of all lines.
    """
    values = curves[list(columns)].to_numpy(dtype=float)
    low, high = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
    high = high if high > low else low + 1
    longest = max(1, int(curves["epoch"].max()))

    def x(value: float) -> float:
        return LEFT + value / longest * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_frame([(x(0), "1"), (x(longest), f"{longest + 1}")], [(y(v), f"{v:.3g}") for v in (low, high)])]
    for column, style in columns.items():
        for _, run in curves.groupby(["seed", "fold"]):
            parts.append(
                _path([(x(e), y(v)) for e, v in run[["epoch", column]].to_numpy(float)], f"curve thin {style}")
            )
        mean = curves.groupby("epoch")[column].mean()
        parts.append(_path([(x(e), y(v)) for e, v in zip(mean.index, mean, strict=True)], f"curve {style}"))
    return _svg(parts, colour, "epoch", "loss", "Training curves")


@dataclass(frozen=True)
class Line:
    """A line of a chart in data coordinates; ``spot`` is a point on it, ``band`` the outline of its interval."""

    points: Points
    colour: str
    name: str
    spot: tuple[float, float] | None = None
    band: Points = ()


def lines_chart(
    lines: Sequence[Line],
    names: tuple[str, str, str],
    low: float = 0.0,
    high: float = 1.0,
    reference: Sequence[Points] = (),
) -> Markup:
    """Lines over the unit interval, one colour each.

    Parameters
    ----------
    lines
        What is drawn; values below ``low`` are cut off.
    names
        Of the horizontal axis, the vertical axis and the chart.
    low, high
        Ends of the vertical axis.
    reference
        Further lines, dashed and without a colour of their own.
    """

    def at(points: Points) -> list[tuple[float, float]]:
        return [
            (
                LEFT + x * (WIDTH - LEFT - RIGHT),
                TOP + (high - min(high, max(low, y))) / (high - low) * (HEIGHT - TOP - BOTTOM),
            )
            for x, y in points
        ]

    ticks = [low, (low + high) / 2, high] if low == 0 else [low, 0.0, high]
    across = [(at([(x, low)])[0][0], f"{x:g}") for x in (0.0, 0.5, 1.0)]
    parts = [_frame(across, [(at([(0, y)])[0][1], f"{y:.2g}") for y in ticks])]
    parts += [_path(at([(x, y) for x, y in points if y >= low]), "reference") for points in reference]
    for line in lines:
        inside = _path(at(line.band), "band")
        inside += _path(at([(x, y) for x, y in line.points if y >= low]), "curve") + _spot(at, line)
        parts.append(f'<g style="--c:{line.colour}">{inside}</g>')
    return _svg(parts, "var(--ink)", *names)


def _spot(at: Callable[[Points], list[tuple[float, float]]], line: Line) -> str:
    if line.spot is None:
        return ""
    x, y = at([line.spot])[0]
    return f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _frame(across: Points | Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]) -> str:
    bottom = HEIGHT - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>']
    for place, words in across:
        parts.append(f'<text x="{place:.1f}" y="{bottom + 14}" text-anchor="middle">{words}</text>')
    for place, words in up:
        parts.append(f'<line class="gridline" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{place + 4:.1f}" text-anchor="end">{words}</text>')
    return "".join(parts)


def _path(points: Points, style: str) -> str:
    kept = [(x, y) for x, y in points if np.isfinite(y)]
    if not kept:
        return ""
    return f'<path class="{style.strip()}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in kept)}"/>'


def _svg(parts: Sequence[str], colour: str, across: str, up: str, title: str) -> Markup:
    from markupsafe import Markup

    names = (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 3}" text-anchor="middle">{across}</text>'
        f'<text transform="translate(9 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{up}</text>'
    )
    inside = "".join(parts) + names
    about = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" style="--c:{colour}"'
    return Markup(f'<svg class="chart" {about}>{inside}</svg>')  # numbers and our own words only
