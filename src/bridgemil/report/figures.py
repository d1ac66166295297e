"""Figures as PNG, PDF or SVG files: a cohort, accuracies of methods, and what the figures of studies are drawn with."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.registry import class_colour
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

MOST_WINDOWS = 200  # per subject; enough for its mean spectrum
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


def class_spectra(cohort: Cohort, show: bool = False) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Power spectra in dB re 1 µV²/Hz: frequencies (F,), and by class the quartiles over subjects (3, F).

    ``show`` shows a progress bar on standard error.
    """
    from rich.console import Console
    from rich.progress import track
    from scipy.signal import periodogram

    spectra = []
    for subject in track(cohort.subjects, "drawing", console=Console(stderr=True), disable=not show):
        bag = cohort.windows(subject)
        chosen = np.linspace(0, len(bag) - 1, min(len(bag), MOST_WINDOWS)).round().astype(int)
        _, density = periodogram(bag[np.unique(chosen)], cohort.sfreq, window="hann", axis=-1)
        spectra.append(10 * np.log10(density.mean(axis=(0, 1)) + 1e-12))
    frequency = np.arange(cohort.n_times // 2 + 1) * cohort.sfreq / cohort.n_times
    inside = (frequency > 0) & (frequency <= (cohort.metadata["settings"].get("high") or cohort.sfreq / 2))
    labels, found = np.array(cohort.labels), np.stack(spectra)[:, inside]
    return frequency[inside], {
        name: np.percentile(found[labels == name], [25, 50, 75], axis=0) for name in cohort.classes or [""]
    }


def draw_cohort(cohort: Cohort, path: Path, show: bool = True) -> None:
    """Draw power spectra by class with their quartiles over subjects, and the number of windows of each subject.

    The suffix of ``path`` (PNG, PDF or SVG) is the format; ``show`` shows a progress bar on standard error.
    """
    import matplotlib as mpl

    frequency, spectra = class_spectra(cohort, show)
    counts = {name: [r.n_windows for r in cohort.records.values() if r.label == name] for name in spectra}
    with mpl.rc_context(PLAIN):
        figure, (left, right) = canvas(2, width=5.5, height=4.2, width_ratios=(1.6, 1))
        for number, (name, (low, middle, high)) in enumerate(spectra.items()):
            style, own = class_look(number), counts[name]
            left.plot(frequency, middle, color=style["color"], label=f"{name or 'no label'} ({len(own)})")
            left.fill_between(frequency, low, high, color=style["color"], alpha=0.2, linewidth=0)
            offsets = np.random.default_rng(0).uniform(-0.15, 0.15, len(own))
            right.scatter(number + offsets, own, s=14, alpha=0.7, **style)
        left.set(xlabel="frequency (Hz)", ylabel="power (dB re 1 µV²/Hz)", title="median and quartiles over subjects")
        left.legend(title="class (subjects)", frameon=False)
        right.set(ylabel="windows", title="windows of each subject", ylim=(0, 1.08 * max(map(max, counts.values()))))
        right.set_xticks(range(len(spectra)), [name or "no label" for name in spectra])
        size = f"{len(cohort)} subjects, {cohort.n_windows:,} windows, {len(cohort.channels)} channels"
        title = f"{cohort.path.name if cohort.path else 'cohort'}: {size}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        _write(figure, path)


def draw_accuracy(path: Path, results: Sequence[Results]) -> None:
    """Draw the accuracy of methods on the same subjects with 95 % intervals, and the chance interval; as a PNG, …."""
    import matplotlib as mpl

    rows: list[dict[str, Any]] = [dict(one.summary.iloc[0]) for one in results]
    first = rows[0]
    with mpl.rc_context(PLAIN):
        figure, (ax,) = canvas(width=7, height=1.2 + 0.45 * len(results))
        label = f"95 % chance interval for n = {first['n_subjects']}"
        ax.axvspan(first["chance95_low"], first["chance95_high"], color="0.92", label=label)
        interval_rows(ax, rows, [result.name for result in results])
        ax.set(xlim=(0, 1), xlabel="accuracy on held-out subjects", title="Accuracy with 95 % intervals over subjects")
        ax.legend(loc="lower left", frameon=False)
        _write(figure, path)
