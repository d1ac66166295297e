"""The generator of synthetic EEG: subjects vary between each other and over time as real controls do.

The activity of a subject is the sum of six bands. Each band has a source under every electrode, spread over its
neighbours. Sources differ in strength between subjects (a band as a whole, and each source by itself) and over time
(likewise), by the standard deviations of ``BANDS``, which were set by benchmarks/people_spread.py against the 29
healthy controls of ``adftd-300s`` and by nothing else.

A component common to all electrodes is added. In those recordings it falls as about f^-2.25, has the same gain at every
electrode, and its power at 1 Hz varies between controls no more than that of 300 s of stationary noise (a standard
deviation of .07 in the logarithm). It therefore does not distinguish subjects; its origin is unknown. ``common_uv=0``
omits it; with the average reference it makes no difference.

Sites differ in recording, or in whom they recruit, and never in the disease. They are numbered from 0; what a site does
grows with its level, 0 for the first site, then 1, -1, 2, -2, …, so that the first site is as without shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bridgemil.cohort.channels import ADFTD_ORDER

CLASSES = ("control", "slowing", "frontal")
Signal = NDArray[np.float64]
SiteShift = Literal["reference", "gain", "noise", "slope", "age"]
SITE_SHIFTS: dict[SiteShift, str] = {
    "reference": "the recording reference: as generated, then the mean of T3 and T4, C3 and C4, O1 and O2",
    "gain": "the amplification, a factor of 1.6 per level",
    "noise": "white noise of the sensors, 2 µV more at each site",
    "slope": "the amplifier's frequency response, (f / 10 Hz) to the power of 0.4 per level",
    "age": "8 years older per level, patients 6 more than controls; the EEG slows with age at every site alike",
}
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

    def recorded(self, signal: Signal, sfreq: float, rng: np.random.Generator) -> Signal:
        """What the site records of a signal (channels x time, microvolts)."""
        if "slope" in self.shifts and self.level:
            frequency = np.fft.rfftfreq(signal.shape[1], 1 / sfreq)
            response = (np.maximum(frequency, 0.5) / 10) ** (SLOPE * self.level)
            signal = np.fft.irfft(np.fft.rfft(signal) * response, signal.shape[1])
        if "noise" in self.shifts and self.number:
            signal = signal + rng.normal(0, NOISE_UV * self.number, signal.shape)
        if "reference" in self.shifts and (electrodes := REFERENCES[self.number % len(REFERENCES)]):
            signal = signal - signal[[ADFTD_ORDER.index(name) for name in electrodes]].mean(axis=0)
        return signal * GAIN**self.level if "gain" in self.shifts else signal


class SynthSettings(BaseModel):
    """What to simulate. The numbers that decide how hard the task is are frozen defaults.

    They were accepted by benchmarks/synthetic_acceptance.py, and frozen before any learning method was run on them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: int = Field(60, ge=6, description="subjects in all, evenly split between the classes")
    classes: Literal[2, 3] = 2
    seconds: int = Field(120, ge=60, description="length of each recording")
    sfreq: int = Field(256, ge=128, description="samples per second")
    evidence: Literal["state", "burst", "trait"] = "state"
    seed: int = Field(0, ge=0)
    strength: float = Field(6.5, gt=0, description="amplitude of the slowing at its peak, in microvolts")
    burst_strength: float = Field(230.0, gt=0, description="height of a sharp wave, in microvolts")
    trait_strength: float = Field(1.7, gt=0, description="how far the disease shifts the background")
    common_uv: float = Field(32.5, ge=0, description="component common to all electrodes and subjects, in microvolts")
    sites: int = Field(1, ge=1, description="sites that record them, each as many of every class")
    site_shift: tuple[SiteShift, ...] = Field((), description="what sites differ in; never the disease")

    @model_validator(mode="after")
    def _enough(self) -> SynthSettings:
        least = 3 * self.classes * self.sites
        if self.sites > 1 and self.subjects < least:
            raise ValueError(
                f"{self.sites} sites with 3 subjects of each class need {least} subjects, not {self.subjects}"
            )
        if self.site_shift and self.sites < 2:
            raise ValueError("site_shift needs sites=2 or more")
        return self

    def site(self, index: int) -> Site:
        """The site that records a person."""
        return Site(index // self.classes % self.sites, self.site_shift)

    def age(self, index: int) -> float:
        """A person's age in years, of which the EEG depends where ``age`` is a shift of sites."""
        rng = np.random.default_rng([self.seed, 9, index])
        if "age" not in self.site_shift:
            return float(rng.integers(50, 80))
        mean = AGE + self.site(index).level * (AGE_OF_SITE + (AGE_OF_PATIENTS if index % self.classes else 0.0))
        return float(np.round(rng.normal(mean, AGE_SPREAD), 1))


class Event(NamedTuple):
    """A stretch of the recording and what happens in it."""

    onset: float
    duration: float
    kind: str


@dataclass(frozen=True)
class Person:
    """One simulated recording with its truth."""

    subject: str
    label: str
    signal: Signal  # channels x time, microvolt
    events: list[Event]
    evidence: NDArray[np.bool_]  # which of its one-second windows hold evidence


def evidence_windows(events: Sequence[Event], begin: Signal) -> NDArray[np.bool_]:
    """Which one-second windows, by where they begin in seconds, lie in evidence for at least half their length.

    Also those that hold at least half of a burst.
    """
    hit = np.zeros(len(begin), dtype=bool)
    for event in events:
        if event.kind.startswith("evidence"):
            overlap = np.minimum(begin + 1, event.onset + event.duration) - np.maximum(begin, event.onset)
            hit |= overlap >= 0.5 * min(1.0, event.duration)
    return hit


class Band(NamedTuple):
    """A band of activity and its spreads, as standard deviations of log amplitude."""

    level: float  # median amplitude in microvolt
    people: float  # between subjects: the band as a whole
    follows: float  # how much of the delta's and alpha's share in that it takes over
    sources: float  # between subjects: each source by itself
    moments: float  # from second to second: the band as a whole
    source_moments: float  # from second to second: each source by itself
    reach: float  # of a source, on the unit disk
    centre: float = 0.0  # in Hz; of alpha the subject's own counts
    width: float = 0.0


BANDS = {
    "delta": Band(3.93, 0.17, 0.30, 0.46, 0.40, 0.19, 0.45),
    "theta": Band(0.69, 0.02, 0.75, 0.28, 0.37, 0.09, 0.55, 5.5, 1.0),
    "alpha": Band(3.57, 0.48, 0.00, 0.52, 0.53, 0.07, 0.55, 9.6, 0.9),
    "low beta": Band(1.45, 0.11, 0.50, 0.50, 0.32, 0.12, 0.50, 16.0, 2.5),
    "high beta": Band(0.94, 0.12, 0.40, 0.62, 0.40, 0.23, 0.45, 24.0, 4.0),
    "gamma": Band(0.65, 0.08, 0.00, 0.80, 0.51, 0.34, 0.45, 37.0, 7.0),
}
TRAITS = (*BANDS, "alpha_hz")
ALPHA_HZ_SPREAD = 0.6
CLEANED = 0.15  # of blinks and muscles: the share left after cleaning, as in the recordings the spreads are from
SENSOR_UV = 0.3


class Shift(NamedTuple):
    """What a disease does to the background at strength 1."""

    alpha_hz: float
    log_amplitude: dict[str, float]  # of a band, everywhere
    front: float  # the same, more in front (1) or everywhere alike (0)


SHIFTS = {
    "slowing": Shift(-0.8, {"theta": 0.35, "alpha": -0.25}, 0.0),
    "frontal": Shift(-0.3, {"delta": 0.3, "theta": 0.25}, 1.0),
}


def simulate(settings: SynthSettings, index: int) -> Person:
    """Simulate one person, numbered from 0; classes alternate. Depends on the settings and the index only."""
    label = CLASSES[index % settings.classes]
    signal, events = _record(settings, index, label)
    signal = settings.site(index).recorded(signal, settings.sfreq, np.random.default_rng([settings.seed, 7, index]))
    events = sorted(events)
    evidence = evidence_windows(events, np.arange(settings.seconds, dtype=float))
    return Person(f"sub-{index + 1:03d}", label, signal, events, evidence)


def _record(settings: SynthSettings, index: int, label: str) -> tuple[Signal, list[Event]]:
    """Person ``index``'s signal (channels x time, microvolt) and what happened in it."""
    rng = np.random.default_rng([settings.seed, 0, index])
    n, rate = settings.seconds * settings.sfreq, settings.sfreq
    patient = label != "control"
    scores = standard_scores(settings, index)
    shift = SHIFTS[label] if patient and settings.evidence == "trait" else Shift(0.0, {}, 0.0)
    alpha_hz = BANDS["alpha"].centre + ALPHA_HZ_SPREAD * scores["alpha_hz"] + settings.trait_strength * shift.alpha_hz
    years = settings.age(index) - AGE if "age" in settings.site_shift else 0.0
    alpha_hz += AGEING_HZ * years

    states = draw_states(rng, settings, patient) if settings.evidence == "state" else []
    bursts = draw_bursts(rng, settings, patient) if settings.evidence == "burst" else []
    height = envelope(rng, states, n, rate)
    shared = sum(BANDS[name].people * scores[name] for name in ("delta", "alpha"))
    signal, frequency = np.zeros((len(PLACES), n)), np.fft.rfftfreq(n, 1 / rate)
    for name, band in BANDS.items():
        whole = band.people * scores[name] + band.follows * shared
        change = settings.trait_strength * shift.log_amplitude.get(name, 0.0)
        gain = band.level * np.exp(whole + AGEING.get(name, 0.0) * years + change * (1 + shift.front * PLACES[:, 1]))
        if name == "alpha":
            gain = gain * np.clip(0.75 - 0.6 * PLACES[:, 1], 0.3, None)  # the back of the head
        centre = alpha_hz if name == "alpha" else band.centre
        shape = np.exp(-0.25 * ((frequency - centre) / band.width) ** 2) if band.width else _falling(frequency, 0.9)
        activity = gain[:, None] * _activity(rng, band, shape, settings)
        signal += activity * (1 - 0.5 * np.clip(height, 0, 1)) if name == "alpha" else activity
    if states:
        signal += settings.strength * _slowing(rng, height, rate, front=label == "frontal")
    if bursts:
        signal += settings.burst_strength * sharp_waves(rng, bursts, n, rate, front=label == "frontal")
    artefacts = add_artefacts(rng, signal, settings)
    signal += settings.common_uv * shaped_noise(rng, n, _falling(frequency, 1.125))
    signal += rng.normal(0, SENSOR_UV, signal.shape)
    whole_recording = [Event(0.0, float(settings.seconds), "background_shifted")] if shift.log_amplitude else []
    return signal, [*whole_recording, *states, *bursts, *artefacts]


def _falling(frequency: NDArray[Any], exponent: float) -> Signal:
    """Amplitudes that fall with the frequency, level below 0.8 Hz."""
    return np.asarray(np.maximum(frequency, 0.8) ** -exponent * (frequency > 0))


def _activity(rng: np.random.Generator, band: Band, shape: Signal, settings: SynthSettings) -> Signal:
    """A band's activity at the electrodes (channels x time), of amplitude about one."""
    rows, seconds, rate = len(PLACES), settings.seconds, settings.sfreq
    sources = shaped_noise(rng, seconds * rate, shape, rows).reshape(rows, seconds, rate)
    moments = band.moments * rng.normal(size=(1, seconds + 1))
    moments = moments + band.source_moments * rng.normal(size=(rows, seconds + 1))
    strength = np.exp(moments + band.sources * rng.normal(size=(rows, 1)))[..., None]  # at every full second
    between = np.arange(rate) / rate
    sources *= strength[:, :-1] + (strength[:, 1:] - strength[:, :-1]) * between
    smear = np.exp(-((APART / band.reach) ** 2))
    smear /= np.linalg.norm(smear, axis=1, keepdims=True)
    activity: Signal = smear @ sources.reshape(rows, -1)
    return activity


def _slowing(rng: np.random.Generator, height: Signal, rate: int, front: bool) -> Signal:
    """The slow rhythm of the states (channels x time, unit height)."""
    hz = rng.uniform(2.0, 3.2) if front else rng.uniform(4.8, 6.5)
    field = np.exp(-((APART / 0.6) ** 2)) @ rng.normal(size=len(APART))  # a smooth random map over the scalp
    field /= np.abs(field).max()
    spread = np.clip(0.7 + 0.4 * (1 if front else -0.4) * PLACES[:, 1], 0.1, None) + 0.15 * field
    frequency = np.fft.rfftfreq(len(height), 1 / rate)
    rhythm = shaped_noise(rng, len(height), np.exp(-0.5 * ((frequency - hz) / 0.6) ** 2))  # which waxes and wanes
    return np.asarray(spread[:, None] * height * rhythm[0])


# Where the electrodes of the ADFTD montage lie on a unit disk seen from above (electrodes x 2): right, and to the nose.
PLACES = np.array([
    (-0.28, 0.87), (0.28, 0.87), (-0.74, 0.53), (-0.38, 0.48), (0, 0.45), (0.38, 0.48), (0.74, 0.53),
    (-0.92, 0), (-0.46, 0), (0, 0), (0.46, 0), (0.92, 0),
    (-0.74, -0.53), (-0.38, -0.48), (0, -0.45), (0.38, -0.48), (0.74, -0.53), (-0.28, -0.87), (0.28, -0.87),
], dtype=float)  # fmt: skip
APART = np.linalg.norm(PLACES[:, None] - PLACES[None], axis=-1)  # distances between them


def standard_scores(settings: SynthSettings, index: int) -> dict[str, float]:
    """A person's traits as standard scores.

    Each is spread evenly over its normal distribution within every class (a Latin hypercube), so that classes have the
    same fingerprints by design and a small cohort is not confounded by chance.
    """
    from scipy.stats import norm

    number, place = index % settings.classes, index // settings.classes
    members = len(range(number, settings.subjects, settings.classes))
    scores = {}
    for order, name in enumerate(TRAITS):
        rank = np.random.default_rng([settings.seed, 1 + number, order]).permutation(members)[place]
        scores[name] = float(norm.ppf((rank + 0.5) / members))
    return scores


def shaped_noise(rng: np.random.Generator, n: int, amplitude: Signal, rows: int = 1) -> Signal:
    """Gaussian noise with the given amplitude at each frequency, scaled to unit variance (rows x n)."""
    spectrum = rng.normal(size=(rows, len(amplitude))) + 1j * rng.normal(size=(rows, len(amplitude)))
    noise = np.fft.irfft(spectrum * amplitude, n)
    unit: Signal = noise / noise.std(axis=1, keepdims=True)
    return unit


def draw_states(rng: np.random.Generator, settings: SynthSettings, patient: bool) -> list[Event]:
    """States of 5-20 s that do not touch: 33-57 % of a patient's time, at most 8 % of a control's."""
    total = settings.seconds
    lengths: list[float] = []
    if patient:
        target = rng.uniform(0.35, 0.55) * total
        while target - sum(lengths) >= 5:
            lengths.append(min(rng.uniform(5, 20), target - sum(lengths)))
    else:
        budget = 0.08 * total
        while budget - sum(lengths) >= 5 and rng.random() < 0.5:
            lengths.append(rng.uniform(5, min(20, budget - sum(lengths))))
    if not lengths:
        return []
    pauses = rng.dirichlet(np.ones(len(lengths) + 1)) * (total - sum(lengths) - len(lengths) - 1) + 1
    onsets = np.cumsum(pauses[:-1]) + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return [Event(float(onset), float(length), "evidence_state") for onset, length in zip(onsets, lengths, strict=True)]


def envelope(rng: np.random.Generator, states: Sequence[Event], n: int, rate: int) -> Signal:
    """How strong the slowing is at each moment: rises and falls within a state, each state with its own height."""
    height = np.zeros(n)
    for state in states:
        first, length = round(state.onset * rate), round(state.duration * rate)
        phase = np.arange(length) / length
        height[first : first + length] = rng.uniform(0.7, 1.3) * np.sqrt(np.sin(np.pi * phase))[: n - first]
    return height


def draw_bursts(rng: np.random.Generator, settings: SynthSettings, patient: bool) -> list[Event]:
    """Isolated sharp waves of 0.3-0.7 s, seconds apart: 6-14 a minute in patients, at most one in controls."""
    per_minute = rng.uniform(6, 14) if patient else rng.uniform(0, 1)
    slots = np.arange(1, settings.seconds - 2, 2)
    count = min(len(slots), round(per_minute * settings.seconds / 60))
    onsets = np.sort(rng.choice(slots, count, replace=False)) + rng.uniform(0, 0.3, count)
    return [Event(float(onset), float(rng.uniform(0.3, 0.7)), "evidence_burst") for onset in onsets]


def sharp_waves(rng: np.random.Generator, bursts: Sequence[Event], n: int, rate: int, front: bool) -> Signal:
    """A sharp wave and the slow wave after it, around one focus per person (channels x n, unit height)."""
    focus = np.array([rng.choice([-0.5, 0.5]), 0.5 if front else -0.1])
    spread = np.exp(-((np.linalg.norm(PLACES - focus, axis=1) / 0.7) ** 2))
    course = np.zeros(n)
    for burst in bursts:
        time = np.arange(round(burst.duration * rate)) / rate / burst.duration
        wave = np.exp(-(((time - 0.2) / 0.06) ** 2)) - 0.6 * np.exp(-(((time - 0.6) / 0.18) ** 2))
        first = round(burst.onset * rate)
        course[first : first + len(wave)] += rng.uniform(0.7, 1.3) * wave * np.hanning(len(wave)) ** 0.25
    return np.asarray(spread[:, None] * course)


def add_artefacts(rng: np.random.Generator, signal: Signal, settings: SynthSettings) -> list[Event]:
    """Add what cleaning left of blinks and muscle activity in place, in everyone alike; returns when they happened."""
    rate, n, minutes = settings.sfreq, signal.shape[1], settings.seconds / 60
    events = []
    frontal = np.clip(PLACES[:, 1], 0, None) ** 2
    for onset in rng.uniform(0, settings.seconds - 0.5, round(rng.uniform(5, 15) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.25, 0.4) * rate)
        signal[:, first : first + length] += CLEANED * rng.uniform(60, 160) * frontal[:, None] * np.hanning(length)
        events.append(Event(float(onset), length / rate, "blink"))
    frequency = np.fft.rfftfreq(n, 1 / rate)
    muscle = shaped_noise(rng, n, ((frequency > 20) & (frequency < 100)).astype(float), 2)
    sides = np.stack([np.clip(-PLACES[:, 0], 0, None), np.clip(PLACES[:, 0], 0, None)], axis=1) ** 2
    for onset in rng.uniform(0, settings.seconds - 3, round(rng.uniform(2, 6) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.5, 2.0) * rate)
        part = slice(first, first + length)
        signal[:, part] += CLEANED * rng.uniform(5, 20) * (sides @ muscle[:, part]) * np.hanning(length)
        events.append(Event(float(onset), length / rate, "muscle"))
    return events
