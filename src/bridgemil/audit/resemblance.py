"""Whether two aligned signals are the same: correlations by channel and piece, with artefacts removed from both.

An electrode pop of millivolts dominates every correlation it is part of, and two unrelated recordings with a pop each
correlate at the offset that aligns them. Samples that change much faster than the channel usually does are therefore
removed before the signals are filtered, each channel has the same weight whatever its amplitude, and two recordings are
the same only if most channels agree in several pieces, at one offset and with one sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.measures import MATCH_BAND

PIECE = 2.0  # seconds compared at a time
SAME_PIECE = 0.7  # median correlation over channels from which a piece is the same signal; unrelated EEG reaches 0.52
FEWEST, SHARE = 4, 0.75  # pieces that must agree; of a recording with fewer, this share of them
STEP = 5.0  # usual steps from a sample to the next, above which it is an artefact (0.1 % of Gaussian steps)
AROUND = 0.05  # seconds before and after an artefact that are removed with it


@dataclass(frozen=True)
class Cleaned:
    """A signal without its artefacts, channels x samples."""

    values: NDArray[np.float32]  # differences of successive samples, limited to MATCH_BAND; zero where not kept
    kept: NDArray[np.bool_]  # False in artefacts and gaps


def referenced_to_median(values: NDArray[Any], channels: list[int]) -> NDArray[Any]:
    """These channels (of channels x samples) minus their median at each sample; independent of the reference."""
    chosen: NDArray[Any] = values[channels]
    return chosen - np.median(chosen, axis=0) if len(channels) > 1 else chosen


def without_artefacts(line: NDArray[np.float32], sfreq: float) -> Cleaned:
    """Remove pops and drifts: differences of successive samples, which whiten EEG, without the extreme ones.

    ``line`` is a signal (channels x samples), zero in gaps.
    """
    from scipy.fft import irfft, next_fast_len, rfft
    from scipy.ndimage import maximum_filter1d

    steps = np.diff(line, axis=-1, prepend=line[:, :1])
    size = np.abs(steps)
    usual = np.array([np.median(row[row > 0]) if row.any() else 0.0 for row in size])[:, None]
    around = 2 * round(AROUND * sfreq) + 1
    kept = ~maximum_filter1d(size > STEP * usual / 0.6745, around, axis=-1) & line.any(axis=0)
    n = next_fast_len(line.shape[1] + round(sfreq), real=True)
    frequencies, (low, high) = np.fft.rfftfreq(n, 1 / sfreq), MATCH_BAND
    # 1 within the band, falling to 0 over a fifth of its edges: a sharp edge would ring for seconds.
    rising = np.clip((frequencies - 0.8 * low) / (0.2 * low), 0, 1)
    falling = np.clip((1.2 * high - frequencies) / (0.2 * high), 0, 1)
    spectrum = rfft(steps * kept, n, axis=-1) * (rising * falling).astype(np.float32)
    values = irfft(spectrum, n, axis=-1)[:, : line.shape[1]]
    return Cleaned((values * kept).astype(np.float32), kept & (usual > 0))


def window_correlation(a: NDArray[np.float32], b: NDArray[np.float32], sfreq: float) -> float:
    """Median correlation over the channels of two windows (channels x samples)."""
    one, two = (without_artefacts(referenced_to_median(window, list(range(len(a)))), sfreq) for window in (a, b))
    r = _pieces(one, two, a.shape[1])
    return float(r[0]) if len(r) else 0.0


def best_lag(a: Cleaned, b: Cleaned, lag: int, sfreq: float) -> float | None:
    """The offset in samples near ``lag`` at which most pieces agree; None if no piece agrees at any offset.

    By ``lag``, b is later than a, to within half a period of the highest frequency.
    """
    near = round(sfreq / (2 * MATCH_BAND[1]))
    lags = [lag + step / 2 for step in range(-2 * near, 2 * near + 1)]  # half samples: it may have been resampled
    pieces = {at: np.abs(_pieces(*_aligned(a, b, at), round(PIECE * sfreq))) for at in lags}
    best = max(lags, key=lambda at: (int((pieces[at] > SAME_PIECE).sum()), float(pieces[at].max(initial=0))))
    return best if (pieces[best] > SAME_PIECE).any() else None


def shared(a: Cleaned, b: Cleaned, lag: float, sfreq: float) -> tuple[float, float]:
    """Seconds of two timelines that are the same if b is ``lag`` samples later, and their correlation.

    Both are 0 where too few pieces agree.
    """
    size = round(PIECE * sfreq)
    r = _pieces(*_aligned(a, b, lag), size)
    sign = 1 if (r > SAME_PIECE).sum() >= (r < -SAME_PIECE).sum() else -1
    same = sign * r > SAME_PIECE
    shorter = min(a.values.shape[1], b.values.shape[1]) / size
    if same.sum() < max(2, min(FEWEST, SHARE * shorter)):
        return 0.0, 0.0
    return float(same.sum()) * PIECE, float(np.median(r[same]))


def _pieces(a: Cleaned, b: Cleaned, size: int) -> NDArray[np.float64]:
    """Median correlation over channels of each piece; 0 where artefacts cover most of most channels."""
    n = a.values.shape[1] // size
    shape = (len(a.values), n, size)
    kept = (a.kept & b.kept)[:, : n * size].reshape(shape)
    one, two = (each.values[:, : n * size].reshape(shape) * kept for each in (a, b))
    products = np.einsum("cps,cps->cp", one, two)
    norms = np.sqrt(np.einsum("cps,cps->cp", one, one) * np.einsum("cps,cps->cp", two, two))
    r = np.divide(products, norms, out=np.zeros_like(products), where=norms > 1e-12)
    counts = kept.mean(axis=-1) >= 0.5
    alive = max(1, int((a.kept.any(axis=1) & b.kept.any(axis=1)).sum()))
    medians = np.zeros(n)
    for piece in np.flatnonzero(counts.sum(axis=0) * 2 > alive):
        medians[piece] = np.median(r[counts[:, piece], piece])
    return medians


def _aligned(a: Cleaned, b: Cleaned, lag: float) -> tuple[Cleaned, Cleaned]:
    """The parts of both that coincide if b is ``lag`` samples later; half samples by interpolation."""
    whole = int(np.floor(lag))
    if lag != whole:
        b = Cleaned(((b.values[:, :-1] + b.values[:, 1:]) / 2).astype(np.float32), b.kept[:, :-1] & b.kept[:, 1:])
    first, last = max(0, -whole), min(a.values.shape[1], b.values.shape[1] - whole)
    in_a, in_b = slice(first, max(first, last)), slice(first + whole, max(first, last) + whole)
    return Cleaned(a.values[:, in_a], a.kept[:, in_a]), Cleaned(b.values[:, in_b], b.kept[:, in_b])
