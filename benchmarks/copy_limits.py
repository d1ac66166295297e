"""Which copies of a recording the audit finds, and which it does not: shares found by kind of change.

In each trial a subject of a cohort gets the recording of another one, changed as the line says, at an offset that is no
multiple of a window. Where no cohort is given, the people are made of coloured noise.
python benchmarks/copy_limits.py [--cohort FOLDER] [--trials 6] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit import AuditInput, same_signal
from bridgemil.cohort.cohort import Cohort

Signal = NDArray[np.float32]  # channels x samples
Change = Callable[[Signal, Signal, float, np.random.Generator], Signal]  # source, own signal, rate -> new signal
PEOPLE, SECONDS, SHIFT = 8, 300, 333  # of a trial's cohort; samples by which the copy begins later


def part(seconds: float) -> Change:
    """Only so many seconds are of the other recording."""

    def change(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        n, begin = round(seconds * sfreq), round(own.shape[1] / 3)
        new = own.copy()
        new[:, begin : begin + n] = source[:, SHIFT : SHIFT + n]
        return new

    return change


def rate_error(percent: float) -> Change:
    """The same recording read with a wrong sampling rate."""

    def change(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        places = np.arange(source.shape[1]) * (1 - percent / 100)
        return np.stack([np.interp(places, np.arange(source.shape[1]), row) for row in source]).astype(np.float32)

    return change


def channels_replaced(share: float) -> Change:
    """So many of the channels are those of the subject itself."""

    def change(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        new, n = np.roll(source, SHIFT, axis=1), min(source.shape[1], own.shape[1])
        chosen = rng.permutation(len(new))[: round(share * len(new))]
        new[chosen, :n] = own[chosen, :n]
        return new

    return change


def noise_added(share: float) -> Change:
    """Noise with the spectrum of EEG, of so much of the channel's standard deviation."""

    def change(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        spectrum = np.abs(np.fft.rfft(source, axis=1)) * np.exp(
            2j * np.pi * rng.random((len(source), source.shape[1] // 2 + 1))
        )
        noise = np.fft.irfft(spectrum, source.shape[1], axis=1)
        return (np.roll(source, SHIFT, axis=1) + share * noise).astype(np.float32)

    return change


def band(low: float, high: float) -> Change:
    """Only what a band-pass leaves."""

    def change(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        from scipy.signal import butter, sosfiltfilt

        return sosfiltfilt(
            butter(4, (low, high), "band", fs=sfreq, output="sos"), np.roll(source, SHIFT, axis=1)
        ).astype(np.float32)

    return change


def cleaned_again(source: Signal, own: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
    """One recording cleaned twice: 1.00 s later, other filters, two components removed, another reference."""
    from scipy.signal import butter, sosfiltfilt

    later = np.roll(source, round(sfreq), axis=1)
    filtered = sosfiltfilt(butter(2, (1.0, 30.0), "band", fs=sfreq, output="sos"), later)
    directions = np.linalg.svd(filtered - filtered.mean(axis=1, keepdims=True), full_matrices=False)[0]
    removed = directions[:, rng.choice(np.arange(1, min(8, len(source))), 2, replace=False)]
    kept = filtered - removed @ (removed.T @ filtered)
    return (kept - kept.mean(axis=0)).astype(np.float32)


CHANGES: dict[str, Change] = {
    "whole recording, sign flipped": lambda source, *_: -1.7 * np.roll(source, SHIFT, axis=1),
    "cleaned twice, 1.00 s apart": cleaned_again,
    **{f"{s} s of {SECONDS} s": part(s) for s in (6, 8, 10, 12, 15, 20, 30)},
    **{f"sampling rate wrong by {p:g} %": rate_error(p) for p in (0.01, 0.05, 0.1, 0.5, 2.4)},
    "reversed in time": lambda source, *_: source[:, ::-1].copy(),
    **{f"{round(100 * s)} % of channels replaced": channels_replaced(s) for s in (0.2, 0.3, 0.4, 0.58, 0.7)},
    **{f"noise of {s:g} SD added": noise_added(s) for s in (0.2, 0.5, 0.8, 1.2)},
    **{f"band-pass {low}-{high} Hz": band(low, high) for low, high in ((4, 20), (8, 13), (9, 11), (1, 4), (20, 40))},
}


def recordings(
    cohort: Cohort | None, people: int, seconds: int, rng: np.random.Generator
) -> tuple[list[Signal], float]:
    """Continuous signals of subjects drawn at random, and their rate."""
    if cohort is None:
        from scipy.signal import lfilter

        noise = rng.normal(size=(people, 6, 200 * seconds))
        return list((5 * lfilter([1], [1, -0.9], noise, axis=-1)).astype(np.float32)), 200.0
    n = round(seconds * cohort.sfreq / cohort.n_times)
    chosen = [s for s in rng.permutation(cohort.subjects) if cohort.records[s].n_windows >= 0.9 * n][:people]
    return [np.concatenate(list(cohort.windows(s)[:n]), axis=1) for s in chosen], cohort.sfreq


def found(signals: list[Signal], sfreq: float) -> bool:
    """Whether the audit fails for the first two of these and for nobody else."""
    size = round(sfreq)
    bags = [s[:, : s.shape[1] // size * size].reshape(len(s), -1, size).swapaxes(0, 1).copy() for s in signals]
    names = [f"s{i}" for i in range(len(bags))]
    channels = [f"E{i}" for i in range(len(signals[0]))]
    labels = ["ab"[i % 2] for i in range(len(bags))]
    cohort = Cohort.from_arrays(bags, labels, names, sfreq, channels, burn_in=1)
    (finding,) = same_signal.check(AuditInput(cohort))
    return finding.status == "FAIL" and finding.numbers["subjects"] == names[:2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort", type=Path, help="a prepared cohort with 300 s of each subject")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one trial of short recordings: only that it runs")
    options = parser.parse_args()
    cohort = None if options.cohort is None else Cohort.open(options.cohort)
    trials, people, seconds = (1, 3, 60) if options.quick else (options.trials, PEOPLE, SECONDS)
    print(f"{'change':34} found in so many of {trials}")
    for name, change in CHANGES.items():
        count = 0
        for trial in range(trials):
            rng = np.random.default_rng(trial)
            signals, sfreq = recordings(cohort, people, seconds, rng)
            signals[0] = change(signals[1], signals[0], sfreq, rng)
            count += found(signals, sfreq)
        print(f"{name:34} {count}", flush=True)


if __name__ == "__main__":
    main()
