"""Every setting of ``prepare`` in one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from bridgemil.cohort.caps import Cap, cap
from bridgemil.cohort.channels import key, reference_electrode


class CleaningStep(BaseModel):
    """A user's function that cleans one recording; its place on the disk is nobody's business and is not kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str  # clean.py:clean, the file without its folder
    code: str  # fingerprint of its source (``user_code.fingerprint``)
    packages: dict[str, str] = {}  # versions of the installed packages it imports

    @property
    def title(self) -> str:
        """As the cohort's record names it: ``clean.py:clean (code 3f2a1b0c, pyprep 0.5.0)``."""
        return f"{self.address} ({', '.join([f'code {self.code[:8]}', *map(' '.join, self.packages.items())])})"


class PrepareSettings(BaseModel):
    """How recordings become windows. The defaults are those for any BIDS folder or manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    channels: tuple[str, ...] | None = Field(None, description="electrodes to keep, in this order; none: all shared")
    low: float | None = Field(0.5, ge=0.01, description="high-pass edge in Hz")
    high: float | None = Field(45.0, gt=0, description="low-pass edge in Hz")
    notch: tuple[float, ...] = Field((), max_length=50, description="notch frequencies in Hz")
    sfreq: float = Field(200.0, gt=0, le=100_000, description="sampling rate of the windows in Hz")
    reference: tuple[str, ...] = Field((), description="re-reference to these channels, or to 'average'")
    recorded_reference: str | None = Field(None, description="electrode that is itself the recording reference: zeros")
    clean: tuple[CleaningStep, ...] = Field((), description="functions that clean each recording before filtering")
    montage: Cap | None = Field(None, description="cap with electrode names of its own: MNE's name of it, or a table")
    window_seconds: float = Field(1.0, gt=0, le=3600, description="length of a window in seconds")
    overlap: float = Field(0.0, ge=0, lt=1, description="share of a window that the next one repeats")
    bad_annotations: Literal["drop", "keep"] = Field("drop", description="windows touching BAD, EDGE or boundary marks")
    bad_channels: Literal["stop", "drop", "interpolate"] = Field("stop", description="channels marked bad, flat or NaN")
    duplicates: Literal["stop", "keep-first"] = Field(
        "stop", description="a recording that is there twice, in one subject or in two of one class"
    )
    allow_low_rate: bool = Field(False, description="leave the low-pass out where it is beyond a recording's Nyquist")
    reject_uv: float | None = Field(None, gt=0, description="drop windows whose peak-to-peak exceeds this, in µV")
    folds: int | None = Field(None, ge=3, le=10_000, description="folds k; none: 10, or the smallest class if smaller")
    burn_in: int = Field(10, ge=0, le=100_000, description="epochs before a checkpoint may be selected")

    @field_validator("montage", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return cap(given) if isinstance(given, str) else given

    @field_validator("channels", "reference", mode="after")
    @classmethod
    def _no_repeats(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names and len({key(name) for name in names}) < len(names):
            raise ValueError("a channel is named twice (T3 and T7 are one, as are other spellings)")
        return names

    @field_validator("recorded_reference", mode="after")
    @classmethod
    def _electrode(cls, name: str | None) -> str | None:
        if name is not None and reference_electrode(name) is None:
            raise ValueError(f"one electrode of the 10-20 or 10-10 system is needed (Cz), got {name!r}")
        return name

    @model_serializer(mode="wrap")
    def _only_where_given(self, plain: Callable[[Self], dict[str, Any]]) -> dict[str, Any]:
        """Without the options that are not used, a cohort's record and recipe stay as they were before they existed."""
        unused = {name for name in ("clean", "montage", "recorded_reference") if not getattr(self, name)}
        return {name: value for name, value in plain(self).items() if name not in unused}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if "average" in self.reference and len(self.reference) > 1:
            raise ValueError("the reference is 'average' or channels, not both")
        if len(self.reference) == 1 and key(self.reference[0]) in [key(name) for name in self.channels or ()]:
            raise ValueError(f"{self.reference[0]} is the reference: kept as a channel it would be zero")
        if any(edge <= 0 for edge in self.notch):
            raise ValueError("notch frequencies must be above 0 Hz")
        if self.low and self.high and self.low >= self.high:
            raise ValueError(f"the low edge {self.low} Hz must lie below the high edge {self.high} Hz")
        if self.high and self.high >= self.sfreq / 2:
            half = f"half the rate of the windows, {self.sfreq / 2} Hz"
            raise ValueError(f"the high edge {self.high} Hz must lie below {half}")
        if abs(self.window_seconds * self.sfreq - self.window_samples) > 1e-6 or self.window_samples < 2:
            raise ValueError(f"a window of {self.window_seconds} s at {self.sfreq} Hz is no whole number of samples")
        return self

    @property
    def window_samples(self) -> int:
        """Samples in a window."""
        return round(self.window_seconds * self.sfreq)

    @property
    def step_samples(self) -> int:
        """Samples from one window's start to the next one's."""
        return max(1, round(self.window_samples * (1 - self.overlap)))
