"""What a window is: its electrodes, rate and length, and what its recording could hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bridgemil.errors import BadUse


@dataclass(frozen=True)
class Signal:
    """What every window of a cohort has in common; a model takes windows of one signal only.

    Parameters
    ----------
    channels
        Electrodes, in the order of the windows' second axis.
    sfreq
        Sampling rate of the windows, in Hz; NaN if it is not known (arrays given to ``BridgeMILClassifier``).
    n_times
        Samples in a window.
    native_sfreq
        The lowest rate at which a recording was sampled before it was resampled, in Hz; None if not known.
    """

    channels: tuple[str, ...]
    sfreq: float
    n_times: int
    native_sfreq: float | None = None

    @property
    def n_channels(self) -> int:
        """How many electrodes."""
        return len(self.channels)

    def for_json(self) -> dict[str, Any]:
        """As a model's record holds it."""
        rate = None if math.isnan(self.sfreq) else self.sfreq
        return asdict(self) | {"channels": list(self.channels), "sfreq": rate}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Signal:
        """Undo ``for_json``."""
        native, rate = content["native_sfreq"], content["sfreq"]
        return cls(
            tuple(map(str, content["channels"])),
            math.nan if rate is None else float(rate),
            int(content["n_times"]),
            None if native is None else float(native),
        )


def require_rate(what: str, sfreq: float) -> None:
    """Refuse work that depends on the sampling rate where it is not known.

    Parameters
    ----------
    what
        What needs it, for the message.
    sfreq
        The rate in Hz; NaN if it is not known.
    """
    if math.isnan(sfreq):
        raise BadUse(
            f"{what} depends on the sampling rate of the windows: give it in Hz, BridgeMILClassifier(sfreq=...), or "
            "give bags that are mne.Epochs, which know it"
        )
