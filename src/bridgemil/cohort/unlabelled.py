"""Subjects of a second cohort for Stage 1, which needs no labels (``--pretrain-on``).

They are learned from beside the training subjects of every fold. Nobody of the evaluated cohort is among them, whoever
is tested: who has the same signal in both takes part as a subject of the evaluated cohort alone, and hence in Stage 1
only where it is a training subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import key
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.pool import refuse_other_signals
from bridgemil.cohort.subset import CohortSubset
from bridgemil.errors import BadData


@dataclass(frozen=True)
class Unlabelled:
    """A second cohort, and who of it may be learned from in every fold.

    Parameters
    ----------
    cohort : Cohort
        Whose labels are not used.
    subjects : tuple of str
        Who is not in the evaluated cohort.
    shared : tuple of str
        Who has the signal of one of its subjects, and is left out.
    """

    cohort: Cohort
    subjects: tuple[str, ...]
    shared: tuple[str, ...]

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
        _refuse_narrow(own, other, name)
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


class ExtendedCohort(Cohort):
    """A cohort and further subjects without labels; nothing is copied.

    Parameters
    ----------
    own : Cohort
        The evaluated cohort, or some windows of it.
    further : Unlabelled
        Of the second cohort. ``further`` are their ids here, NAME/ID.
    """

    def __init__(self, own: Cohort, further: Unlabelled) -> None:
        name, records = name_of(further.cohort), further.cohort.records
        self._own, self._other = own, further.cohort
        self._ids = {f"{name}/{subject}": subject for subject in further.subjects}
        added = [replace(records[subject], subject=new, label="") for new, subject in self._ids.items()]
        super().__init__([*own.records.values(), *added], own.metadata, own._columns, own.path)

    @property
    def further(self) -> tuple[str, ...]:
        """The ids of the added subjects."""
        return tuple(self._ids)

    def windows(self, subject: str) -> NDArray[np.float32]:
        """Windows of a subject, n x C x T in microvolts."""
        cohort, name = self._of(subject)
        return cohort.windows(name)

    def window_starts(self, subject: str) -> NDArray[np.float64]:
        """Where each window begins, in seconds from the start of its recording."""
        cohort, name = self._of(subject)
        return cohort.window_starts(name)

    def _of(self, subject: str) -> tuple[Cohort, str]:
        return (self._other, self._ids[subject]) if subject in self._ids else (self._own, subject)


def name_of(cohort: Cohort) -> str:
    """The name of the cohort's folder."""
    return "arrays" if cohort.path is None else cohort.path.absolute().name.removesuffix(".cohort")


def tag_of(cohort: Cohort) -> str:
    """Identifies a cohort in settings: NAME@HASH, of which the hash alone decides."""
    return f"{name_of(cohort)}@{cohort.hash[:24]}"


def _refuse_narrow(cohort: Cohort, other: Cohort, name: str) -> None:
    """Refuse recordings whose rate holds less of the band than those of the evaluated cohort."""

    def top(of: Cohort) -> float:
        edges: Sequence[float | None] = of.signal.high, of.sfreq / 2, of.native_sfreq and of.native_sfreq / 2
        return min(edge for edge in edges if edge is not None)

    if top(other) < top(cohort):
        raise BadData(
            f"{name}: its recordings hold nothing above {top(other):g} Hz, those of the evaluated cohort up to "
            f"{top(cohort):g} Hz; prepare both with --high {top(other):g} or lower"
        )
