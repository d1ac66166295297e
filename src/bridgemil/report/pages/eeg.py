"""A person's EEG, small enough to stand in a page: about 100 samples a second, one byte each.

Windows that follow one another are joined to stretches, what they overlap is taken once. Each second of each channel
has a scale of its own, so that one byte a sample shows it to better than a hundredth of its height.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.signal import Signal
from bridgemil.report.explanation import Person
from bridgemil.report.window_values import Floats, Index

RATE = 100.0  # samples a second on the page, at most
BLOCK = 100  # samples that share a scale
MOST_BYTES = 4_000_000  # of samples; 20 minutes of 19 channels are 2.3 million
AROUND = 5.0  # seconds kept on each side of a top window, where not all fits


def positions(person: Person, window_seconds: float) -> tuple[Floats, list[dict[str, Any]]]:
    """Where each window begins on one running axis (n, seconds), and where each recording lies on it.

    Parameters
    ----------
    person
        Whose windows; recordings follow one another without a gap.
    window_seconds
        Length of a window.
    """
    places, recordings, offset = np.zeros(len(person.bag)), [], 0.0
    numbers = person.recording_of
    for number, (name, _) in enumerate(person.parts):
        inside = numbers == number
        if inside.any():
            places[inside] = offset + person.starts[inside]
            end = float(places[inside].max()) + window_seconds
            recordings.append({"name": name, "offset": offset, "end": end})
            offset = end
    return places, recordings


def pack(person: Person, signal: Signal, places: Floats, top: Sequence[int]) -> dict[str, Any]:
    """The EEG as the page's script reads it.

    Parameters
    ----------
    person
        Whose windows.
    signal
        Their channels, rate and length.
    places
        Where each window begins on the running axis, in seconds (n).
    top
        Windows whose surroundings are kept if not everything fits.
    """
    rate = min(RATE, signal.sfreq)
    seconds = signal.n_times / signal.sfreq
    whole = len(person.bag) * seconds * rate * signal.n_channels <= MOST_BYTES
    keep = np.ones(len(places), dtype=bool) if whole else _near(places, places[list(top)], signal, rate)
    samples, scales, stretches = [], [], []
    for windows in _stretches(places, person.recording_of, keep, seconds + 0.5 / signal.sfreq):
        joined = _resampled(_joined(person.bag, places, windows, signal.sfreq), signal.sfreq, rate)
        values, scale = _bytes(joined)
        stretches.append({"start": round(float(places[windows[0]]), 4), "n": joined.shape[1]})
        samples.append(values)
        scales.append(scale)
    deviation = float(np.median([np.median(np.abs(scale)) for scale in scales]))
    return {
        "rate": rate,
        "block": BLOCK,
        "channels": list(signal.channels),
        "stretches": stretches,
        "complete": bool(whole),
        "spacing": _round_number(120 * deviation),
        "samples": _text(np.concatenate([values.ravel() for values in samples])),
        "scales": _text(np.concatenate([scale.ravel() for scale in scales]).astype("<f4")),
    }


def _near(places: Floats, middles: Floats, signal: Signal, rate: float) -> NDArray[np.bool_]:
    """Windows near the top ones, taking one top window after the other while they fit."""
    keep = np.zeros(len(places), dtype=bool)
    size = signal.n_times / signal.sfreq * rate * signal.n_channels
    for middle in middles:
        more = keep | (np.abs(places - middle) <= AROUND)
        if more.sum() * size > MOST_BYTES:
            break
        keep = more
    if not keep.any():
        keep[int(np.abs(places - middles[0]).argmin())] = True
    return keep


def _stretches(places: Floats, recording: Index, keep: NDArray[np.bool_], longest_step: float) -> list[list[int]]:
    """Windows that follow one another in one recording, as lists of their numbers."""
    found: list[list[int]] = []
    for i in np.flatnonzero(keep):
        last = found[-1][-1] if found else None
        follows = last is not None and recording[last] == recording[i] and 0 < places[i] - places[last] <= longest_step
        if follows:
            found[-1].append(int(i))
        else:
            found.append([int(i)])
    return found


def _joined(bag: NDArray[np.float32], places: Floats, windows: list[int], sfreq: float) -> Floats:
    """Channels x time of windows that follow one another; what two share is taken once."""
    steps = [round((places[b] - places[a]) * sfreq) for a, b in pairwise(windows)]
    parts = [bag[i][:, :step] for i, step in zip(windows, [*steps, bag.shape[2]], strict=True)]
    return np.concatenate(parts, axis=1).astype(np.float64)


def _resampled(x: Floats, sfreq: float, rate: float) -> Floats:
    from scipy.signal import resample_poly

    ratio = Fraction(rate / sfreq).limit_denominator(1000)
    if ratio == 1:
        return x
    resampled: Floats = resample_poly(x, ratio.numerator, ratio.denominator, axis=1, padtype="line")
    return resampled


def _bytes(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Values of -127 to 127 (channels x time), and the microvolts of one of them in each block (channels x blocks)."""
    n_blocks = -(-x.shape[1] // BLOCK)
    padded = np.zeros((x.shape[0], n_blocks * BLOCK))
    padded[:, : x.shape[1]] = x
    scale = np.abs(padded.reshape(x.shape[0], n_blocks, BLOCK)).max(axis=2) / 127
    scale = np.maximum(scale, 1e-6)
    return np.round(x / np.repeat(scale, BLOCK, axis=1)[:, : x.shape[1]]).astype(np.int8), scale


def _round_number(value: float) -> float:
    """The nearest of 1, 2, 5, 10, 20, 50, … microvolts."""
    steps = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000], dtype=float)
    return float(steps[np.abs(np.log(steps / max(value, 1e-3))).argmin()])


def _text(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
