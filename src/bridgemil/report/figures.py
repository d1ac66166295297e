"""Figures as PNG, PDF or SVG files: a cohort, and accuracies of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

MOST_WINDOWS = 200  # per subject; enough for its mean spectrum


@contextmanager
def _figure(path: Path, columns: int = 1, dpi: int = 110, **how: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, written to the file (its suffix is the format) when the block ends."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"text.parse_math": False}):  # a class may be called $x
        figure, axes = plt.subplots(1, columns, layout="constrained", **how)
        try:
            yield figure, axes
            with new_file(path) as stream:
                figure.savefig(stream, format=path.suffix[1:].lower(), dpi=dpi)
        finally:
            plt.close(figure)


def subject_spectrum(cohort: Cohort, subject: str) -> NDArray[np.float64]:
    """Mean power spectral density of a subject over windows and channels, in µV²/Hz, shape (n_frequencies,)."""
    from scipy.signal import periodogram

    bag = cohort.windows(subject)
    chosen = np.linspace(0, len(bag) - 1, min(len(bag), MOST_WINDOWS)).round().astype(int)
    _, density = periodogram(bag[np.unique(chosen)], cohort.sfreq, window="hann", axis=-1)
    mean: NDArray[np.float64] = density.mean(axis=(0, 1))
    return mean


def draw_cohort(cohort: Cohort, path: Path, show: bool = True) -> None:
    """Draw power spectra by class with their quartiles over subjects, and the number of windows of each subject.

    Parameters
    ----------
    cohort : Cohort
        What to draw.
    path : Path
        The file; PNG, PDF or SVG by its suffix.
    show : bool
        Show a progress bar on standard error.
    """
    from rich.console import Console
    from rich.progress import track

    shown = track(cohort.subjects, "drawing", console=Console(stderr=True), disable=not show)
    spectra = np.array([subject_spectrum(cohort, subject) for subject in shown])
    frequencies = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    highest = cohort.metadata["settings"].get("high") or cohort.sfreq / 2
    inside = (frequencies > 0) & (frequencies <= highest)
    labels, classes = np.array(cohort.labels), cohort.classes or [""]
    counts = np.array([cohort.records[subject].n_windows for subject in cohort.subjects])
    with _figure(path, 2, dpi=130, figsize=(11, 4.2), width_ratios=(1.6, 1)) as (figure, (left, right)):
        for number, name in enumerate(classes):
            colour, own = f"C{number}", 10 * np.log10(spectra[labels == name][:, inside] + 1e-12)
            low, middle, high = np.percentile(own, [25, 50, 75], axis=0)
            left.plot(frequencies[inside], middle, color=colour, label=f"{name or 'no label'} ({len(own)})")
            left.fill_between(frequencies[inside], low, high, color=colour, alpha=0.2, linewidth=0)
            offsets = np.random.default_rng(0).uniform(-0.15, 0.15, len(own))
            right.scatter(number + offsets, counts[labels == name], s=14, color=colour, alpha=0.7)
        left.set(xlabel="frequency (Hz)", ylabel="power (dB re 1 µV²/Hz)", title="median and quartiles over subjects")
        left.legend(title="class (subjects)", frameon=False)
        right.set(ylabel="windows", title="windows of each subject", ylim=(0, 1.08 * counts.max()))
        right.set_xticks(range(len(classes)), [name or "no label" for name in classes])
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        size = f"{len(cohort)} subjects, {cohort.n_windows:,} windows, {len(cohort.channels)} channels"
        title = f"{cohort.path.name if cohort.path else 'cohort'}: {size}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")


def draw_accuracy(path: Path, results: Sequence[Results]) -> None:
    """Draw the accuracy of each method with its 95 % interval, and the chance interval.

    Parameters
    ----------
    path : Path
        The file; PNG, PDF or SVG by its suffix.
    results : sequence of Results
        On the same subjects.
    """
    rows = [one.summary.iloc[0] for one in results]
    with _figure(path, figsize=(7, 1.2 + 0.45 * len(results))) as (_, ax):
        chance = rows[0]["chance95_low"], rows[0]["chance95_high"]
        ax.axvspan(*chance, color="0.92", label=f"95 % chance interval for n = {rows[0]['n_subjects']}")
        for y, row in enumerate(rows):
            ax.plot([row["ci95_low"], row["ci95_high"]], [y, y], color="C0", linewidth=2)
            ax.plot(row["accuracy"], y, "o", color="C0")
        ax.set_yticks(range(len(rows)), [result.name for result in results])
        ax.set(xlim=(0, 1), ylim=(len(rows) + 0.2, -0.6), xlabel="accuracy on held-out subjects")
        ax.set_title("Accuracy with 95 % intervals over subjects")
        ax.legend(loc="lower left", frameon=False)
