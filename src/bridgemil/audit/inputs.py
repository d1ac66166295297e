"""Input of the checks: a cohort, its runs, the user's options, and measures of the signal computed once for all."""

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


@dataclass(frozen=True)
class AuditOptions:
    """The user's options of an audit.

    Parameters
    ----------
    split : Path, optional
        A split file to check.
    groups : str, optional
        A column of the cohort whose groups must stay in one fold.
    hope : float, optional
        The difference of accuracy to be shown, in points; WARN if the cohort is too small for it.
    permute : str, optional
        A method to cross-validate with shuffled labels.
    permutations : int
        How many times.
    sample : int
        Runs that are recomputed at most.
    seed : int
        Of all random choices.
    plan : FoldPlan, optional
        A split to check that is in no file.
    """

    split: Path | None = None
    groups: str | None = None
    hope: float | None = None
    permute: str | None = None
    permutations: int = 20
    sample: int = 5
    seed: int = 0
    plan: FoldPlan | None = None

    def __post_init__(self) -> None:
        if self.hope is not None and not 0 < self.hope < 100:
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
        """Of all subjects' signals, which are read once."""
        return measure(self.cohort)

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The finished runs of this cohort: identity to the content of run.json."""
        return self._stored_runs[0]

    @property
    def damage(self) -> list[str]:
        """Errors of runs and recorded splits that cannot be read, of this cohort or another."""
        return [*self._stored_runs[1], *self._recorded_splits[2]]

    @property
    def splits(self) -> dict[str, FoldPlan]:
        """The splits to check by name: the given one, and those recorded with the runs."""
        given = {} if self.options.plan is None else {"the split": self.options.plan}
        return given | self._named_split[0] | self._recorded_splits[0]

    @property
    def refused_splits(self) -> list[str]:
        """Errors of splits of this cohort that are not valid, such as a subject in two folds."""
        return [*self._named_split[1], *self._recorded_splits[1]]

    @cached_property
    def _stored_runs(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        runs, damage = {}, []
        for identity in [] if self.store is None else sorted(self.store.finished()):
            assert self.store is not None
            try:
                metadata = self.store.metadata(identity)
            except BridgeMILError as error:
                damage.append(first_line(error))
                continue
            if metadata["cohort"]["hash"] == self.cohort.hash:
                runs[identity] = metadata
        return runs, damage

    @cached_property
    def _named_split(self) -> tuple[dict[str, FoldPlan], list[str]]:
        """A file that is no split at all is the caller's mistake; a split that is not valid is a finding."""
        file = self.options.split
        if file is None:
            return {}, []
        try:
            return {file.name: FoldPlan.load(file)}, []
        except BadUse as error:
            raise BadUse(f"{file}: {error}") from None
        except BadData as error:
            if str(error).startswith(plain(f"{file}: ")):
                raise
            return {}, [f"{file.name}: {first_line(error)}"]

    @cached_property
    def _recorded_splits(self) -> tuple[dict[str, FoldPlan], list[str], list[str]]:
        """Splits of this cohort, errors of others of this cohort, and errors of those of an unknown one."""
        splits, refused, damage = {}, list[str](), list[str]()
        for name in [] if self.store is None else self.store.names("splits"):
            assert self.store is not None
            try:
                record = self.store.record("splits", name)
                cohort_hash, plan = record["cohort"], FoldPlan.from_json(record)
            except BridgeMILError as error:
                (refused if name.startswith(self.cohort.hash[:12]) else damage).append(first_line(error))
                continue
            if cohort_hash == self.cohort.hash:
                splits[name] = plan
        return splits, refused, damage


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0]
