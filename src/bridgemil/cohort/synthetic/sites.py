"""Synthetic sites: they differ in recording, or in whom they recruit, and never in the disease.

Each shift is a line of ``SITE_SHIFTS``. Sites are numbered from 0; what a site does grows with its level, 0 for the
first site, then 1, -1, 2, -2, …, so that the first site is as without shifts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import ADFTD_ORDER

Signal = NDArray[np.float64]
SiteShift = Literal["reference", "gain", "noise", "slope", "age"]
SITE_SHIFTS: dict[SiteShift, str] = {
    "reference": "the recording reference: as generated, then the mean of T3 and T4, C3 and C4, O1 and O2",
    "gain": "the amplification, a factor of 1.6 per level",
    "noise": "white noise of the sensors, 2 µV more at each site",
    "slope": "the amplifier's frequency response, (f / 10 Hz) to the power of 0.4 per level",
    "age": "8 years older per level, patients 6 more than controls; the EEG slows with age at every site alike",
}
assert set(SITE_SHIFTS) == set(get_args(SiteShift))
REFERENCES = ((), ("T3", "T4"), ("C3", "C4"), ("O1", "O2"))
GAIN, NOISE_UV, SLOPE = 1.6, 2.0, 0.4
AGE, AGE_SPREAD, AGE_OF_SITE, AGE_OF_PATIENTS = 65.0, 6.0, 8.0, 6.0  # years
AGEING = {"theta": 0.02, "alpha": -0.015}  # of a band's log amplitude, a year
AGEING_HZ = -0.03  # of the alpha frequency, a year


class Site(NamedTuple):
    """A site and the shifts it has."""

    number: int
    shifts: tuple[SiteShift, ...] = ()

    @property
    def level(self) -> int:
        """0, 1, -1, 2, -2, …"""
        return (self.number + 1) // 2 * (1 if self.number % 2 else -1)

    @property
    def name(self) -> str:
        """As in participants.tsv."""
        return f"site{self.number + 1}"

    def age(self, rng: np.random.Generator, patient: bool) -> float:
        """The age of a person that the site recruits, in years."""
        mean = AGE + self.level * (AGE_OF_SITE + (AGE_OF_PATIENTS if patient else 0.0))
        return float(np.round(rng.normal(mean, AGE_SPREAD), 1))

    def recorded(self, signal: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        """What the site records of a signal (channels x time, microvolts)."""
        if "slope" in self.shifts and self.level:
            frequency = np.fft.rfftfreq(signal.shape[1], 1 / sfreq)
            response = (np.maximum(frequency, 0.5) / 10) ** (SLOPE * self.level)
            signal = np.fft.irfft(np.fft.rfft(signal) * response, signal.shape[1])
        if "noise" in self.shifts:
            signal = signal + rng.normal(0, NOISE_UV * self.number, signal.shape) if self.number else signal
        if "reference" in self.shifts and (electrodes := REFERENCES[self.number % len(REFERENCES)]):
            signal = signal - signal[[ADFTD_ORDER.index(name) for name in electrodes]].mean(axis=0)
        return signal * GAIN**self.level if "gain" in self.shifts else signal
