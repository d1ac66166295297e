"""Filtering and resampling a recording in one transform, equal to MNE's ``filter``, ``notch_filter`` and ``resample``.

MNE extends a recording at both ends by its point reflection, filters it, extends the result the same way up to a power
of two, and resamples that by cropping (or padding) its spectrum. A symmetric filter maps a point reflection onto the
point reflection of its output, so the two extensions are one: reflect once, transform once, multiply by the filters'
spectrum, crop, transform back.

The two differ at one place only: where the extended recording's end meets its beginning, the circular filter wraps
around the seam and MNE's does not. MNE's extended signal has a step there, whose ringing at the cutoff frequency is
present, weakly, in the recording. That difference is known within half a filter of the seam, and its ringing far from
it is a sum of a few smooth functions (``_seam``), which is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Signal = NDArray[np.float64]
BATCH = 4  # channels transformed together: the transform of several is vectorised, and they still fit the cache
CLEARANCE = 1.25  # the recording must lie this many half filters away from the seam, or MNE does it in two steps
PRECISION = 1e-9  # of the seam's ringing, relative to the step


def notch_end(frequency: float) -> float:
    """The upper stop edge of MNE's notch in Hz: it is freq / 200 wide, with transitions of 0.5 Hz."""
    return frequency + frequency / 400 + 0.5


def kernel(sfreq: float, low: float | None, high: float | None, notch: tuple[float, ...] = ()) -> Signal:
    """The band-pass and notches (in Hz) that MNE designs by default, convolved to one symmetric impulse response."""
    import mne

    taps = np.ones(1)
    if low is not None or high is not None:
        taps = np.asarray(mne.filter.create_filter(None, sfreq, low, high, verbose="WARNING"))
    if notch:  # the band-stops of mne.filter.notch_filter
        above = [notch_end(frequency) for frequency in notch]
        below = [frequency - frequency / 400 - 0.5 for frequency in notch]
        stop = mne.filter.create_filter(None, sfreq, above, below, "auto", 0.5, 0.5, verbose="WARNING")
        taps = np.convolve(taps, stop)
    return taps


@dataclass(frozen=True)
class Grid:
    """MNE's lengths for resampling ``n`` samples: how far they are extended, and which samples come out."""

    n: int
    n_out: int
    before: int  # samples of extension on either side
    after: int
    padded: int  # n + before + after, a power of two
    resampled: int  # what that becomes
    skipped: int  # of that, before the recording begins

    @classmethod
    def plan(cls, n: int, old: float, new: float) -> Grid:
        """The lengths that ``mne.filter.resample`` chooses by default for ``n`` samples; rates in Hz."""
        ratio = float(new) / old
        padded = 2 ** math.ceil(math.log2(n + 2 * min(n // 8, 100)))
        before = (padded - n) // 2
        return cls(
            n=n, n_out=max(round(ratio * n), 1), before=before, after=padded - n - before, padded=padded,
            resampled=max(round(ratio * padded), 1), skipped=round(ratio * before),
        )  # fmt: skip

    def has_room(self, half: int) -> bool:
        """Whether the recording lies far enough from the seam; ``half`` are the filter's samples on either side."""
        clear = min(self.before, self.after) >= max(CLEARANCE * half, 1)
        return clear and self.n > max(self.before, self.after) + half + 1


def filter_and_resample(signal: Signal, taps: Signal, grid: Grid, scale: float = 1.0) -> NDArray[np.float32]:
    """Filter (taps of ``kernel``), resample and scale a recording (channels x samples).

    Within 1e-3 of what MNE's steps give in the result's unit, for signals up to some 10,000 of it. The recording must
    lie far enough from the seam: ``grid.has_room``.
    """
    from scipy.fft import irfft, rfft

    half = len(taps) // 2
    gain = _gain(tuple(taps.tolist()), grid.padded, grid.resampled) * scale
    out = np.empty((len(signal), grid.n_out), dtype=np.float32)
    steps = np.empty((len(signal), 2 * half))
    for first in range(0, len(signal), BATCH):
        channels = slice(first, first + BATCH)
        continued = _continue(signal[channels], grid)
        steps[channels] = _seam_difference(signal[channels], continued, taps, grid)
        spectrum = rfft(continued, axis=1, overwrite_x=True)[:, : len(gain)]
        spectrum *= gain
        whole = irfft(spectrum, grid.resampled, axis=1, overwrite_x=True)
        out[channels] = whole[:, grid.skipped : grid.skipped + grid.n_out]
    if half:
        weights, shapes = _seam(half, grid)
        out += (steps @ weights * scale).astype(np.float32) @ shapes
    return out


@lru_cache(maxsize=4)
def _gain(taps: tuple[float, ...], padded: int, resampled: int) -> Signal:
    """What each kept bin of the spectrum is multiplied by: the filter (real, since it is symmetric) and MNE's scale."""
    from scipy.fft import rfft

    half = len(taps) // 2
    centred = np.zeros(padded)
    centred[: half + 1] = taps[half:]
    centred[padded - half :] = taps[:half]
    kept = min(padded, resampled)
    gain: Signal = rfft(centred).real[: kept // 2 + 1] * (resampled / padded)
    if kept % 2 == 0:
        gain[-1] *= 2 if resampled < padded else 0.5
    return gain


def _continue(signal: Signal, grid: Grid) -> Signal:
    """The recording with its point reflections at both ends (channels x padded)."""
    continued = np.empty((len(signal), grid.padded))
    end = grid.before + grid.n
    continued[:, grid.before : end] = signal
    np.subtract(2 * signal[:, :1], signal[:, grid.before : 0 : -1], out=continued[:, : grid.before])
    np.subtract(2 * signal[:, -1:], signal[:, -2 : -grid.after - 2 : -1], out=continued[:, end:])
    return continued


def _seam_difference(signal: Signal, continued: Signal, taps: Signal, grid: Grid) -> Signal:
    """What MNE's filtered continuation has more than the circular one (channels x 2 half), centred on the seam."""
    from scipy.fft import irfft, next_fast_len, rfft

    half = len(taps) // 2
    if not half:
        return np.empty((len(signal), 0))
    reach = np.arange(half)
    # Beyond each end: how the reflection continues, minus what the circular extension has there.
    behind = 2 * signal[:, -1:] - signal[:, grid.n - 2 - grid.after - reach] - continued[:, reach]
    ahead = 2 * signal[:, :1] - signal[:, grid.before + 1 + reach] - continued[:, grid.padded - 1 - reach]
    size = next_fast_len(2 * half, real=True)
    flank = rfft(taps[half + 1 :], size)

    def seen(beyond: Signal) -> Signal:  # by the filter, from each of the last half samples before the end
        return np.asarray(irfft(flank * rfft(beyond, size, axis=1).conj(), size, axis=1)[:, :half])

    return np.concatenate([seen(behind)[:, ::-1], seen(ahead)], axis=1)


@lru_cache(maxsize=2)
def _seam(half: int, grid: Grid) -> tuple[Signal, NDArray[np.float32]]:
    """How a difference at the seam sounds in the resampled recording: ``difference @ weights @ shapes``.

    Cropping the spectrum after bin q turns a unit sample at k into (sin(2 q a) cot(a) + w cos(2 q a)) / padded with
    a = pi (t - k) / padded: the sines separate into factors of t and of k, and the cotangent, smooth in k where t is
    far from the seam, is interpolated from a few Chebyshev nodes.
    """
    from numpy.polynomial.chebyshev import chebvander

    ratio = min(grid.before, grid.after) / half
    n_nodes = 1 + math.ceil(-math.log(PRECISION) / math.log(ratio + math.sqrt(ratio**2 - 1)))
    nodes = np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    places = np.arange(-half, half)
    vandermonde = chebvander(nodes, n_nodes - 1) * 2 / n_nodes
    vandermonde[:, 0] /= 2
    lagrange = chebvander(places / half, n_nodes - 1) @ vandermonde.T  # 2 half x nodes
    kept = min(grid.padded, grid.resampled)
    last, whole = kept // 2, grid.resampled < grid.padded or kept % 2  # MNE halves the last bin when it pads
    angle = 2 * np.pi * last / grid.padded * places[:, None]
    weights = np.hstack([np.cos(angle) * lagrange, np.sin(angle) * lagrange, np.cos(angle), np.sin(angle)])
    number = grid.skipped + np.arange(grid.n_out)
    turn = 2 * np.pi * ((last * number) % grid.resampled) / grid.resampled
    sine, cosine = np.sin(turn), np.cos(turn)
    cot = 1 / np.tan(np.pi * (number / grid.resampled - half / grid.padded * nodes[:, None]))  # nodes x time
    shapes = np.vstack([cot * sine, -cot * cosine, cosine * whole, sine * whole]) / grid.padded
    return weights, shapes.astype(np.float32)
