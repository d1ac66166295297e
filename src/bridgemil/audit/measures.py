"""Measures of everybody's signal, taken in one pass: what shortcuts, fingerprints and copies are looked for in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Band, held_bands

LINES = (50, 60)  # Hz: the mains of the world
FLAT = 0.02  # a window's channel is flat below this share of the channel's usual standard deviation
BLOCK = 512  # windows transformed at once, which bounds the memory
MOST_POWERS = 100  # windows of a person whose band powers are kept
MATCH_BAND = (2.0, 20.0)  # Hz: where copies are looked for; filters and rates leave it as it is
MOST_MATCH_CHANNELS = 8
TABLES, BITS = 8, 24  # of the windows' codes: equal in one table is reason enough to compare two windows


@dataclass(frozen=True)
class PersonMeasures:
    """Of one person with n windows.

    Parameters
    ----------
    powers
        Log band power of evenly spaced windows, m x (channels * bands), m at most ``MOST_POWERS``.
    flat
        Share of windows x channels that are flat.
    amplitude
        Log of the mean standard deviation of a window, in microvolts.
    line
        Log share of the power within 1 Hz of the mains, by its frequency in Hz; where the signal holds it.
    peak
        The largest absolute value, in microvolts.
    spectrum
        Median power of the same windows over windows and channels, in dB; one per bin of a window's spectrum.
    codes
        Of each window, n x ``TABLES``: equal for windows that are the same but for scale and sign; -1 if it is flat.
    """

    powers: NDArray[np.float32]
    flat: float
    amplitude: float
    line: dict[int, float]
    peak: float
    spectrum: NDArray[np.float32]
    codes: NDArray[np.int32]


@dataclass(frozen=True)
class Measures:
    """Of everybody, by subject."""

    people: dict[str, PersonMeasures]
    lines: tuple[int, ...]  # mains frequencies that the signal holds
    top: float  # Hz up to which rate and low-pass have left the signal


def match_bins(cohort: Cohort) -> NDArray[np.intp]:
    """The bins of a window's spectrum in which copies are looked for."""
    frequencies = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    low, high = MATCH_BAND
    inside = np.flatnonzero((frequencies >= low) & (frequencies <= high))
    return inside if len(inside) >= 8 else np.arange(1, len(frequencies))  # short windows: whatever there is


def match_channels(cohort: Cohort, most: int = MOST_MATCH_CHANNELS) -> list[int]:
    """Channels spread over the cohort's."""
    n = len(cohort.channels)
    return sorted(set(np.linspace(0, n - 1, min(n, most)).round().astype(int).tolist()))


def differences(values: NDArray[Any], channels: list[int]) -> NDArray[Any]:
    """Differences of neighbours among these channels, in which the reference and what all electrodes share drop out.

    Parameters
    ----------
    values
        ... x channels x samples or bins.
    channels
        From ``match_channels``; a single one stays as it is.
    """
    chosen: NDArray[Any] = values[..., channels, :]
    return np.diff(chosen, axis=-2) if len(channels) > 1 else chosen


def held_top(cohort: Cohort) -> float:
    """The frequency in Hz up to which native rate, rate and low-pass have left the signal."""
    top = min(cohort.native_sfreq or cohort.sfreq, cohort.sfreq) / 2 - 1
    high = cohort.preparation.get("high")
    return top if high is None else min(top, float(high))


def held_lines(cohort: Cohort) -> tuple[int, ...]:
    """The mains frequencies that rate, low-pass and notch have left in the signal."""
    edge = held_top(cohort)
    notch = [float(frequency) for frequency in cohort.preparation.get("notch") or ()]
    return tuple(line for line in LINES if line < edge and not any(abs(line - f) < 2 for f in notch))


def spectra(windows: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Of windows (n x C x T): n x C x bins, tapered."""
    from scipy.fft import rfft

    taper = np.hanning(windows.shape[-1] + 2)[1:-1].astype(np.float32)
    spectrum: NDArray[np.complex64] = rfft((windows - windows.mean(axis=-1, keepdims=True)) * taper, axis=-1)
    return spectrum


def unit_phases(spectrum: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Phases alone, as vectors: n x (2 * channels * bins). Scale has gone; a flipped sign flips the vector."""
    size = np.abs(spectrum)
    phases = np.divide(spectrum, size, out=np.zeros_like(spectrum), where=size > 1e-12)
    flat = phases.reshape(len(spectrum), -1)
    return np.concatenate([flat.real, flat.imag], axis=1).astype(np.float32)


def measure(cohort: Cohort) -> Measures:
    """Read everybody's windows once.

    Parameters
    ----------
    cohort
        Whose signal.
    """
    lines = held_lines(cohort)
    bins, channels = match_bins(cohort), match_channels(cohort)
    size = 2 * len(bins) * max(1, len(channels) - 1)
    planes = np.random.default_rng(0).standard_normal((size, TABLES * BITS)).astype(np.float32)
    people = {subject: _person(cohort, subject, lines, bins, channels, planes) for subject in cohort.subjects}
    return Measures(people, lines, held_top(cohort))


def _person(
    cohort: Cohort,
    subject: str,
    lines: tuple[int, ...],
    bins: NDArray[np.intp],
    channels: list[int],
    planes: NDArray[np.float32],
) -> PersonMeasures:
    bag = cohort.windows(subject)
    frequencies = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    bands, _ = held_bands(CLINICAL_BANDS, cohort.signal)
    chosen = np.unique(np.linspace(0, len(bag) - 1, min(len(bag), MOST_POWERS)).round().astype(int))
    stds, codes, powers, logs, peak, total, at_line = [], [], [], [], 0.0, 0.0, dict.fromkeys(lines, 0.0)
    for first in range(0, len(bag), BLOCK):
        part = np.array(bag[first : first + BLOCK], dtype=np.float32)
        spectrum = spectra(part)
        power = spectrum.real**2 + spectrum.imag**2
        stds.append(part.std(axis=-1))
        codes.append(_codes(unit_phases(differences(spectrum, channels)[..., bins]), planes, stds[-1]))
        kept = chosen[(chosen >= first) & (chosen < first + len(part))] - first
        powers.append(_band_powers(power[kept], frequencies, list(bands.values())))
        logs.append(10 * np.log10(power[kept].reshape(-1, len(frequencies)) + 1e-9))
        peak = max(peak, float(part.max()), -float(part.min()))
        if lines:
            total += float(power[..., frequencies >= 1].sum())
            for line in lines:
                at_line[line] += float(power[..., np.abs(frequencies - line) <= 1].sum())
    std = np.concatenate(stds)
    flat = float((std <= FLAT * np.maximum(np.median(std, axis=0), 1e-6)).mean())
    shares = {line: float(np.log10(max(at_line[line] / max(total, 1e-30), 1e-12))) for line in lines}
    amplitude = float(np.log(max(float(std.mean()), 1e-12)))
    spectrum = np.median(np.concatenate(logs), axis=0).astype(np.float32)
    return PersonMeasures(np.concatenate(powers), flat, amplitude, shares, peak, spectrum, np.concatenate(codes))


def _band_powers(
    power: NDArray[np.float32], frequencies: NDArray[np.floating], bands: Sequence[Band]
) -> NDArray[np.float32]:
    """Log power of each channel and band: n x (channels * bands); of all frequencies where there is no band."""
    parts = [power[..., (frequencies >= low) & (frequencies < high)] for low, high in bands]
    logs = [np.log(part.sum(axis=-1) + 1e-9) for part in parts]
    return np.concatenate(logs or [np.log(power.sum(axis=-1) + 1e-9)], axis=1).astype(np.float32)


def _codes(vectors: NDArray[np.float32], planes: NDArray[np.float32], std: NDArray[np.float32]) -> NDArray[np.int32]:
    """On which side of random planes a window lies, as ``TABLES`` numbers; the opposite window has the same ones."""
    sides = (vectors @ planes > 0).reshape(len(vectors), TABLES, BITS)
    sides ^= ~sides[..., :1]
    places = np.arange(BITS, dtype=np.int32)
    codes: NDArray[np.int32] = (sides.astype(np.int32) << places).sum(axis=-1).astype(np.int32)
    codes[std.max(axis=1) <= 1e-6] = -1
    return codes
