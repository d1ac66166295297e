"""What the checks look at: a cohort, its runs, what the user wants to know, and measures taken once for all checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bridgemil.audit.measures import Measures, measure
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BadUse, BridgeMILError, plain
from bridgemil.runs import RunStore

MOST_SPLIT = 2**28  # bytes of a split file


@dataclass(frozen=True)
class AuditOptions:
    """What the user asks of an audit.

    Parameters
    ----------
    split
        A split file to check.
    groups
        A column of the cohort whose groups must stay in one fold.
    hope
        The difference of accuracy one hopes to show, in points.
    permute
        A method to run with shuffled labels; None for none.
    permutations
        How many times its labels are shuffled.
    sample
        How many runs are recomputed at most.
    seed
        Of everything that is drawn here.
    plan
        A split to check that is in no file.
    """

    split: Path | None = None
    groups: str | None = None
    hope: float = 5.0
    permute: str | None = None
    permutations: int = 20
    sample: int = 5
    seed: int = 0
    plan: FoldPlan | None = None

    def __post_init__(self) -> None:
        if not 0 < self.hope < 100:
            raise BadUse(f"--hope is a difference of accuracy in points, above 0 and below 100; got {self.hope:g}")
        if self.permutations < 5:
            raise BadUse(f"--permutations must be 5 or more, got {self.permutations}")


@dataclass(frozen=True)
class AuditInput:
    """A cohort, and the runs of it if there are any."""

    cohort: Cohort
    store: RunStore | None = None
    options: AuditOptions = field(default_factory=AuditOptions)

    @cached_property
    def measures(self) -> Measures:
        """Of everybody's signal; read once."""
        return measure(self.cohort)

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The finished runs of this cohort: identity to what run.json says."""
        return self._stored_runs[0]

    @property
    def damage(self) -> list[str]:
        """What is wrong with runs and noted splits that cannot be read, so that nobody knows whose they are."""
        return [*self._stored_runs[1], *self._noted_splits[2]]

    @property
    def splits(self) -> dict[str, FoldPlan]:
        """The splits to look at by name: the one that was given, and those noted with the runs."""
        given = {} if self.options.plan is None else {"the split": self.options.plan}
        return given | self._named_split[0] | self._noted_splits[0]

    @property
    def refused_splits(self) -> list[str]:
        """What is wrong with splits of this cohort that can be no split, such as a subject in two folds."""
        return [*self._named_split[1], *self._noted_splits[1]]

    @cached_property
    def _stored_runs(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        runs, damage = {}, []
        for identity in [] if self.store is None else sorted(self.store.finished()):
            assert self.store is not None
            try:
                about = self.store.metadata(identity)
            except BridgeMILError as error:
                damage.append(_sentence(error))
                continue
            if about["cohort"]["hash"] == self.cohort.hash:
                runs[identity] = about
        return runs, damage

    @cached_property
    def _named_split(self) -> tuple[dict[str, FoldPlan], list[str]]:
        """A file that is no split at all is the caller's mistake; one that cannot be followed is a finding."""
        file = self.options.split
        if file is None:
            return {}, []
        if file.is_file() and file.stat().st_size > MOST_SPLIT:
            raise BadData(f"{file}: no split file; it has {file.stat().st_size:,} bytes, more than a split can need")
        try:
            return {file.name: FoldPlan.load(file)}, []
        except BadUse as error:
            raise BadUse(f"{file}: {error}") from None
        except BadData as error:
            if str(error).startswith(plain(f"{file}: ")):
                raise
            return {}, [f"{file.name}: {_sentence(error)}"]

    @cached_property
    def _noted_splits(self) -> tuple[dict[str, FoldPlan], list[str], list[str]]:
        """Those of this cohort, what is wrong with others of this cohort, and with those of nobody knows whom."""
        splits, refused, damage = {}, list[str](), list[str]()
        for name in [] if self.store is None else self.store.names("splits"):
            assert self.store is not None
            try:
                record = self.store.record("splits", name)
                cohort_hash, plan = record["cohort"], FoldPlan.from_json(record)
            except BridgeMILError as error:
                (refused if name.startswith(self.cohort.hash[:12]) else damage).append(_sentence(error))
                continue
            if cohort_hash == self.cohort.hash:
                splits[name] = plan
        return splits, refused, damage


def _sentence(error: Exception) -> str:
    return str(error).splitlines()[0]
