"""A subject's EEG, small enough to be part of a page: about 100 samples per second, one byte each.

Consecutive windows are joined, and what they overlap is taken once. Each second of each channel has its own scale, so
that one byte per sample shows it to better than a hundredth of its height.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import electrode
from bridgemil.cohort.signal import Signal
from bridgemil.report.explanation import Person
from bridgemil.report.window_values import Floats, Index

RATE = 100.0  # samples per second on the page, at most
BLOCK = 100  # samples that share a scale
MOST_BYTES = 4_000_000  # of samples; 20 minutes of 19 channels are 2.3 million
AROUND = 5.0  # seconds kept on each side of a top window, where not all fits
# The longitudinal bipolar montage ("double banana"): left temporal, left parasagittal, midline, right ones.
CHAINS = ("Fp1 F7 T7 P7 O1", "Fp1 F3 C3 P3 O1", "Fz Cz Pz", "Fp2 F4 C4 P4 O2", "Fp2 F8 T8 P8 O2")


def positions(person: Person, window_seconds: float) -> tuple[Floats, list[dict[str, Any]]]:
    """Start of each window on one time axis (n, seconds), and where each recording lies on it, one after another."""
    places, recordings, offset, first = np.array(person.starts, dtype=np.float64), list[dict[str, Any]](), 0.0, 0
    for name, n in person.recordings:
        if n:
            inside = places[first : first + n]
            inside += offset
            end = float(inside.max()) + window_seconds
            recordings.append({"name": name, "offset": offset, "end": end})
            offset, first = end, first + n
    return places, recordings


def bipolar(channels: Sequence[str]) -> list[tuple[str, int, int]]:
    """The derivations of the longitudinal bipolar montage: name, and numbers of the two channels.

    ``channels`` are names as recorded; a derivation without both electrodes is missing.
    """
    at = {electrode(name): i for i, name in enumerate(channels)}
    shown = [name if len(name) <= 4 else electrode(name) or name for name in channels]
    pairs = [(at.get(a), at.get(b)) for chain in CHAINS for a, b in pairwise(chain.split())]
    return [(f"{shown[i]}-{shown[j]}", i, j) for i, j in pairs if i is not None and j is not None]


def pack(person: Person, signal: Signal, places: Floats, top: Sequence[int]) -> dict[str, Any]:
    """The EEG as the page's script reads it.

    ``places`` (n,) are the starts of windows on the time axis, in seconds; around the ``top`` windows it is kept if not
    everything fits.
    """
    from scipy.signal import resample_poly

    rate, seconds = min(RATE, signal.sfreq), signal.n_times / signal.sfreq
    ratio = Fraction(rate / signal.sfreq).limit_denominator(1000).as_integer_ratio()
    whole = len(person.bag) * seconds * rate * signal.n_channels <= MOST_BYTES
    keep = np.ones(len(places), dtype=bool) if whole else _near(places, places[list(top)], signal, rate)
    samples, scales, stretches = [], [], []
    for windows in _stretches(person, places, keep, seconds + 0.5 / signal.sfreq):
        joined = resample_poly(_joined(person.bag, places, windows, signal.sfreq), *ratio, axis=1, padtype="line")
        n = joined.shape[1]
        scale = np.maximum.reduceat(np.abs(joined), np.arange(0, n, BLOCK), axis=1) / 127  # µV of a step; per block
        scale[scale == 0] = 1.0
        stretches.append({"start": round(float(places[windows[0]]), 4), "n": n})
        samples.append(np.round(joined / np.repeat(scale, BLOCK, axis=1)[:, :n]).astype(np.int8).ravel())
        scales.append(scale.ravel())
    return {
        "rate": rate,
        "block": BLOCK,
        "channels": list(signal.channels),
        "bipolar": bipolar(signal.channels),
        "stretches": stretches,
        "complete": bool(whole),
        "samples": base64.b64encode(np.concatenate(samples).tobytes()).decode(),
        "scales": base64.b64encode(np.concatenate(scales).astype("<f4").tobytes()).decode(),
    }


def _near(places: Floats, middles: Floats, signal: Signal, rate: float) -> NDArray[np.bool_]:
    """Windows near the top ones, taking one top window after the other while they fit."""
    most = MOST_BYTES / (signal.n_times / signal.sfreq * rate * signal.n_channels)
    keep = np.asarray(np.abs(places - middles[0]) == np.abs(places - middles[0]).min())
    for middle in middles:
        more = keep | (np.abs(places - middle) <= AROUND)
        if more.sum() > most:
            break
        keep = more
    return keep


def _stretches(person: Person, places: Floats, keep: NDArray[np.bool_], longest_step: float) -> list[Index]:
    """Numbers of consecutive windows of one recording."""
    chosen, ends = np.flatnonzero(keep), np.cumsum([n for _, n in person.recordings])
    step, other = np.diff(places[chosen]), np.diff(np.searchsorted(ends, chosen, side="right")) != 0
    return np.split(chosen, np.flatnonzero(other | (step <= 0) | (step > longest_step)) + 1)


def _joined(bag: NDArray[np.float32], places: Floats, windows: Index, sfreq: float) -> Floats:
    """Channels x time of consecutive windows without their mean; what two share is taken once."""
    steps = [round((places[b] - places[a]) * sfreq) for a, b in pairwise(windows)]
    parts = [bag[i][:, :step] for i, step in zip(windows, [*steps, bag.shape[2]], strict=True)]
    joined = np.concatenate(parts, axis=1).astype(np.float64)
    return np.asarray(joined - joined.mean(axis=1, keepdims=True))  # an offset would cost the bytes their resolution
