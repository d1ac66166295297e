"""What a kind of hostile input is: something whole, ways to damage it, and the entry point that must bear it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bridgemil import Cohort, prepare
from fuzz.mutations import Change, Random

SECRET = "ZQ7SECRET"  # stands in every header where a patient's name does; must reach nothing


@dataclass
class Said:
    """What an entry point made of an input: a result to compare, and what was said about it."""

    result: Any
    notes: list[str] = field(default_factory=list)


class Kind(Protocol):
    """One kind of input; ``KINDS`` in ``fuzz.kinds`` lists them."""

    name: str

    def build(self, folder: Path) -> None:
        """Write the whole input into an empty folder."""

    def damage(self, folder: Path, rng: Random) -> Change:
        """Change a copy of it."""

    def run(self, folder: Path, out: Path, number: int) -> Said:
        """Give it to the entry point; ``out`` is the only place that may be written."""


def prepared(source: Path, out: Path, **more: Any) -> Said:
    """A cohort made of the input, as far as a result depends on it."""
    chosen: dict[str, Any] = {"jobs": 1, "progress": False} | more
    return of_cohort(prepare(source, out, **chosen))


def of_cohort(cohort: Cohort) -> Said:
    """What a cohort holds."""
    signals = {s: digest(np.asarray(cohort.windows(s))) for s in cohort.subjects}
    about = cohort.metadata
    notes = [str(about.get(key)) for key in ("left_out", "skipped", "notes")]
    return Said([signals, cohort.labels, cohort.channels, cohort.sfreq], notes)


def digest(array: np.ndarray) -> str:
    """A hash of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes() + str(array.shape).encode()).hexdigest()
