"""A reporting checklist (TRIPOD+AI) filled in from the records of cohorts and runs, and material to judge risk of bias.

report -> one record per cohort -> its values and tables fill the texts (templates/checklist.yaml) -> Markdown, HTML

What the records do not contain is never filled in: it is marked as the author's to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from bridgemil.audit.traits import TECHNICAL
from bridgemil.report import templating
from bridgemil.report.benchmark import BenchmarkReport
from bridgemil.report.cohort_record import cohort_records, sheets
from bridgemil.runs import AuditWarning

RISKS = {"failed": "high", "fine": "low"}  # unclear for any other reason
STATUSES = ("FAIL", "WARN", "PASS", "INFO", "SKIP")


class Checklist(NamedTuple):
    """One section per cohort, what the report could not show, and the audit warnings of the cohorts."""

    name: str
    sections: Sequence[SimpleNamespace]  # records with ``entries``, ``counts`` of their states, and ``judgements``
    remarks: Sequence[str]
    warnings: Sequence[AuditWarning]


@cache
def texts() -> dict[str, Any]:
    """Content of templates/checklist.yaml."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(templating.asset("checklist.yaml"))
    empty = {"author": "", "text": "", "unknown": "", "tables": ()}
    return content | {name: [SimpleNamespace(**empty | own) for own in content[name]] for name in ("items", "domains")}


def build_checklist(report: BenchmarkReport, cohorts: Sequence[Path] = ()) -> Checklist:
    """Fill in the checklist; ``cohorts`` are the folders of cohorts that have been moved since the runs.

    ``BadUse`` if one of them is not a cohort of these runs.
    """
    sections = cohort_records(report, cohorts)
    for record in sections:
        record.entries = _entries(record)
        record.counts = {name: [entry.state for entry in record.entries].count(name) for name in texts()["states"]}
        record.judgements = [_judge(domain, record) for domain in texts()["domains"]]
    return Checklist(report.store.root.resolve().name, sections, report.remarks, report.warnings)


def _entries(record: SimpleNamespace) -> list[SimpleNamespace]:
    """Every item with what the records state, what the author has to add, and who has to write it: ``state``."""
    shown, entries = sheets(record), []
    for name, note in texts()["notes"].items():
        shown[name] = [replace(sheet, after=_lines(note, record)) for sheet in shown.get(name, ())]
    for item in texts()["items"]:
        lines = _lines(item.text, record)
        own = [sheet for name in item.tables for sheet in shown.get(name, ()) if sheet.rows]
        to_add = [*_lines(item.unknown, record), *filter(None, [item.author])]
        state = "author" if not lines and not own else "partly" if to_add else "filled"
        entries.append(SimpleNamespace(**vars(item), lines=lines, sheets=own, to_add=to_add, state=state))
    return entries


def _lines(template: str, record: SimpleNamespace) -> list[str]:
    """A text of an item, filled in: one line per paragraph."""
    filled = templating.string(template, **vars(record)).splitlines()
    return [" ".join(line.split()) for line in filled if line.strip()]


def domain_of(name: str) -> str:
    """The domain of an audit finding; other columns describe participants, unless they describe the recording."""
    for domain in texts()["domains"]:
        if any(fnmatchcase(name, pattern) for pattern in domain.findings):
            return str(domain.key)
    column = name.removeprefix("shortcut_").removesuffix("_missing")
    return "predictors" if column.lower() in TECHNICAL else "participants"


def _judge(domain: SimpleNamespace, record: SimpleNamespace) -> SimpleNamespace:
    """A domain with its risk of bias (low, high or unclear), the reason and the evidence in audit and records."""
    findings = [finding for finding in record.findings if domain_of(finding.name) == domain.key]
    accepted = [warning["check"] for warning in record.accepted if domain_of(warning["check"]) == domain.key]
    names = {status: sorted({f.name for f in findings if f.status == status}) for status in STATUSES}
    failed = sorted({*names["FAIL"], *accepted})
    lacking = [name for name in domain.needed if name not in names["PASS"] + names["INFO"]]
    reasons = {
        "failed": failed, "unaudited": [record.unaudited] if record.unaudited else [], "warned": names["WARN"],
        "unchecked": lacking, "no_evidence": [] if domain.needed else [domain.key],
    }  # fmt: skip
    reason = next((reason for reason, what in reasons.items() if what), "fine")
    risk = RISKS.get(reason, "unclear")
    why = templating.string(texts()["reasons"][reason], what=", ".join(reasons.get(reason, ())))
    evidence = [f"accepted when runs were made (--accept-risk): {', '.join(accepted)}"] if accepted else []
    for finding in sorted(findings, key=lambda finding: STATUSES.index(finding.status)):
        details = f" ({'; '.join(finding.evidence)})" if finding.status in ("FAIL", "WARN") and finding.evidence else ""
        evidence.append(f"{finding.status} {finding.name}: {finding.message}{details}")
    evidence += _lines(texts()["evidence"].get(domain.key, ""), record)
    return SimpleNamespace(**vars(domain), risk=risk, why=why, evidence=evidence)


def markdown(checklist: Checklist) -> str:
    """The checklist as Markdown."""
    return templating.text("checklist.md.j2", checklist=checklist, **texts())


def checklist_page(checklist: Checklist) -> str:
    """The page of a checklist, as text: every item with its state and the records, and the risk of bias."""
    return templating.page(
        "checklist.html.j2", heading=f"Reporting checklist of {checklist.name}", audit_warnings=checklist.warnings,
        checklist=checklist, **texts(),
    )  # fmt: skip
