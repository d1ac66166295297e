"""Measures of all subjects' signals, computed in one pass for the checks of shortcuts, identification and copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import CLINICAL_BANDS, Signal, band_power, evenly, held_bands

LINES = (50, 60)  # Hz
FLAT = 0.02  # a window's channel is flat below this share of the channel's usual standard deviation
BLOCK = 512  # windows transformed at once, which bounds the memory
MOST_POWERS = 100  # windows of a subject whose band powers are kept
MATCH_BAND = (2.0, 20.0)  # Hz: where copies are looked for; unaffected by common filters and rates
MOST_MATCH_CHANNELS = 8
TABLES, BITS = 8, 24  # of the windows' hash codes: two windows that agree in one table are compared
MOST_BITS = 31  # that an int32 holds
BY_CHANCE = 20_000  # pairs of windows that agree by chance; more windows get longer codes


@dataclass(frozen=True)
class SubjectMeasures:
    """Of one subject with n windows."""

    powers: NDArray[np.float32]  # log band power of m <= MOST_POWERS evenly spaced windows, m x (channels * bands)
    flat: float  # share of windows x channels that are flat
    amplitude: float  # log of the mean standard deviation of a window, in microvolts
    line: dict[int, float]  # log share of the power within 1 Hz of each line frequency in Hz that the signal holds
    peak: float  # the largest absolute value, in microvolts
    spectrum: NDArray[np.float32]  # median power of the same windows over windows and channels, in dB, by bin
    codes: NDArray[np.int32]  # n x TABLES: equal for windows that are equal but for scale and sign; -1 if flat


def match_channels(cohort: Cohort | Signal, most: int = MOST_MATCH_CHANNELS) -> list[int]:
    """Channels spread over the cohort's."""
    return [int(channel) for channel in evenly(len(cohort.channels), most)]


def differences(values: NDArray[Any], channels: list[int]) -> NDArray[Any]:
    """Differences of neighbours among some channels of (..., n_channels, n), which do not depend on the reference."""
    chosen: NDArray[Any] = values[..., channels, :]
    return np.diff(chosen, axis=-2) if len(channels) > 1 else chosen


def held_top(cohort: Cohort) -> float:
    """The highest frequency in Hz that native rate, rate and low-pass have left in the signal."""
    top = min(cohort.native_sfreq or cohort.sfreq, cohort.sfreq) / 2 - 1
    high = cohort.preparation.get("high")
    return top if high is None else min(top, float(high))


def held_lines(cohort: Cohort) -> tuple[int, ...]:
    """The line frequencies that rate, low-pass and notch have left in the signal, in Hz."""
    edge = held_top(cohort)
    notch = [float(frequency) for frequency in cohort.preparation.get("notch") or ()]
    return tuple(line for line in LINES if line < edge and not any(abs(line - f) < 2 for f in notch))


def spectra(windows: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Spectra of windows (n, C, T) with a Hann taper, shape (n, C, n_bins)."""
    from scipy.fft import rfft

    taper = np.hanning(windows.shape[-1] + 2)[1:-1].astype(np.float32)
    spectrum: NDArray[np.complex64] = rfft((windows - windows.mean(axis=-1, keepdims=True)) * taper, axis=-1)
    return spectrum


class WindowHash:
    """Phases and hash codes of windows of a signal, by which copies are looked for.

    ``n_windows`` is the number of windows that are compared with each other: more have longer codes.
    """

    def __init__(self, signal: Cohort | Signal, n_windows: int = 1) -> None:
        pairs = TABLES * n_windows**2 / 2
        self.bits = int(np.clip(np.ceil(np.log2(pairs / BY_CHANCE)) + 1, BITS, MOST_BITS))  # the first is constant
        frequencies = np.fft.rfftfreq(signal.n_times, 1 / signal.sfreq)
        low, high = MATCH_BAND
        inside = np.flatnonzero((frequencies >= low) & (frequencies <= high))
        self.bins = inside if len(inside) >= 8 else np.arange(1, len(frequencies))  # short windows: whatever there is
        self.channels = match_channels(signal)

    @cached_property
    def planes(self) -> NDArray[np.float32]:
        """Random planes, always the same."""
        size = 2 * len(self.bins) * max(1, len(self.channels) - 1)
        return np.random.default_rng(0).standard_normal((size, TABLES * self.bits)).astype(np.float32)

    def phases(self, spectrum: NDArray[np.complex64]) -> NDArray[np.float32]:
        """Phases as vectors (n, 2 * channels * bins), independent of scale; a flipped sign flips the vector."""
        chosen = spectrum[..., self.bins]
        size = np.abs(chosen)
        phases = np.divide(chosen, size, out=np.zeros_like(chosen), where=size > 1e-12).reshape(len(chosen), -1)
        return np.concatenate([phases.real, phases.imag], axis=1).astype(np.float32)

    def codes(self, windows: NDArray[np.float32], spectrum: NDArray[np.complex64]) -> NDArray[np.int32]:
        """Hash codes by the side of random planes on which a window lies (Charikar, 2002); equal if it is flipped."""
        vectors = self.phases(differences(spectrum, self.channels))
        sides = (vectors @ self.planes > 0).reshape(len(vectors), TABLES, self.bits)
        sides ^= ~sides[..., :1]
        places = np.arange(self.bits, dtype=np.int32)
        codes: NDArray[np.int32] = (sides.astype(np.int32) << places).sum(axis=-1).astype(np.int32)
        codes[windows.std(axis=-1).max(axis=1) <= 1e-6] = -1
        return codes


def measure(cohort: Cohort) -> dict[str, SubjectMeasures]:
    """Measure all subjects of a cohort; each window is read once."""
    hashing = WindowHash(cohort, cohort.n_windows)
    return {subject: _measure(cohort, subject, hashing) for subject in cohort.subjects}


def _measure(cohort: Cohort, subject: str, hashing: WindowHash) -> SubjectMeasures:
    lines, bag = held_lines(cohort), cohort.windows(subject)
    frequencies = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    bands, _ = held_bands(CLINICAL_BANDS, cohort.signal)
    chosen = evenly(len(bag), MOST_POWERS)
    stds, codes, powers, logs, peak, total, at_line = [], [], [], [], 0.0, 0.0, dict.fromkeys(lines, 0.0)
    for first in range(0, len(bag), BLOCK):
        part = np.array(bag[first : first + BLOCK], dtype=np.float32)
        spectrum = spectra(part)
        power = spectrum.real**2 + spectrum.imag**2
        stds.append(part.std(axis=-1))
        codes.append(hashing.codes(part, spectrum))
        kept = chosen[(chosen >= first) & (chosen < first + len(part))] - first
        own = power[kept]
        parts = band_power(own, frequencies, bands.values()) if bands else own.sum(axis=-1, keepdims=True)
        powers.append(np.log(parts + 1e-9).swapaxes(1, 2).reshape(len(parts), -1).astype(np.float32))
        logs.append(10 * np.log10(own.reshape(-1, len(frequencies)) + 1e-9))
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
    return SubjectMeasures(np.concatenate(powers), flat, amplitude, shares, peak, spectrum, np.concatenate(codes))
