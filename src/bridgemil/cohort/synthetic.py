"""A synthetic EEG cohort with known truth, written as a BIDS folder of real EDF files.

Every person has a strong fingerprint that has nothing to do with the class: spectral slope, alpha frequency, strength
and topography, a theta rhythm of their own, channel gains. Everyone blinks and tenses muscles. What tells patients
from controls is *evidence*, written to each recording's events.tsv:

- ``state``: slowing (a theta rhythm comes, alpha fades) whose strength rises and falls in states of 5-20 s that cover
  30-60 % of a patient's windows and under 10 % of a control's;
- ``burst``: isolated sharp waves of under a second, many in patients and hardly any in controls.

With three classes, the second kind of patient has slower (delta) evidence over the front of the head.

The defaults were accepted on two numbers over five seeds (benchmarks/synthetic_acceptance.py) and frozen before any
learning method of this package was run on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.tables import read_table
from bridgemil.errors import BadUse
from bridgemil.parallel import cores, each

Signal = NDArray[np.float64]

# Where the electrodes lie on a unit disk seen from above: x to the right, y to the nose.
_PLACES = {
    "Fp1": (-0.28, 0.87), "Fp2": (0.28, 0.87), "F7": (-0.74, 0.53), "F3": (-0.38, 0.48), "Fz": (0, 0.45),
    "F4": (0.38, 0.48), "F8": (0.74, 0.53), "T3": (-0.92, 0), "C3": (-0.46, 0), "Cz": (0, 0), "C4": (0.46, 0),
    "T4": (0.92, 0), "T5": (-0.74, -0.53), "P3": (-0.38, -0.48), "Pz": (0, -0.45), "P4": (0.38, -0.48),
    "T6": (0.74, -0.53), "O1": (-0.28, -0.87), "O2": (0.28, -0.87),
}  # fmt: skip
CLASSES = ("control", "slowing", "frontal")


class SynthSettings(BaseModel):
    """What to simulate. The numbers that decide how hard the task is are frozen defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: int = Field(60, ge=6, description="people in all, dealt evenly to the classes")
    classes: Literal[2, 3] = 2
    seconds: int = Field(120, ge=60, description="length of each recording")
    sfreq: int = Field(256, ge=128, description="samples a second")
    evidence: Literal["state", "burst"] = "state"
    seed: int = Field(0, ge=0)
    strength: float = Field(12.0, gt=0, description="amplitude of the slowing at its height, in microvolt")
    burst_strength: float = Field(160.0, gt=0, description="height of a sharp wave, in microvolt")


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

    @property
    def evidence_fraction(self) -> float:
        """The share of its windows that hold evidence."""
        return float(self.evidence.mean())


def simulate(settings: SynthSettings, index: int) -> Person:
    """Simulate person ``index``; depends on the settings and the index only."""
    rng = np.random.default_rng([settings.seed, 0, index])
    label = CLASSES[index % settings.classes]
    n, rate = settings.seconds * settings.sfreq, settings.sfreq
    places = np.array([_PLACES[name] for name in ADFTD_ORDER])

    traits = _traits(settings, index)
    slope, gain = 1.2 + 0.25 * traits["slope"], np.exp(0.25 * traits["gain"] + rng.normal(0, 0.15, len(places)))
    alpha_hz, theta_hz = 10 + 0.8 * traits["alpha_hz"], 6 + 0.7 * traits["theta_hz"]
    alpha_uv, theta_uv = 9 * np.exp(0.6 * traits["alpha_uv"]), 4 * np.exp(0.6 * traits["theta_uv"])
    alpha_map = _field(rng, places) * 0.5 + np.clip(0.6 - 0.7 * places[:, 1], 0.1, None)
    theta_map = _field(rng, places) * 0.5 + 0.7

    signal = 10 * _background(rng, places, n, rate, slope)
    alpha = alpha_uv * _rhythm(rng, n, rate, alpha_hz, 0.7)
    theta = theta_uv * _rhythm(rng, n, rate, theta_hz, 0.8)
    signal += theta_map[:, None] * theta

    states = _states(rng, settings, patient=label != "control") if settings.evidence == "state" else []
    bursts = _bursts(rng, settings, patient=label != "control") if settings.evidence == "burst" else []
    if settings.evidence == "state":
        hz = rng.uniform(2.0, 3.2) if label == "frontal" else rng.uniform(4.8, 6.5)
        front = 1 if label == "frontal" else -0.4
        spread = np.clip(0.7 + 0.4 * front * places[:, 1], 0.1, None) + 0.15 * _field(rng, places)
        height = _envelope(rng, states, n, rate)
        signal += settings.strength * spread[:, None] * height * _rhythm(rng, n, rate, hz, 0.6)
        alpha = alpha * (1 - 0.5 * np.clip(height, 0, 1))
    else:
        signal += settings.burst_strength * _sharp_waves(rng, places, bursts, n, rate, front=label == "frontal")
    signal = gain[:, None] * (signal + alpha_map[:, None] * alpha)

    artefacts = _artefacts(rng, places, signal, settings)
    signal += rng.normal(0, 0.7, signal.shape)
    events = sorted([*states, *bursts, *artefacts])
    return Person(f"sub-{index + 1:03d}", label, signal, events, evidence_windows(events, settings.seconds))


def _traits(settings: SynthSettings, index: int) -> dict[str, float]:
    """A person's fingerprint as standard scores.

    Each trait is dealt evenly over its normal distribution within every class (a Latin hypercube), so that classes
    have the same fingerprints by design and a small cohort is not confounded by chance.
    """
    from scipy.stats import norm

    number, place = index % settings.classes, index // settings.classes
    members = len(range(number, settings.subjects, settings.classes))
    scores = {}
    for order, name in enumerate(("slope", "gain", "alpha_hz", "theta_hz", "alpha_uv", "theta_uv")):
        rank = np.random.default_rng([settings.seed, 1 + number, order]).permutation(members)[place]
        scores[name] = float(norm.ppf((rank + 0.5) / members))
    return scores


def evidence_windows(events: Sequence[Event], seconds: int, starts: Signal | None = None) -> NDArray[np.bool_]:
    """Which one-second windows lie in evidence for at least half their length, or hold at least half of a burst."""
    begin = np.arange(seconds, dtype=float) if starts is None else starts
    hit = np.zeros(len(begin), dtype=bool)
    for event in events:
        if event.kind.startswith("evidence"):
            overlap = np.minimum(begin + 1, event.onset + event.duration) - np.maximum(begin, event.onset)
            hit |= overlap >= 0.5 * min(1.0, event.duration)
    return hit


def true_evidence(recordings: str | Path, subject: str, starts: Signal) -> NDArray[np.bool_]:
    """Which of a subject's windows hold evidence, from the events.tsv that ``synthesise`` wrote."""
    _, rows = read_table(Path(recordings) / subject / "eeg" / f"{subject}_task-rest_events.tsv")
    events = [Event(float(row["onset"]), float(row["duration"]), row["trial_type"]) for row in rows]
    return evidence_windows(events, len(starts), starts)


def synthesise(out: str | Path, settings: SynthSettings, jobs: int | None = None, progress: bool = True) -> Path:
    """Write the cohort's BIDS folder and return its path; interrupted, the same call goes on where it stopped."""
    out = Path(out)
    generated_by = {"Name": "bridgemil synth", "Settings": settings.model_dump()}
    about = out / "dataset_description.json"
    if about.is_file():
        if json.loads(about.read_text(encoding="utf-8")).get("GeneratedBy") != [generated_by]:
            raise BadUse(f"{out}: holds another data set; choose another folder")
    elif out.exists() and any(out.iterdir()):
        raise BadUse(f"{out}: exists and is not empty; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    description = {"Name": "bridgemil synthetic cohort", "BIDSVersion": "1.8.0", "DatasetType": "raw", "License": "CC0"}
    about.write_text(json.dumps(description | {"GeneratedBy": [generated_by]}, indent=1), encoding="utf-8")

    tasks = [(out, settings, index) for index in range(settings.subjects)]
    rows = dict(each(_write_person, tasks, jobs=jobs or cores(), label="simulating", show=progress))
    table = ["\t".join(("participant_id", "group", "age", "sex")), *(rows[task] for task in tasks)]
    (out / "participants.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
    return out


def _write_person(task: tuple[Path, SynthSettings, int]) -> str:
    """Simulate and write one person; returns the row of participants.tsv."""
    from edfio import Edf, EdfSignal

    out, settings, index = task
    rng = np.random.default_rng([settings.seed, 9, index])  # age and sex do not depend on the class
    subject, label = f"sub-{index + 1:03d}", CLASSES[index % settings.classes]
    row = "\t".join((subject, label, str(rng.integers(50, 80)), str(rng.choice(["F", "M"]))))
    stem = out / subject / "eeg" / f"{subject}_task-rest"
    if Path(f"{stem}_eeg.json").is_file():  # written last
        return row
    stem.parent.mkdir(parents=True, exist_ok=True)
    person = simulate(settings, index)
    signals = [
        EdfSignal(row, settings.sfreq, label=f"EEG {name}", physical_dimension="uV")
        for name, row in zip(ADFTD_ORDER, person.signal, strict=True)
    ]
    Edf(signals).write(f"{stem}_eeg.edf")
    lines = ["onset\tduration\ttrial_type"] + [f"{e.onset:.3f}\t{e.duration:.3f}\t{e.kind}" for e in person.events]
    Path(f"{stem}_events.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sidecar = {
        "TaskName": "rest", "SamplingFrequency": settings.sfreq, "RecordingDuration": settings.seconds,
        "RecordingType": "continuous", "PowerLineFrequency": 50, "EEGReference": "n/a", "SoftwareFilters": "n/a",
    }  # fmt: skip
    Path(f"{stem}_eeg.json").write_text(json.dumps(sidecar, indent=1), encoding="utf-8")
    return row


def _field(rng: np.random.Generator, places: Signal) -> Signal:
    """A smooth random map over the scalp, about -1 to 1."""
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    smooth = np.exp(-((distance / 0.6) ** 2)) @ rng.normal(size=len(places))
    return np.asarray(smooth / np.abs(smooth).max())


def _shaped_noise(rng: np.random.Generator, n: int, amplitude: Signal, rows: int = 1) -> Signal:
    """Gaussian noise with the given amplitude at each frequency, scaled to unit variance (rows x n)."""
    spectrum = rng.normal(size=(rows, len(amplitude))) + 1j * rng.normal(size=(rows, len(amplitude)))
    noise = np.fft.irfft(spectrum * amplitude, n)
    unit: Signal = noise / noise.std(axis=1, keepdims=True)
    return unit


def _background(rng: np.random.Generator, places: Signal, n: int, rate: int, slope: float) -> Signal:
    """1/f activity, alike at neighbouring electrodes (channels x n, unit variance)."""
    frequency = np.fft.rfftfreq(n, 1 / rate)
    sources = _shaped_noise(rng, n, np.maximum(frequency, 0.5) ** (-slope / 2) * (frequency > 0), len(places))
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    mixing = np.exp(-((distance / 0.45) ** 2))
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    mixed: Signal = mixing @ sources
    return mixed


def _rhythm(rng: np.random.Generator, n: int, rate: int, hz: float, width: float) -> Signal:
    """A rhythm that waxes and wanes: noise in a narrow band, unit variance."""
    frequency = np.fft.rfftfreq(n, 1 / rate)
    return np.asarray(_shaped_noise(rng, n, np.exp(-0.5 * ((frequency - hz) / width) ** 2))[0])


def _states(rng: np.random.Generator, settings: SynthSettings, patient: bool) -> list[Event]:
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


def _envelope(rng: np.random.Generator, states: Sequence[Event], n: int, rate: int) -> Signal:
    """How strong the slowing is at each moment: rises and falls within a state, each state with its own height."""
    height = np.zeros(n)
    for state in states:
        first, length = round(state.onset * rate), round(state.duration * rate)
        phase = np.arange(length) / length
        height[first : first + length] = rng.uniform(0.7, 1.3) * np.sqrt(np.sin(np.pi * phase))[: n - first]
    return height


def _bursts(rng: np.random.Generator, settings: SynthSettings, patient: bool) -> list[Event]:
    """Isolated sharp waves of 0.3-0.7 s, seconds apart: 6-14 a minute in patients, at most one in controls."""
    per_minute = rng.uniform(6, 14) if patient else rng.uniform(0, 1)
    slots = np.arange(1, settings.seconds - 2, 2)
    count = min(len(slots), round(per_minute * settings.seconds / 60))
    onsets = np.sort(rng.choice(slots, count, replace=False)) + rng.uniform(0, 0.3, count)
    return [Event(float(onset), float(rng.uniform(0.3, 0.7)), "evidence_burst") for onset in onsets]


def _sharp_waves(
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


def _artefacts(rng: np.random.Generator, places: Signal, signal: Signal, settings: SynthSettings) -> list[Event]:
    """Add blinks and muscle activity in place, in everyone alike; returns when they happened."""
    rate, n, minutes = settings.sfreq, signal.shape[1], settings.seconds / 60
    events = []
    frontal = np.clip(places[:, 1], 0, None) ** 2
    for onset in rng.uniform(0, settings.seconds - 0.5, round(rng.uniform(5, 15) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.25, 0.4) * rate)
        signal[:, first : first + length] += rng.uniform(60, 160) * frontal[:, None] * np.hanning(length)
        events.append(Event(float(onset), length / rate, "blink"))
    frequency = np.fft.rfftfreq(n, 1 / rate)
    muscle = _shaped_noise(rng, n, ((frequency > 20) & (frequency < 100)).astype(float), 2)
    sides = np.stack([np.clip(-places[:, 0], 0, None), np.clip(places[:, 0], 0, None)], axis=1) ** 2
    for onset in rng.uniform(0, settings.seconds - 3, round(rng.uniform(2, 6) * minutes)):
        first, length = round(onset * rate), round(rng.uniform(0.5, 2.0) * rate)
        part = slice(first, first + length)
        signal[:, part] += rng.uniform(5, 20) * (sides @ muscle[:, part]) * np.hanning(length)
        events.append(Event(float(onset), length / rate, "muscle"))
    return events
