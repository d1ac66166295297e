"""A reporting checklist (TRIPOD+AI) filled in from the records of cohorts and runs, and material to judge risk of bias.

report -> one CohortRecord per cohort -> context and tables of the texts (templates/checklist.yaml) -> Markdown, HTML

What the records do not contain is never filled in: it is marked as the author's to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bridgemil.audit.traits import TECHNICAL
from bridgemil.errors import plain
from bridgemil.report import templating
from bridgemil.report.benchmark import BenchmarkReport
from bridgemil.report.cohort_record import CohortRecord, cohort_records, context, sheets
from bridgemil.report.tables import Sheet
from bridgemil.runs import AuditWarning

State = Literal["filled", "partly", "author"]
Risk = Literal["low", "high", "unclear"]
STATUSES = ("FAIL", "WARN", "PASS", "INFO", "SKIP")


@dataclass(frozen=True)
class Item:
    """One item of TRIPOD+AI, as in templates/checklist.yaml.

    Parameters
    ----------
    number : str
        As in the checklist: ``12a``.
    section, topic : str
        Section of a paper, and what the item asks for.
    author : str
        What only the author can state; empty where the records are complete.
    text, unknown : str
        Templates: what the records state, one paragraph per line; and what they should contain and do not.
    tables : tuple of str
        Names of tables.
    """

    number: str
    section: str
    topic: str
    author: str = ""
    text: str = ""
    unknown: str = ""
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """An item with what the records state; all text is safe to print."""

    item: Item
    lines: tuple[str, ...]
    sheets: tuple[Sheet, ...]
    unknown: tuple[str, ...]

    @property
    def state(self) -> State:
        """Who has to write it."""
        if not self.lines and not self.sheets:
            return "author"
        return "partly" if self.to_add else "filled"

    @property
    def to_add(self) -> list[str]:
        """What the author has to add."""
        return [*self.unknown, *([self.item.author] if self.item.author else [])]


@dataclass(frozen=True)
class Domain:
    """A domain of risk of bias, as in templates/checklist.yaml."""

    key: str
    title: str
    findings: Sequence[str]  # names of its audit findings; ``*`` stands for anything
    needed: Sequence[str]  # those that must have passed for a low risk
    questions: Sequence[str]  # what the author has to judge


@dataclass(frozen=True)
class Judgement:
    """A domain with its risk, the reason and the evidence; all text is safe to print."""

    domain: Domain
    risk: Risk
    why: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """The checklist of one cohort and its experiments: all items, four domains of risk of bias, warnings above them."""

    name: str
    entries: tuple[Entry, ...]
    judgements: tuple[Judgement, ...]
    warnings: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of items of each state."""
        counts = Counter(str(entry.state) for entry in self.entries)
        return {state: counts[state] for state in texts()["states"]}


@dataclass(frozen=True)
class Checklist:
    """One section per cohort, what the report could not show, and the audit warnings of the cohorts."""

    name: str
    sections: tuple[Section, ...]
    remarks: tuple[str, ...]
    warnings: tuple[AuditWarning, ...]


@cache
def texts() -> dict[str, Any]:
    """Content of templates/checklist.yaml: lead, states, caveat, not_done, items and domains."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(templating.asset("checklist.yaml"))
    content["items"] = [Item(**item | {"tables": tuple(item.get("tables", ()))}) for item in content["items"]]
    content["domains"] = [Domain(**domain) for domain in content["domains"]]
    return content


def build_checklist(report: BenchmarkReport, cohorts: Sequence[Path] = ()) -> Checklist:
    """Fill in the checklist.

    Parameters
    ----------
    report : BenchmarkReport
        Results of a folder of runs.
    cohorts : sequence of Path
        Folders of cohorts that have been moved since the runs.

    Raises
    ------
    BadUse
        If one of ``cohorts`` is not a cohort of these runs.
    """
    sections = map(_section, cohort_records(report, cohorts))
    warnings = tuple({key: _safe(value) for key, value in warning.items()} for warning in report.warnings)
    remarks = tuple(map(_safe, report.remarks))
    return Checklist(_safe(report.store.root.resolve().name), tuple(sections), remarks, warnings)


def _section(record: CohortRecord) -> Section:
    values, shown = context(record), sheets(record)

    def entry(item: Item) -> Entry:
        found = tuple(_safe_sheet(sheet) for name in item.tables for sheet in shown[name] if sheet.rows)
        return Entry(item, _lines(item.text, values), found, _lines(item.unknown, values))

    warnings = [f"Filled in from the runs alone: {record.absent}."] if record.cohort is None else []
    judgements = tuple(_judge(domain, record) for domain in texts()["domains"])
    return Section(_safe(record.name), tuple(map(entry, texts()["items"])), judgements, tuple(map(_safe, warnings)))


def _safe(text: str) -> str:
    """One line, control characters shown as codes: names come from files."""
    return " ".join(plain(text).split())


def _safe_sheet(sheet: Sheet) -> Sheet:
    parts: dict[str, Any] = {name: [*map(_safe, getattr(sheet, name))] for name in ("columns", "before", "after")}
    return replace(sheet, title=_safe(sheet.title), rows=[[*map(_safe, row)] for row in sheet.rows], **parts)


def _lines(template: str, context: Mapping[str, Any]) -> tuple[str, ...]:
    """A text of an item, filled in: one line per paragraph."""
    return tuple(filter(None, map(_safe, templating.string(template, **context).splitlines())))


def domain_of(name: str) -> str:
    """The domain of an audit finding; other columns describe participants, unless they describe the recording.

    Parameters
    ----------
    name : str
        Of the finding: ``shortcut_age``.
    """
    for domain in texts()["domains"]:
        if any(fnmatchcase(name, pattern) for pattern in domain.findings):
            return str(domain.key)
    column = name.removeprefix("shortcut_").removesuffix("_missing")
    return "predictors" if column.lower() in TECHNICAL else "participants"


def _judge(domain: Domain, record: CohortRecord) -> Judgement:
    """Risk of bias of a domain, from the audit of the cohort and its runs."""
    findings = [finding for finding in record.findings if domain_of(finding.name) == domain.key]
    accepted = [warning["check"] for warning in record.accepted if domain_of(warning["check"]) == domain.key]
    names = {status: sorted({f.name for f in findings if f.status == status}) for status in STATUSES}
    failed = sorted({*names["FAIL"], *accepted})
    lacking = [name for name in domain.needed if name not in names["PASS"] + names["INFO"]]
    risk: Risk = "unclear"
    if failed:
        risk, why = "high", f"the audit failed on {', '.join(failed)}"
    elif record.unaudited:
        why = f"not audited: {record.unaudited}"
    elif names["WARN"]:
        why = f"the audit warns of {', '.join(names['WARN'])}: judge what it means here"
    elif lacking:
        why = f"not checked: {', '.join(lacking)}"
    elif not domain.needed:
        why = "the records contain no evidence: judge it yourself"
    else:
        risk, why = "low", "no audit check raised a concern"
    evidence = [f"accepted when runs were made (--accept-risk): {', '.join(accepted)}"] if accepted else []
    for finding in sorted(findings, key=lambda finding: STATUSES.index(finding.status)):
        details = f" ({'; '.join(finding.evidence)})" if finding.status in ("FAIL", "WARN") and finding.evidence else ""
        evidence.append(f"{finding.status} {finding.name}: {finding.message}{details}")
    if domain.key == "outcome":
        evidence.append(f"classes as given by the source: {record.class_counts}")
    if domain.key == "analysis":
        evidence.append("subjects, not windows, were split; intervals, chance level and calibration are reported (23a)")
        if len(record.cells) > 1:
            evidence.append(f"{record.tried} on these subjects: the result of the best one is optimistically biased")
    return Judgement(domain, risk, _safe(why), tuple(map(_safe, evidence)))


def markdown(checklist: Checklist) -> str:
    """The checklist as Markdown.

    Parameters
    ----------
    checklist : Checklist
        From ``build_checklist``.
    """
    return templating.text("checklist.md.j2", checklist=checklist, **texts())
