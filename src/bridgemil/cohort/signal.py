"""What a window is: its electrodes, rate and length, and what its recording could hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Signal:
    """What every window of a cohort has in common; a model takes windows of one signal only.

    Parameters
    ----------
    channels
        Electrodes, in the order of the windows' second axis.
    sfreq
        Samples a second.
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
        return asdict(self) | {"channels": list(self.channels)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Signal:
        """Undo ``for_json``."""
        native = content["native_sfreq"]
        rate = None if native is None else float(native)
        return cls(tuple(map(str, content["channels"])), float(content["sfreq"]), int(content["n_times"]), rate)
