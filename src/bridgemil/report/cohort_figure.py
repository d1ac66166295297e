"""A picture of a cohort: power spectra by class with their spread over subjects, and the size of every bag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.storage.files import new_file

MOST_WINDOWS = 200  # a subject's spectrum is settled long before that


def subject_spectrum(cohort: Cohort, subject: str) -> NDArray[np.float64]:
    """Mean power spectral density of a subject over windows and channels, in µV²/Hz."""
    from scipy.signal import periodogram

    bag = cohort.windows(subject)
    chosen = np.linspace(0, len(bag) - 1, min(len(bag), MOST_WINDOWS)).round().astype(int)
    _, density = periodogram(bag[np.unique(chosen)], cohort.sfreq, window="hann", axis=-1)
    mean: NDArray[np.float64] = density.mean(axis=(0, 1))
    return mean


def draw(cohort: Cohort, path: Path, show: bool = True) -> None:
    """Draw the picture to a file (PNG, PDF or SVG by its ending)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False  # a class may be called $x
    import matplotlib.pyplot as plt
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    shown = track(cohort.subjects, "drawing", console=console, disable=not show)
    spectra = np.array([subject_spectrum(cohort, subject) for subject in shown])
    frequencies = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    high = cohort.about["settings"].get("high") or cohort.sfreq / 2
    inside = (frequencies > 0) & (frequencies <= high)
    labels = np.array(cohort.labels)

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1.6, 1), layout="constrained")
    classes = cohort.classes or [""]
    for number, name in enumerate(classes):
        own = 10 * np.log10(spectra[labels == name][:, inside] + 1e-12)
        low, middle, high_line = np.percentile(own, [25, 50, 75], axis=0)
        left.plot(frequencies[inside], middle, color=f"C{number}", label=f"{name or 'no label'} ({len(own)})")
        left.fill_between(frequencies[inside], low, high_line, color=f"C{number}", alpha=0.2, linewidth=0)
        windows = [cohort.records[s].n_windows for s, lab in zip(cohort.subjects, labels, strict=True) if lab == name]
        offsets = np.random.default_rng(0).uniform(-0.15, 0.15, len(windows))
        right.scatter(number + offsets, windows, s=14, color=f"C{number}", alpha=0.7)
    left.set(xlabel="frequency (Hz)", ylabel="power (dB re 1 µV²/Hz)", title="median and quartiles over subjects")
    left.legend(title="class (subjects)", frameon=False)
    right.set(ylabel="windows", title="windows of each subject", xticks=range(len(classes)))
    right.set_xticklabels([name or "no label" for name in classes])
    right.set_ylim(0, 1.08 * max(record.n_windows for record in cohort.records.values()))
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    words = f"{len(cohort)} subjects, {cohort.n_windows:,} windows, {len(cohort.channels)} channels"
    figure.suptitle(f"{cohort.path.name if cohort.path else 'cohort'}: {words}", x=0.01, ha="left", fontweight="bold")
    with new_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:].lower(), dpi=130)
    plt.close(figure)
