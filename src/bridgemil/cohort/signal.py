"""What a window is: its electrodes, rate and length, and which frequencies its recording and its filters hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData, BadUse

Band = tuple[float, float]  # low and high edge in Hz; the high edge belongs to the next band
REFERENCES = ("average", "recorded")  # of the electrodes that features are computed from
NOTCH_WIDTH = 2.0  # Hz that a notch removes, transition included
CLINICAL_BANDS: dict[str, Band] = {
    "delta": (1, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30), "gamma": (30, 45),
}  # fmt: skip


@dataclass(frozen=True)
class Signal:
    """What every window of a cohort has in common; a model takes windows of one signal only."""

    channels: tuple[str, ...]  # electrodes, in the order of the windows' second axis
    sfreq: float  # rate of the windows in Hz; NaN if it is not known (arrays given to ``BridgeMILClassifier``)
    n_times: int  # samples in a window
    native_sfreq: float | None = None  # lowest rate in Hz before resampling; None if not known
    low: float | None = None  # high-pass and low-pass edge in Hz; None where there is none, or it is not known
    high: float | None = None
    notch: tuple[float, ...] = ()  # notched frequencies in Hz

    @property
    def n_channels(self) -> int:
        """How many electrodes."""
        return len(self.channels)

    @property
    def top(self) -> float:
        """The highest frequency in Hz that rates and filters hold."""
        edges = (self.sfreq / 2, self.native_sfreq and self.native_sfreq / 2, self.high)
        return min(edge for edge in edges if edge is not None)

    def for_json(self) -> dict[str, Any]:
        """As a model's record holds it; filters only where there are any."""
        content = asdict(self) | {"channels": list(self.channels), "notch": list(self.notch)}
        content["sfreq"] = None if math.isnan(self.sfreq) else self.sfreq
        return {key: v for key, v in content.items() if key not in ("low", "high", "notch") or v not in (None, [])}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Signal:
        """Undo ``for_json``."""
        values = {key: content[key] for key in cls.__dataclass_fields__ if key in content}
        values |= {"channels": tuple(content["channels"]), "notch": tuple(content.get("notch") or ())}
        values["sfreq"] = math.nan if content["sfreq"] is None else content["sfreq"]
        return cls(**values)


def held_bands(bands: Mapping[str, Band], signal: Signal) -> tuple[dict[str, Band], dict[str, str]]:
    """The bands (Hz, by name) that rates, filters and window length hold; of the others the reason.

    A band is narrowed to what the high-pass, the low-pass and half of either sampling rate let through, and is held if
    at least half of its width remains, notches taken off: what is left is then mostly EEG. Less of it is mostly the
    filter's residue, which standardisation would raise to full weight.
    """
    top, half, native = signal.top, signal.sfreq / 2, signal.native_sfreq
    if top == half:
        why = f"windows sampled at {signal.sfreq:g} Hz hold nothing above {half:g} Hz"
    elif native is not None and top == native / 2:
        why = f"recordings made at {native:g} Hz hold nothing above {top:g} Hz"
    else:
        why = f"the low-pass at {top:g} Hz removed it"
    held, left_out = dict[str, Band](), dict[str, str]()
    for name, (low, high) in bands.items():
        kept, least = (max(low, signal.low or 0), min(high, top)), (high - low) / 2
        edges = [(f - NOTCH_WIDTH / 2, f + NOTCH_WIDTH / 2) for f in signal.notch]
        notched = sum(max(0.0, min(kept[1], above) - max(kept[0], below)) for below, above in edges)
        if kept[1] - kept[0] - notched >= least and bins(kept, signal):
            held[name] = kept
        elif high - top > least:
            left_out[name] = why
        elif kept[0] - low > least:
            left_out[name] = f"the high-pass at {signal.low:g} Hz removed it"
        elif kept[1] - kept[0] - notched < least:
            left_out[name] = "the filters of the preparation removed more than half of it"
        else:
            seconds = signal.n_times / signal.sfreq
            left_out[name] = f"the spectrum of a window of {seconds:g} s has no frequency in it"
    return held, left_out


def some_bands(bands: Mapping[str, Band], signal: Signal) -> tuple[dict[str, Band], dict[str, str]]:
    """As ``held_bands``, for features that need one band at least."""
    held, left_out = held_bands(bands, signal)
    if not held:
        reasons = "; ".join(f"the band {name}: {reason}" for name, reason in left_out.items())
        raise BadData(f"{reasons}. Use recordings of a higher rate, a wider band-pass or longer windows")
    return held, left_out


def evenly(n: int, most: int) -> NDArray[np.intp]:
    """Numbers of at most ``most`` of n windows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def band_name(band: Band) -> str:
    """A band as text: ``8-13 Hz``."""
    return f"{band[0]:g}-{band[1]:g} Hz"


def bins(band: Band, signal: Signal) -> range:
    """The bins of a window's spectrum in a band: low edge <= frequency < high edge."""
    low, high = (math.ceil(edge * signal.n_times / signal.sfreq - 1e-9) for edge in band)
    return range(low, min(high, signal.n_times // 2 + 1))


def band_power(density: NDArray[Any], frequency: NDArray[Any], bands: Iterable[Band]) -> NDArray[Any]:
    """Power in each band (..., n_bands): the sum of a spectrum (..., n_bins) over low edge <= frequency < high edge."""
    parts = [density[..., (frequency >= low) & (frequency < high)].sum(axis=-1) for low, high in bands]
    return np.stack(parts, axis=-1)


def relative_band_power(density: NDArray[Any], frequency: NDArray[Any], bands: Iterable[Band]) -> NDArray[Any]:
    """Share of each band in the power of all of them; parameters and shape as of ``band_power``."""
    power = band_power(density, frequency, bands) + 1e-12
    power /= power.sum(axis=-1, keepdims=True)
    return power


def rereferenced(windows: NDArray[Any], reference: str = "average") -> NDArray[Any]:
    """Windows (n x channels x time) minus the average of their electrodes; one alone, or ``recorded``, as it is."""
    if reference == "recorded" or windows.shape[1] == 1:
        return windows
    average: NDArray[Any] = windows - windows.mean(axis=1, keepdims=True)
    return average


def window_band_power(windows: NDArray[Any], sfreq: float, bands: Iterable[Band]) -> NDArray[Any]:
    """Relative band power (n x channels x bands) of windows (n x channels x time), by Hann-windowed periodograms."""
    from scipy.signal import periodogram

    frequency, density = periodogram(windows, sfreq, window="hann", axis=-1)
    return relative_band_power(density, frequency, bands)


def require_rate(what: str, sfreq: float) -> None:
    """Refuse work (``what``, for the message) that depends on the sampling rate where it is unknown (NaN)."""
    if math.isnan(sfreq):
        raise BadUse(
            f"{what} depends on the sampling rate of the windows: give it in Hz, BridgeMILClassifier(sfreq=...), or "
            "give bags that are mne.Epochs, which know it"
        )
