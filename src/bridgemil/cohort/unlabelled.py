"""Subjects of a second cohort for Stage 1, which needs no labels (``--pretrain-on``).

They are learned from beside the training subjects of every fold. Nobody of the evaluated cohort is among them, whoever
is tested: who has the same signal in both takes part as a subject of the evaluated cohort alone, and hence in Stage 1
only where it is a training subject.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bridgemil.cohort.channels import key
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.pool import refuse_other_signals
from bridgemil.cohort.views import CohortSubset, CohortView, Origin
from bridgemil.errors import BadData


@dataclass(frozen=True)
class Unlabelled:
    """A second cohort, and who of it may be learned from in every fold."""

    cohort: Cohort  # whose labels are not used
    subjects: tuple[str, ...]  # who is not in the evaluated cohort
    shared: tuple[str, ...]  # who has the signal of one of its subjects, and is left out

    @classmethod
    def beside(cls, cohort: Cohort, other: Cohort) -> Unlabelled:
        """The subjects of ``other`` who are not in ``cohort``, by the hashes of their signals.

        Raises
        ------
        BadData
            If the windows are not of one kind, or nobody is left.
        """
        name, own = name_of(other), cohort.whole if isinstance(cohort, CohortSubset) else cohort
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

    def joined(self, cohort: Cohort) -> ExtendedCohort:
        """The evaluated cohort, or some windows of it, with these subjects."""
        return ExtendedCohort(cohort, self)

    def for_json(self) -> dict[str, Any]:
        """As a run records it."""
        content = {"hash": self.cohort.hash, "path": str(self.cohort.path or ""), "subjects": list(self.subjects)}
        return content | ({"left_out": list(self.shared)} if self.shared else {})


class ExtendedCohort(CohortView):
    """The evaluated cohort, or some windows of it, and further subjects without labels, whose ids are NAME/ID."""

    def __init__(self, own: Cohort, further: Unlabelled) -> None:
        other, name = further.cohort, name_of(further.cohort)
        added: dict[str, Origin] = {f"{name}/{subject}": (other, subject, slice(None)) for subject in further.subjects}
        records = [replace(other.records[subject], subject=new, label="") for new, (_, subject, _) in added.items()]
        origins = {subject: (own, subject, slice(None)) for subject in own.subjects} | added
        super().__init__(own, [*own.records.values(), *records], origins)
        self.further = tuple(added)  # the ids of the added subjects


def name_of(cohort: Cohort) -> str:
    """The name of the cohort's folder."""
    return "arrays" if cohort.path is None else cohort.path.absolute().name.removesuffix(".cohort")


def tag_of(cohort: Cohort) -> str:
    """Identifies a cohort in settings: NAME@HASH, of which the hash alone decides."""
    return f"{name_of(cohort)}@{cohort.hash[:24]}"
