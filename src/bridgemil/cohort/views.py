"""Views of a cohort: some of its windows only, every recording as a bag of its own, or further subjects for Stage 1.

Nothing is copied. With ``bags=recording``, eyes open and eyes closed of one person are two bags. Subjects stay the unit
of folds, predictions and scores: the bags of a person are on the same side of every split, and the person's probability
is the mean over them. Only fitting and predicting see this view.

With ``--pretrain-on``, Stage 1, which needs no labels, learns from the subjects of a second cohort beside the training
subjects of every fold. Nobody of the evaluated cohort is among them, whoever is tested: who has the same signal in both
takes part as a subject of the evaluated cohort alone, and hence in Stage 1 only where it is a training subject.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import key
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import SubjectRecord, describe
from bridgemil.cohort.pool import refuse_other_signals
from bridgemil.errors import BadData, BadUse
from bridgemil.storage.artifact import digest

Origin = tuple[Cohort, str, "slice | NDArray[np.int64]"]  # a cohort, a subject's id there, and which of its windows


class CohortView(Cohort):
    """Bags that are windows of other cohorts; all else is as in the cohort ``whole``, of which this is a view."""

    def __init__(self, whole: Cohort, records: Iterable[SubjectRecord], origins: Mapping[str, Origin]) -> None:
        super().__init__(list(records), whole.metadata, whole._columns, path=whole.path)
        self.whole = whole
        self.origins = origins

    def windows(self, subject: str) -> NDArray[np.float32]:
        """Windows of a bag, n x C x T in microvolts."""
        self._known(subject)
        cohort, name, rows = self.origins[subject]
        return cohort.windows(name)[rows]

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """Start of each window, in seconds from the start of its recording."""
        cohort, name, rows = self.origins[subject]
        return cohort.window_starts(name)[rows]

    def window_numbers(self, subject: str) -> NDArray[np.int64]:
        """The number of each window among all of the subject's."""
        cohort, name, rows = self.origins[subject]
        return cohort.window_numbers(name)[rows]

    def save(self, path: str | Path) -> NoReturn:
        """A view is not saved."""
        raise BadUse("a view of a cohort is not saved; save the cohort itself")

    def _sums(self, subject: str) -> SubjectRecord:
        own = self.records[subject]
        if not own.sums:  # some windows only: measured when it is first needed
            windows = self.windows(subject)
            measured = describe(subject, own.label, windows, own.recordings, own.recording_windows)
            own = self.records[subject] = replace(measured, signal_hash=own.signal_hash)
        return own


def subset(cohort: Cohort, kept: Mapping[str, Sequence[int]]) -> Cohort:
    """Some windows of a cohort: by subject, the ascending numbers of those that stay; who is not named keeps all.

    Windows that were neighbours stay neighbours: where some are left out between two others, a new piece begins, as if
    it were another recording. The cohort itself where nothing is left out.
    """
    if not kept:
        return cohort
    records = dict(cohort.records)
    origins: dict[str, Origin] = {subject: (cohort, subject, slice(None)) for subject in records}
    for subject, numbers in kept.items():
        if subject not in records:
            raise BadUse(f"windows are kept of {subject}, who is not in the cohort")
        rows, n = np.asarray(numbers, dtype=np.int64), records[subject].n_windows
        if not len(rows) or (np.diff(rows) < 1).any() or rows[0] < 0 or rows[-1] >= n:
            raise BadUse(f"{subject}: the windows to keep must be some of 0 to {n - 1}, ascending, each once")
        consecutive = rows[-1] - rows[0] + 1 == len(rows)  # as a slice, which copies nothing
        origins[subject] = cohort, subject, slice(rows[0], rows[-1] + 1) if consecutive else rows
        records[subject] = _shortened(records[subject], rows)
    return CohortView(cohort, records.values(), origins)


def _shortened(record: SubjectRecord, rows: NDArray[np.int64]) -> SubjectRecord:
    """The record of some windows of a subject, without sums."""
    recording = np.searchsorted(np.cumsum(record.recording_windows), rows, side="right")
    begins = np.flatnonzero(np.append(True, (np.diff(rows) > 1) | (np.diff(recording) > 0)))
    lengths = tuple(np.diff(np.append(begins, len(rows))).tolist())
    checksum = hashlib.sha256(f"{record.signal_hash} {rows.tolist()}".encode()).hexdigest()
    names = tuple(record.recordings[i] for i in recording[begins].tolist()) if record.recordings else ()
    return SubjectRecord(record.subject, record.label, names, lengths, (), (), checksum)


class RecordingBags(CohortView):
    """Every recording as a bag of its own, named ``SUBJECT/NUMBER``; a subject with one recording keeps its name."""

    def __init__(self, whole: Cohort, subjects: Sequence[str] | None = None) -> None:
        records, origins = list[SubjectRecord](), dict[str, Origin]()
        for subject in whole.subjects if subjects is None else subjects:
            record, end = whole.records[subject], 0
            for number, n in enumerate(record.recording_windows, 1):
                end += n
                if n == 0:  # all of its windows were dropped
                    continue
                name = subject if n == record.n_windows else f"{subject}/{number}"
                origins[name] = whole, subject, slice(end - n, end)
                signal = record.signal_hash if n == record.n_windows else digest([record.signal_hash, end - n, end])
                own = record.recordings[number - 1 : number]
                bag = replace(record, subject=name, recordings=own, recording_windows=(n,), signal_hash=signal)
                records.append(bag)
        super().__init__(whole, records, origins)

    def of(self, subjects: Iterable[str]) -> tuple[str, ...]:
        """The bags of these subjects."""
        chosen = set(subjects)
        return tuple(name for name, (_, subject, _) in self.origins.items() if subject in chosen)

    def spread(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of subjects as values of their bags."""
        return {name: values[subject] for name, (_, subject, _) in self.origins.items() if subject in values}

    def normalisation(self, subjects: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation per channel over all windows of the bags' subjects."""
        return self.whole.normalisation(list(dict.fromkeys(self.origins[name][1] for name in subjects)))


@dataclass(frozen=True)
class Unlabelled:
    """A second cohort, and who of it may be learned from in every fold."""

    cohort: Cohort  # whose labels are not used
    subjects: tuple[str, ...]  # whose windows are nobody's of the evaluated cohort
    shared: tuple[str, ...]  # who has the windows of one of its subjects, and is left out

    @classmethod
    def beside(cls, cohort: Cohort, other: Cohort) -> Unlabelled:
        """The subjects of ``other`` who are not in ``cohort``, by the hashes of all their windows.

        Raises
        ------
        BadData
            If the windows are not of one kind, or nobody is left.
        """
        name, own = name_of(other), cohort.whole if isinstance(cohort, CohortView) else cohort
        refuse_other_signals([("the evaluated cohort", own), (name, other)], "a cohort to pretrain on")
        if list(map(key, own.channels)) != list(map(key, other.channels)):
            raise BadData(
                f"{name}: its electrodes are {' '.join(other.channels)}, those of the evaluated cohort are "
                f"{' '.join(own.channels)}; prepare both with the same --channels, in one order"
            )
        if (top := other.signal.top) < own.signal.top:
            raise BadData(
                f"{name}: its recordings hold nothing above {top:g} Hz, those of the evaluated cohort up to "
                f"{own.signal.top:g} Hz; prepare both with --high {top:g} or lower"
            )
        known = {record.signal_hash for record in own.records.values()}
        shared = tuple(who for who, record in other.records.items() if record.signal_hash in known)
        subjects = tuple(who for who in other.subjects if who not in shared)
        if not subjects:
            raise BadData(f"{name}: all of its subjects are in the evaluated cohort; nobody is left to pretrain on")
        return cls(other, subjects, shared)

    def is_named(self, tag: str) -> bool:
        """Whether these are of the cohort that settings name."""
        return tag.rpartition("@")[2] == tag_of(self.cohort).rpartition("@")[2]

    @property
    def note(self) -> str:
        """Who is left out, as a sentence; empty if nobody is."""
        if not self.shared:
            return ""
        return (
            f"{name_of(self.cohort)}: {', '.join(self.shared)} have the signal of subjects of the evaluated cohort; "
            "Stage 1 learns from them only where those are training subjects"
        )

    @property
    def sentence(self) -> str:
        """What is done with them."""
        n, name = len(self.subjects), name_of(self.cohort)
        return f"Stage 1 also learned from {n} subjects of {name}, without labels, in every fold."

    @property
    def bags(self) -> dict[str, str]:
        """The subjects by the ids that they have beside those of the evaluated cohort, NAME/ID."""
        return {f"{name_of(self.cohort)}/{subject}": subject for subject in self.subjects}

    def joined(self, cohort: Cohort) -> CohortView:
        """The evaluated cohort, or some windows of it, with these subjects, who have no labels."""
        records = dict(cohort.records)
        origins: dict[str, Origin] = {subject: (cohort, subject, slice(None)) for subject in records}
        for name, subject in self.bags.items():
            records[name] = replace(self.cohort.records[subject], subject=name, label="")
            origins[name] = self.cohort, subject, slice(None)
        return CohortView(cohort, records.values(), origins)

    def for_json(self) -> dict[str, Any]:
        """As a run records it."""
        content = {"hash": self.cohort.hash, "path": str(self.cohort.path or ""), "subjects": list(self.subjects)}
        return content | ({"left_out": list(self.shared)} if self.shared else {})


def name_of(cohort: Cohort) -> str:
    """The name of the cohort's folder."""
    return "arrays" if cohort.path is None else cohort.path.absolute().name.removesuffix(".cohort")


def tag_of(cohort: Cohort) -> str:
    """Identifies a cohort in settings: NAME@HASH, of which the hash alone decides."""
    return f"{name_of(cohort)}@{cohort.hash[:24]}"
