"""Findings of an audit, each with its evidence and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bridgemil.errors import BadData
from bridgemil.runs import AuditWarning, merged

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
