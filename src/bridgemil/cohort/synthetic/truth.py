"""What is known of a simulated person: what happened when, and which windows hold evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.synthetic.scenario import CLASSES
from bridgemil.cohort.tables import read_table

Signal = NDArray[np.float64]
BACKGROUND = "background_shifted"  # the whole of a patient's recording, where the disease is a trait


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
    """Which of a subject's windows hold evidence, from the events.tsv that ``synthesise`` wrote.

    Parameters
    ----------
    recordings
        The folder ``synthesise`` wrote.
    subject
        As in participants.tsv, ``sub-001``.
    starts
        Where each window of one second begins, in seconds (windows).

    Returns
    -------
    numpy.ndarray
        True where a window holds evidence (windows). Of a ``trait`` cohort no window is known to hold more than
        another, so none is True; ``has_evidence_windows`` tells such a cohort.
    """
    _, rows = read_table(Path(recordings) / subject / "eeg" / f"{subject}_task-rest_events.tsv")
    events = [Event(float(row["onset"]), float(row["duration"]), row["trial_type"]) for row in rows]
    return evidence_windows(events, len(starts), starts)


def patients(recordings: str | Path) -> set[str]:
    """Who has the disease, by the participants.tsv that ``synthesise`` wrote.

    Controls hold a little evidence too, but there it speaks against their own label: only in patients do the windows
    that speak for the label hold the evidence.
    """
    _, rows = read_table(Path(recordings) / "participants.tsv")
    return {row["participant_id"] for row in rows if row["group"] != CLASSES[0]}


def has_evidence_windows(recordings: str | Path) -> bool:
    """Whether the folder ``synthesise`` wrote has windows of evidence to find: not where the disease is a trait."""
    about = json.loads((Path(recordings) / "dataset_description.json").read_text(encoding="utf-8"))
    return bool(about["GeneratedBy"][0]["Settings"]["evidence"] != "trait")
