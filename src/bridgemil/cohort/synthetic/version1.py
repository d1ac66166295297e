"""The first generator, kept as it was: the same settings give the same bytes as before there was a second.

As recorded, the band power of its people differs twice as much as that of the controls of ``adftd-300s``; to the
average reference it does not (benchmarks/people_spread.py): what all electrodes share in those recordings is missing.
"""

from __future__ import annotations

import numpy as np

from bridgemil.cohort.synthetic.scenario import SynthSettings
from bridgemil.cohort.synthetic.truth import Event, Signal
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

TRAITS = ("slope", "gain", "alpha_hz", "theta_hz", "alpha_uv", "theta_uv")


def record(settings: SynthSettings, index: int, label: str) -> tuple[Signal, list[Event]]:
    """Person ``index``'s signal (channels x time, microvolt) and what happened in it."""
    rng = np.random.default_rng([settings.seed, 0, index])
    n, rate = settings.seconds * settings.sfreq, settings.sfreq
    places = electrode_places()

    traits = standard_scores(settings, index, TRAITS)
    slope, gain = 1.2 + 0.25 * traits["slope"], np.exp(0.25 * traits["gain"] + rng.normal(0, 0.15, len(places)))
    alpha_hz, theta_hz = 10 + 0.8 * traits["alpha_hz"], 6 + 0.7 * traits["theta_hz"]
    alpha_uv, theta_uv = 9 * np.exp(0.6 * traits["alpha_uv"]), 4 * np.exp(0.6 * traits["theta_uv"])
    alpha_map = field(rng, places) * 0.5 + np.clip(0.6 - 0.7 * places[:, 1], 0.1, None)
    theta_map = field(rng, places) * 0.5 + 0.7

    signal = 10 * _background(rng, places, n, rate, slope)
    alpha = alpha_uv * rhythm(rng, n, rate, alpha_hz, 0.7)
    theta = theta_uv * rhythm(rng, n, rate, theta_hz, 0.8)
    signal += theta_map[:, None] * theta

    states = draw_states(rng, settings, patient=label != "control") if settings.evidence == "state" else []
    bursts = draw_bursts(rng, settings, patient=label != "control") if settings.evidence == "burst" else []
    if settings.evidence == "state":
        hz = rng.uniform(2.0, 3.2) if label == "frontal" else rng.uniform(4.8, 6.5)
        front = 1 if label == "frontal" else -0.4
        spread = np.clip(0.7 + 0.4 * front * places[:, 1], 0.1, None) + 0.15 * field(rng, places)
        height = envelope(rng, states, n, rate)
        signal += settings.strength * spread[:, None] * height * rhythm(rng, n, rate, hz, 0.6)
        alpha = alpha * (1 - 0.5 * np.clip(height, 0, 1))
    else:
        signal += settings.burst_strength * sharp_waves(rng, places, bursts, n, rate, front=label == "frontal")
    signal = gain[:, None] * (signal + alpha_map[:, None] * alpha)

    artefacts = add_artefacts(rng, places, signal, settings)
    signal += rng.normal(0, 0.7, signal.shape)
    return signal, [*states, *bursts, *artefacts]


def _background(rng: np.random.Generator, places: Signal, n: int, rate: int, slope: float) -> Signal:
    """1/f activity, alike at neighbouring electrodes (channels x n, unit variance)."""
    frequency = np.fft.rfftfreq(n, 1 / rate)
    sources = shaped_noise(rng, n, np.maximum(frequency, 0.5) ** (-slope / 2) * (frequency > 0), len(places))
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    mixing = np.exp(-((distance / 0.45) ** 2))
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    mixed: Signal = mixing @ sources
    return mixed
