"""Risk of bias in four domains, as far as the audit's findings speak to it: a help to self-assessment, not one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from bridgemil.audit import Finding
from bridgemil.audit.traits import TECHNICAL
from bridgemil.report.checklist.data_items import classes_words
from bridgemil.report.checklist.dossier import Dossier
from bridgemil.report.checklist.entries import read_yaml, safe, safe_text

Risk = Literal["low", "high", "unclear"]
CAVEAT = (
    "A help to self-assessment in the manner of PROBAST+AI, not the assessment: it knows the records and the audit "
    "alone. Low means that nothing of what the audit can check speaks against it; your answers to the questions can "
    "raise any domain, and none of them can be given here."
)
NOT_DONE = (
    "Only the quick audit was done. The command bridgemil audit COHORT RUNS also computes runs again and measures how "
    "well windows name their person; with --permute METHOD it shuffles labels."
)


@dataclass(frozen=True)
class Domain:
    """One of the four.

    Parameters
    ----------
    key, title
        Its names.
    findings
        Names of the findings that speak to it; ``*`` stands for anything.
    needed
        Those that must have passed before it can be low.
    questions
        What the author has to judge.
    """

    key: str
    title: str
    findings: tuple[str, ...]
    needed: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """A domain with what speaks to it; all words are safe to print."""

    domain: Domain
    risk: Risk
    why: str
    evidence: tuple[str, ...]


@cache
def domains() -> tuple[Domain, ...]:
    """All four."""
    return tuple(
        Domain(
            content["key"], content["title"], tuple(content["findings"]), tuple(content["needed"]),
            tuple(content["questions"]),
        )
        for content in read_yaml("bias.yaml")
    )  # fmt: skip


def judged(known: Dossier) -> list[Judgement]:
    """Every domain, from the audit of the cohort and its runs.

    Parameters
    ----------
    known
        The cohort and its runs.
    """
    return [_judge(domain, known) for domain in domains()]


def domain_of(name: str) -> str:
    """The domain that a finding speaks to; other columns tell of people, unless they tell how recordings were made.

    Parameters
    ----------
    name
        The finding's: ``shortcut_age``.
    """
    for domain in domains():
        if any(fnmatchcase(name, pattern) for pattern in domain.findings):
            return domain.key
    column = name.removeprefix("shortcut_").removesuffix("_missing")
    return "predictors" if column.lower() in TECHNICAL else "participants"


def _judge(domain: Domain, known: Dossier) -> Judgement:
    findings = [finding for finding in known.findings if domain_of(finding.name) == domain.key]
    risks = [warning["check"] for warning in known.accepted if domain_of(warning["check"]) == domain.key]
    risk, why = _risk(domain, known, findings, risks)
    evidence = [f"accepted when runs were made (--accept-risk): {', '.join(risks)}"] if risks else []
    evidence += [f"{f.status} {f.name}: {f.message}{_details(f)}" for f in sorted(findings, key=_place)]
    return Judgement(domain, risk, safe_text(why), safe([*evidence, *_facts(domain, known)]))


def _details(finding: Finding) -> str:
    """The evidence, of what needs a reader."""
    return f" ({'; '.join(finding.evidence)})" if finding.status in ("FAIL", "WARN") and finding.evidence else ""


def _place(finding: Finding) -> int:
    return ("FAIL", "WARN", "PASS", "INFO", "SKIP").index(finding.status)


def _risk(domain: Domain, known: Dossier, findings: Sequence[Finding], accepted: Sequence[str]) -> tuple[Risk, str]:
    failed = sorted({f.name for f in findings if f.status == "FAIL"} | set(accepted))
    if failed:
        return "high", f"the audit failed on {', '.join(failed)}"
    if known.unaudited:
        return "unclear", f"not audited: {known.unaudited}"
    warned = sorted({f.name for f in findings if f.status == "WARN"})
    if warned:
        return "unclear", f"the audit warns of {', '.join(warned)}: judge what it means here"
    passed = {f.name for f in findings if f.status in ("PASS", "INFO")}
    lacking = [name for name in domain.needed if name not in passed]
    if lacking or not domain.needed:
        return (
            "unclear",
            f"not checked: {', '.join(lacking)}" if lacking else "no record speaks to it: it is yours to judge",
        )
    return "low", "nothing that the audit can check speaks against it"


def _facts(domain: Domain, known: Dossier) -> list[str]:
    """What the records say beside the audit."""
    if domain.key == "outcome":
        return [f"classes as the source states them: {classes_words(known)}"]
    if domain.key != "analysis":
        return []
    lines = ["people, not windows, were split; intervals, chance and calibration are reported (23a)"]
    if len(known.cells) > 1:
        lines.append(f"{known.tried} on these people: one picked among several by its result is too good")
    return lines
