"""What both versions build a recording from: noise, rhythms, maps over the scalp, evidence and artefacts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.synthetic.scenario import SynthSettings
from bridgemil.cohort.synthetic.truth import Event, Signal

# Where the electrodes lie on a unit disk seen from above: x to the right, y to the nose.
PLACES = {
    "Fp1": (-0.28, 0.87), "Fp2": (0.28, 0.87), "F7": (-0.74, 0.53), "F3": (-0.38, 0.48), "Fz": (0, 0.45),
    "F4": (0.38, 0.48), "F8": (0.74, 0.53), "T3": (-0.92, 0), "C3": (-0.46, 0), "Cz": (0, 0), "C4": (0.46, 0),
    "T4": (0.92, 0), "T5": (-0.74, -0.53), "P3": (-0.38, -0.48), "Pz": (0, -0.45), "P4": (0.38, -0.48),
    "T6": (0.74, -0.53), "O1": (-0.28, -0.87), "O2": (0.28, -0.87),
}  # fmt: skip


def electrode_places() -> Signal:
    """Where the electrodes of the ADFTD montage lie (electrodes x 2)."""
    return np.array([PLACES[name] for name in ADFTD_ORDER], dtype=float)


def standard_scores(settings: SynthSettings, index: int, names: Sequence[str]) -> dict[str, float]:
    """A person's traits as standard scores.

    Each is dealt evenly over its normal distribution within every class (a Latin hypercube), so that classes have the
    same fingerprints by design and a small cohort is not confounded by chance.
    """
    from scipy.stats import norm

    number, place = index % settings.classes, index // settings.classes
    members = len(range(number, settings.subjects, settings.classes))
    scores = {}
    for order, name in enumerate(names):
        rank = np.random.default_rng([settings.seed, 1 + number, order]).permutation(members)[place]
        scores[name] = float(norm.ppf((rank + 0.5) / members))
    return scores


def field(rng: np.random.Generator, places: Signal) -> Signal:
    """A smooth random map over the scalp, about -1 to 1."""
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    smooth = np.exp(-((distance / 0.6) ** 2)) @ rng.normal(size=len(places))
    return np.asarray(smooth / np.abs(smooth).max())


def shaped_noise(rng: np.random.Generator, n: int, amplitude: Signal, rows: int = 1) -> Signal:
    """Gaussian noise with the given amplitude at each frequency, scaled to unit variance (rows x n)."""
    spectrum = rng.normal(size=(rows, len(amplitude))) + 1j * rng.normal(size=(rows, len(amplitude)))
    noise = np.fft.irfft(spectrum * amplitude, n)
    unit: Signal = noise / noise.std(axis=1, keepdims=True)
    return unit


def rhythm(rng: np.random.Generator, n: int, rate: int, hz: float, width: float) -> Signal:
    """A rhythm that waxes and wanes: noise in a narrow band, unit variance."""
    frequency = np.fft.rfftfreq(n, 1 / rate)
    return np.asarray(shaped_noise(rng, n, np.exp(-0.5 * ((frequency - hz) / width) ** 2))[0])


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


def sharp_waves(
    rng: np.random.Generator, places: Signal, bursts: Sequence[Event], n: int, rate: int, front: bool
) -> Signal:
    """A sharp wave and the slow wave after it, around one focus per person (channels x n, unit height)."""
    focus = np.array([rng.choice([-0.5, 0.5]), 0.5 if front else -0.1])
    spread = np.exp(-((np.linalg.norm(places - focus, axis=1) / 0.7) ** 2))
    course = np.zeros(n)
    for burst in bursts:
        time = np.arange(round(burst.duration * rate)) / rate / burst.duration
        wave = np.exp(-(((time - 0.2) / 0.06) ** 2)) - 0.6 * np.exp(-(((time - 0.6) / 0.18) ** 2))
        first = round(burst.onset * rate)
        course[first : first + len(wave)] += rng.uniform(0.7, 1.3) * wave * np.hanning(len(wave)) ** 0.25
    return np.asarray(spread[:, None] * course)


def add_artefacts(
    rng: np.random.Generator, places: Signal, signal: Signal, settings: SynthSettings, left: float = 1.0
) -> list[Event]:
    """Add blinks and muscle activity in place, in everyone alike; returns when they happened.

    ``left`` is the share of their amplitude that cleaning left in the recording.
    """
    rate, n, minutes = settings.sfreq, signal.shape[1], settings.seconds / 60
    events = []
    frontal = np.clip(places[:, 1], 0, None) ** 2
    for onset in rng.uniform(0, settings.seconds - 0.5, round(rng.uniform(5, 15) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.25, 0.4) * rate)
        signal[:, first : first + length] += left * rng.uniform(60, 160) * frontal[:, None] * np.hanning(length)
        events.append(Event(float(onset), length / rate, "blink"))
    frequency = np.fft.rfftfreq(n, 1 / rate)
    muscle = shaped_noise(rng, n, ((frequency > 20) & (frequency < 100)).astype(float), 2)
    sides = np.stack([np.clip(-places[:, 0], 0, None), np.clip(places[:, 0], 0, None)], axis=1) ** 2
    for onset in rng.uniform(0, settings.seconds - 3, round(rng.uniform(2, 6) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.5, 2.0) * rate)
        part = slice(first, first + length)
        signal[:, part] += left * rng.uniform(5, 20) * (sides @ muscle[:, part]) * np.hanning(length)
        events.append(Event(float(onset), length / rate, "muscle"))
    return events
