"""What an audit says: findings, each with its evidence and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bridgemil.errors import BadData
from bridgemil.runs import AuditWarning, merged

Status = Literal["PASS", "INFO", "WARN", "FAIL", "SKIP"]
STATUSES: tuple[Status, ...] = ("FAIL", "WARN", "INFO", "SKIP", "PASS")  # what needs a reader comes first
MOST_EVIDENCE = 8  # lines a finding shows; how many more there are is said


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    name
        What ``--accept-risk`` calls it: ``same_signal``, ``shortcut_length``.
    status
        ``PASS``, ``INFO`` (a number to know), ``WARN``, ``FAIL``, or ``SKIP`` where it could not be checked.
    message
        What was found, a sentence; of a SKIP, why it could not be checked.
    evidence
        The facts behind it, a line each.
    fix
        What to do about it; empty where nothing is to be done.
    numbers
        The same for machines.
    """

    name: str
    status: Status
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def for_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self) | {"evidence": list(self.evidence), "numbers": dict(self.numbers)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Finding:
        """Undo ``for_json``."""
        return cls(**{**content, "evidence": tuple(content["evidence"])})


@dataclass(frozen=True)
class Audit:
    """All findings of one audit.

    Parameters
    ----------
    cohort, runs
        The names of what was audited; ``runs`` is empty where no runs were.
    findings
        In the order of the checks.
    seconds
        How long it took.
    """

    cohort: str
    runs: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """How many findings of each status."""
        counted = Counter(finding.status for finding in self.findings)
        return {status: counted[status] for status in STATUSES}

    @property
    def failed(self) -> list[Finding]:
        """Those that forbid to believe a result."""
        return [finding for finding in self.findings if finding.status == "FAIL"]

    @property
    def sorted(self) -> list[Finding]:
        """Those that need a reader first."""
        return sorted(self.findings, key=lambda finding: STATUSES.index(finding.status))

    def named(self, name: str) -> list[Finding]:
        """The findings of one name."""
        return [finding for finding in self.findings if finding.name == name]

    def for_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "cohort": self.cohort,
            "runs": self.runs or None,
            "passed": not self.failed,
            "counts": self.counts,
            "seconds": round(self.seconds, 2),
            "findings": [finding.for_json() for finding in self.findings],
        }


def shortened(lines: Sequence[str], most: int = MOST_EVIDENCE) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    more = (f"and {len(lines) - most} more",) if len(lines) > most else ()
    return (*lines[:most], *more)


def refuse(findings: Sequence[Finding], accepted: Sequence[str] = ()) -> list[str]:
    """Refuse to go on where a check failed, unless its risk was accepted by name.

    Parameters
    ----------
    findings
        Of an audit.
    accepted
        Names of findings whose FAIL the user takes upon themselves.

    Returns
    -------
    list of str
        The names that were needed, sorted.
    """
    failed = [finding for finding in findings if finding.status == "FAIL"]
    open_ = [finding for finding in failed if finding.name not in accepted]
    if open_:
        lines = [f"\n  FAIL {f.name}: {f.message}" + (f"\n       {f.evidence[0]}" if f.evidence else "") for f in open_]
        options = " ".join(f"--accept-risk {name}" for name in sorted({f.name for f in open_}))
        raise BadData(
            f"the cohort did not pass the audit, so no result on it could be believed:{''.join(lines)}\n"
            f"`bridgemil audit` says what to do about each; {options} goes on and writes the risk into every result"
        )
    return sorted({finding.name for finding in failed})


def as_warnings(findings: Sequence[Finding]) -> list[AuditWarning]:
    """What results on an audited cohort must carry: every WARN, and every FAIL, each of which was accepted.

    Parameters
    ----------
    findings
        Of an audit that was not refused.
    """
    levels = ("WARN", "FAIL")
    return merged([{"check": f.name, "level": f.status, "message": f.message} for f in findings if f.status in levels])
