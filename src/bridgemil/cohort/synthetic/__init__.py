"""A synthetic EEG cohort with known truth, written as a BIDS folder of real EDF files.

Every subject has a fingerprint that is independent of the class: how strong each band is and where, the alpha
frequency, individual sources; blinks and muscle activity are added. Variability between subjects and over time is about
that of the healthy controls of ``adftd-300s`` (benchmarks/people_spread.py), as recorded and with the average
reference. Patients differ from controls by *evidence*, which is written to each recording's events.tsv:

- ``state``: slowing (a theta rhythm appears, alpha fades) whose strength rises and falls in states of 5-20 s that cover
  30-60 % of a patient's windows and under 10 % of a control's;
- ``burst``: isolated sharp waves of under a second, many in patients and hardly any in controls;
- ``trait``: a background that is shifted throughout (slower and weaker alpha, more theta). No window is special: the
  events.tsv of a patient has one row over the whole recording, which marks no evidence window.

With three classes, the second patient class has slower (delta) evidence over the front of the head.

Several sites may record the cohort. They differ as ``SITE_SHIFTS`` says; the disease is the same at every site,
and so is each person: with and without shifts, the same number is the same brain.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.formats import Unusable
from bridgemil.cohort.synthetic.generator import (
    CLASSES,
    SITE_SHIFTS,
    Event,
    Person,
    Signal,
    SynthSettings,
    evidence_windows,
    simulate,
)
from bridgemil.cohort.tables import read_json, read_table
from bridgemil.errors import BadUse
from bridgemil.parallel import cores, each
from bridgemil.storage.files import new_file, write_json, write_text

__all__ = [
    "CLASSES", "SITE_SHIFTS", "Event", "Person", "SynthSettings", "evidence_windows", "has_evidence_windows",
    "patients", "simulate", "synthesise", "true_evidence",
]  # fmt: skip


def synthesise(out: str | Path, settings: SynthSettings, jobs: int | None = None, progress: bool = True) -> Path:
    """Write the cohort's BIDS folder and return its path; interrupted, the same call resumes."""
    out = Path(out)
    chosen = settings.model_dump(mode="json", exclude=set() if settings.sites > 1 else {"sites", "site_shift"})
    generated_by = {"Name": "bridgemil synth", "Settings": chosen}
    about = out / "dataset_description.json"
    known = None
    with suppress(Unusable):
        known = read_json(about if about.is_file() else None).get("GeneratedBy")
    if known != [generated_by] and out.exists() and any(out.iterdir()):
        what = "holds another data set" if about.is_file() else "exists and is not empty"
        raise BadUse(f"{out}: {what}; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    description = {"Name": "bridgemil synthetic cohort", "BIDSVersion": "1.8.0", "DatasetType": "raw", "License": "CC0"}
    write_json(about, description | {"GeneratedBy": [generated_by]})

    tasks = [(out, settings, index) for index in range(settings.subjects)]
    rows = dict(each(_write_person, tasks, jobs=jobs or cores(), label="simulating", show=progress))
    columns = ("participant_id", "group", "age", "sex", *(["site"] if settings.sites > 1 else []))
    table = ["\t".join(columns), *(rows[task] for task in tasks)]
    write_text(out / "participants.tsv", "\n".join(table) + "\n")
    return out


def _write_person(task: tuple[Path, SynthSettings, int]) -> str:
    """Simulate and write one person; returns the row of participants.tsv."""
    from edfio import Edf, EdfSignal

    out, settings, index = task
    rng = np.random.default_rng([settings.seed, 9, index])  # age and sex do not depend on the class
    rng.integers(50, 80)  # the age is drawn first
    subject, sex = f"sub-{index + 1:03d}", str(rng.choice(["F", "M"]))
    row = "\t".join((subject, CLASSES[index % settings.classes], f"{settings.age(index):g}", sex))
    row += f"\t{settings.site(index).name}" if settings.sites > 1 else ""
    stem = out / subject / "eeg" / f"{subject}_task-rest"
    if Path(f"{stem}_eeg.json").is_file():  # written last
        return row
    stem.parent.mkdir(parents=True, exist_ok=True)
    person = simulate(settings, index)
    signals = [
        EdfSignal(row, settings.sfreq, label=f"EEG {name}", physical_dimension="uV")
        for name, row in zip(ADFTD_ORDER, person.signal, strict=True)
    ]
    with new_file(Path(f"{stem}_eeg.edf")) as stream:
        Edf(signals).write(stream)
    lines = ["onset\tduration\ttrial_type"] + [f"{e.onset:.3f}\t{e.duration:.3f}\t{e.kind}" for e in person.events]
    write_text(Path(f"{stem}_events.tsv"), "\n".join(lines) + "\n")
    sidecar = {"TaskName": "rest", "SamplingFrequency": settings.sfreq, "RecordingDuration": settings.seconds}
    sidecar |= {"RecordingType": "continuous", "PowerLineFrequency": 50}
    sidecar |= {"EEGReference": "n/a", "SoftwareFilters": "n/a"}
    write_json(Path(f"{stem}_eeg.json"), sidecar)
    return row


def true_evidence(recordings: str | Path, subject: str, starts: Signal) -> NDArray[np.bool_]:
    """Which of a subject's windows hold evidence, from the events.tsv that ``synthesise`` wrote.

    ``starts`` has where each window of one second begins, in seconds. Of a ``trait`` cohort no window is known to hold
    more than another, so none is True; ``has_evidence_windows`` tells such a cohort.
    """
    _, rows = read_table(Path(recordings) / subject / "eeg" / f"{subject}_task-rest_events.tsv")
    events = [Event(float(row["onset"]), float(row["duration"]), row["trial_type"]) for _, row in rows]
    return evidence_windows(events, starts)


def patients(recordings: str | Path) -> set[str]:
    """The subjects with the disease, by the participants.tsv that ``synthesise`` wrote.

    Controls have a little evidence too, but it contradicts their label: only in patients does evidence support it.
    """
    _, rows = read_table(Path(recordings) / "participants.tsv")
    return {row["participant_id"] for _, row in rows if row["group"] != CLASSES[0]}


def has_evidence_windows(recordings: str | Path) -> bool:
    """Whether the folder ``synthesise`` wrote has windows of evidence to find: not where the disease is a trait."""
    about = read_json(Path(recordings) / "dataset_description.json")
    return bool(about["GeneratedBy"][0]["Settings"]["evidence"] != "trait")
