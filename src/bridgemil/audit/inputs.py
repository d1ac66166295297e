"""Input of the checks: a cohort, its runs, the user's options, and measures of the signal computed once for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bridgemil.audit.measures import SubjectMeasures, measure
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BadUse, BridgeMILError, plain
from bridgemil.runs import RunStore


@dataclass(frozen=True)
class AuditOptions:
    """The user's options; see ``bridgemil.audit.audit``. ``plan`` is a split to check that is in no file."""

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


class AuditInput:
    """A cohort, and what a folder of runs holds of it."""

    def __init__(self, cohort: Cohort, store: RunStore | None = None, options: AuditOptions | None = None) -> None:
        self.cohort, self.store, self.options = cohort, store, options or AuditOptions()
        # The finished runs of this cohort: identity to the content of run.json
        self.runs: dict[str, dict[str, Any]] = {}
        # The splits to check by name: the given ones, and those recorded with the runs
        self.splits = {} if self.options.plan is None else {"the split": self.options.plan}
        # Errors of splits of this cohort that are not valid, such as a subject in two folds
        self.refused_splits: list[str] = []
        # Errors of runs and recorded splits that cannot be read, of this cohort or another
        self.damage: list[str] = []
        if self.options.split is not None:
            self._read_split(self.options.split)
        if store is not None:
            self._read_store(store)

    @cached_property
    def measures(self) -> dict[str, SubjectMeasures]:
        """Of all subjects' signals, which are read once."""
        return measure(self.cohort)

    def _read_split(self, file: Path) -> None:
        """A file that is no split at all is the caller's mistake; a split that is not valid is a finding."""
        try:
            self.splits[file.name] = FoldPlan.load(file)
        except BadUse as error:
            raise BadUse(f"{file}: {error}") from None
        except BadData as error:
            if str(error).startswith(plain(f"{file}: ")):
                raise
            self.refused_splits.append(f"{file.name}: {first_line(error)}")

    def _read_store(self, store: RunStore) -> None:
        own = self.cohort.hash
        for identity in sorted(store.finished()):
            try:
                if (metadata := store.metadata(identity))["cohort"]["hash"] == own:
                    self.runs[identity] = metadata
            except BridgeMILError as error:
                self.damage.append(first_line(error))
        for name in store.names("splits"):
            try:
                plan = FoldPlan.from_json(record := store.record("splits", name))
                if record["cohort"] == own:
                    self.splits[name] = plan
            except BridgeMILError as error:
                (self.refused_splits if name.startswith(own[:12]) else self.damage).append(first_line(error))


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0]
