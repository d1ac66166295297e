"""The second generator: people as different from each other, and from moment to moment, as real controls are.

A person's brain is six bands of activity. Each band has a source under every electrode, smeared over its neighbours.
Sources differ in strength between people (a band as a whole, and each source by itself) and over time (likewise), by
the spreads of ``BANDS``, which were set by benchmarks/people_spread.py against the 29 healthy controls of
``adftd-300s`` and by nothing else.

What all electrodes share comes on top. In those recordings it falls as about f^-2.25, has the same gain at every
electrode, and its power at 1 Hz differs between controls by no more than 300 s of noise of one strength would (a
standard deviation of .07 in the logarithm). So it tells nobody from anybody, and where it comes from is not known; it
does not look like a brain's. ``common_uv=0`` leaves it out; to the average reference it makes no difference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridgemil.cohort.synthetic.scenario import SynthSettings
from bridgemil.cohort.synthetic.truth import BACKGROUND, Event, Signal
from bridgemil.cohort.synthetic.waves import (
    add_artefacts,
    draw_bursts,
    draw_states,
    electrode_places,
    envelope,
    field,
    rhythm,
    shaped_noise,
    sharp_waves,
    standard_scores,
)


class Band(NamedTuple):
    """A band of activity and its spreads, as standard deviations of log amplitude."""

    level: float  # median amplitude in microvolt
    people: float  # between people: the band as a whole
    follows: float  # how much of the delta's and alpha's share in that it takes over
    sources: float  # between people: each source by itself
    moments: float  # from second to second: the band as a whole
    source_moments: float  # from second to second: each source by itself
    reach: float  # of a source, on the unit disk


BANDS = {
    "delta": Band(3.93, 0.17, 0.30, 0.46, 0.40, 0.19, 0.45),
    "theta": Band(0.69, 0.02, 0.75, 0.28, 0.37, 0.09, 0.55),
    "alpha": Band(3.57, 0.48, 0.00, 0.52, 0.53, 0.07, 0.55),
    "low beta": Band(1.45, 0.11, 0.50, 0.50, 0.32, 0.12, 0.50),
    "high beta": Band(0.94, 0.12, 0.40, 0.62, 0.40, 0.23, 0.45),
    "gamma": Band(0.65, 0.08, 0.00, 0.80, 0.51, 0.34, 0.45),
}
TRAITS = (*BANDS, "alpha_hz")
ALPHA_HZ, ALPHA_HZ_SPREAD = 9.6, 0.6
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


def record(settings: SynthSettings, index: int, label: str) -> tuple[Signal, list[Event]]:
    """Person ``index``'s signal (channels x time, microvolt) and what happened in it."""
    rng = np.random.default_rng([settings.seed, 0, index])
    n, rate = settings.seconds * settings.sfreq, settings.sfreq
    places, patient = electrode_places(), label != "control"
    scores = standard_scores(settings, index, TRAITS)
    shift = SHIFTS[label] if patient and settings.evidence == "trait" else Shift(0.0, {}, 0.0)
    alpha_hz = ALPHA_HZ + ALPHA_HZ_SPREAD * scores["alpha_hz"] + settings.trait_strength * shift.alpha_hz

    states = draw_states(rng, settings, patient) if settings.evidence == "state" else []
    bursts = draw_bursts(rng, settings, patient) if settings.evidence == "burst" else []
    height = envelope(rng, states, n, rate)
    shared = sum(BANDS[name].people * scores[name] for name in ("delta", "alpha"))
    signal = np.zeros((len(places), n))
    for name, band in BANDS.items():
        whole = band.people * scores[name] + band.follows * shared
        change = settings.trait_strength * shift.log_amplitude.get(name, 0.0)
        gain = band.level * np.exp(whole + change * (1 + shift.front * places[:, 1]))
        if name == "alpha":
            gain = gain * np.clip(0.75 - 0.6 * places[:, 1], 0.3, None)  # the back of the head
        activity = gain[:, None] * _activity(rng, places, band, _shape(name, alpha_hz, n, rate), settings)
        signal += activity * (1 - 0.5 * np.clip(height, 0, 1)) if name == "alpha" else activity
    if states:
        signal += settings.strength * _slowing(rng, places, height, rate, front=label == "frontal")
    if bursts:
        signal += settings.burst_strength * sharp_waves(rng, places, bursts, n, rate, front=label == "frontal")
    artefacts = add_artefacts(rng, places, signal, settings, left=CLEANED)
    frequency = np.fft.rfftfreq(n, 1 / rate)
    signal += settings.common_uv * shaped_noise(rng, n, np.maximum(frequency, 0.8) ** -1.125 * (frequency > 0))
    signal += rng.normal(0, SENSOR_UV, signal.shape)
    whole_recording = [Event(0.0, float(settings.seconds), BACKGROUND)] if shift.log_amplitude else []
    return signal, [*whole_recording, *states, *bursts, *artefacts]


def _shape(name: str, alpha_hz: float, n: int, rate: int) -> Signal:
    """A band's amplitude at each frequency."""
    frequency = np.fft.rfftfreq(n, 1 / rate)
    if name == "delta":
        return np.asarray(np.maximum(frequency, 0.8) ** -0.9 * (frequency > 0))
    centre, width = {
        "theta": (5.5, 1.0), "alpha": (alpha_hz, 0.9), "low beta": (16.0, 2.5), "high beta": (24.0, 4.0),
        "gamma": (37.0, 7.0),
    }[name]  # fmt: skip
    return np.asarray(np.exp(-0.25 * ((frequency - centre) / width) ** 2))


def _activity(rng: np.random.Generator, places: Signal, band: Band, shape: Signal, settings: SynthSettings) -> Signal:
    """A band's activity at the electrodes (channels x time), of amplitude about one."""
    rows, seconds, rate = len(places), settings.seconds, settings.sfreq
    sources = shaped_noise(rng, seconds * rate, shape, rows).reshape(rows, seconds, rate)
    moments = band.moments * rng.normal(size=(1, seconds + 1)) + band.source_moments * rng.normal(
        size=(rows, seconds + 1)
    )
    strength = np.exp(moments + band.sources * rng.normal(size=(rows, 1)))[..., None]  # at every full second
    between = np.arange(rate) / rate
    sources *= strength[:, :-1] + (strength[:, 1:] - strength[:, :-1]) * between
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    smear = np.exp(-((distance / band.reach) ** 2))
    smear /= np.linalg.norm(smear, axis=1, keepdims=True)
    activity: Signal = smear @ sources.reshape(rows, -1)
    return activity


def _slowing(rng: np.random.Generator, places: Signal, height: Signal, rate: int, front: bool) -> Signal:
    """The slow rhythm of the states (channels x time, unit height)."""
    hz = rng.uniform(2.0, 3.2) if front else rng.uniform(4.8, 6.5)
    spread = np.clip(0.7 + 0.4 * (1 if front else -0.4) * places[:, 1], 0.1, None) + 0.15 * field(rng, places)
    return np.asarray(spread[:, None] * height * rhythm(rng, len(height), rate, hz, 0.6))
