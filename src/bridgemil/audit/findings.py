"""What checks are given (a cohort, its runs, the user's options) and what they return, findings with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bridgemil.audit.measures import SubjectMeasures, measure
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BadUse, BridgeMILError, plain
from bridgemil.runs import AuditWarning, RunStore, merged

Status = Literal["PASS", "INFO", "WARN", "FAIL", "SKIP"]
STATUSES: tuple[Status, ...] = ("FAIL", "WARN", "INFO", "SKIP", "PASS")  # in the order of reports
MOST_EVIDENCE = 8  # lines of evidence that are kept; one more says how many there were


@dataclass(frozen=True)
class Finding:
    """One result of a check."""

    name: str  # as ``--accept-risk`` takes it: ``same_signal``, ``shortcut_length``
    status: Status  # INFO: a number to know; SKIP: it could not be checked
    message: str  # what was found, a sentence; of a SKIP, why it could not be checked
    evidence: Sequence[str] = ()  # the data behind it, one line each; of many lines the first
    fix: str = ""  # what to do about it; empty where nothing is to be done
    numbers: Mapping[str, Any] = field(default_factory=dict)  # the same for programs

    def __post_init__(self) -> None:
        more = len(self.evidence) - MOST_EVIDENCE
        lines = self.evidence if more < 2 else [*self.evidence[:MOST_EVIDENCE], f"and {more} more"]
        object.__setattr__(self, "evidence", tuple(lines))

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it; ``Finding(**content)`` is the inverse."""
        return asdict(self) | {"evidence": list(self.evidence)}


def pass_or_fail(
    name: str, problems: Sequence[str], success: str, failure: str, fix: str, numbers: Mapping[str, Any]
) -> Finding:
    """FAIL with the problems as evidence, or PASS where there is none."""
    if problems:
        return Finding(name, "FAIL", failure, problems, fix, numbers)
    return Finding(name, "PASS", success, numbers=numbers)


@dataclass(frozen=True)
class Audit:
    """All findings of one audit, in the order of the checks."""

    cohort: str  # the names of what was audited
    runs: str  # empty where no runs were
    findings: tuple[Finding, ...]
    seconds: float  # duration

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each status."""
        counted = Counter(finding.status for finding in self.findings)
        return {status: counted[status] for status in STATUSES}

    @property
    def failed(self) -> list[Finding]:
        """The findings that invalidate results."""
        return [finding for finding in self.findings if finding.status == "FAIL"]

    @property
    def sorted(self) -> list[Finding]:
        """In the order of reports, the worst first."""
        return sorted(self.findings, key=lambda finding: STATUSES.index(finding.status))

    def named(self, name: str) -> list[Finding]:
        """The findings of one name."""
        return [finding for finding in self.findings if finding.name == name]

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "cohort": self.cohort, "runs": self.runs or None, "passed": not self.failed, "counts": self.counts,
            "seconds": round(self.seconds, 2), "findings": [finding.to_dict() for finding in self.findings],
        }  # fmt: skip


def refuse(findings: Sequence[Finding], accepted: Sequence[str] = ()) -> list[str]:
    """Raise ``BadData`` if a check failed whose name is not ``accepted``; returns the accepted names that did fail."""
    failed = [finding for finding in findings if finding.status == "FAIL"]
    if open_ := [finding for finding in failed if finding.name not in accepted]:
        lines = [f"\n  FAIL {f.name}: {f.message}" + (f"\n       {f.evidence[0]}" if f.evidence else "") for f in open_]
        options = " ".join(f"--accept-risk {name}" for name in sorted({f.name for f in open_}))
        raise BadData(
            f"the cohort did not pass the audit, so results on it would not be valid:{''.join(lines)}\n"
            f"`bridgemil audit` shows what to do about each; {options} continues and writes the risk into every result"
        )
    return sorted({finding.name for finding in failed})


def as_warnings(findings: Sequence[Finding]) -> list[AuditWarning]:
    """What results on an audited cohort must carry: every WARN, and every accepted FAIL."""
    levels = ("WARN", "FAIL")
    return merged([{"check": f.name, "level": f.status, "message": f.message} for f in findings if f.status in levels])


@dataclass(frozen=True)
class AuditOptions:
    """The user's options."""

    split: str | Path | None = None  # a split file to check too
    groups: str | None = None  # a column of the cohort whose groups must stay in one fold
    difference: float | None = None  # of accuracy, to be shown, in points: WARN if the cohort is too small
    permute: str | None = None  # a method to cross-validate with shuffled labels (``bandpower`` takes seconds)
    permutations: int = 20  # how many times
    sample: int = 5  # how many runs are computed again at most
    seed: int = 0  # of everything that is drawn
    plan: FoldPlan | None = None  # a split to check that is in no file

    def __post_init__(self) -> None:
        if self.difference is not None and not 0 < self.difference < 100:
            raise BadUse(f"--difference is in points of accuracy, above 0 and below 100; got {self.difference:g}")
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
            self._read_split(Path(self.options.split))
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
