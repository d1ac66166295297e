"""The page of a reporting checklist: every item with its state and what the records say, and the risk of bias."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bridgemil.report.checklist import Checklist, Section
from bridgemil.report.checklist.bias import CAVEAT, NOT_DONE
from bridgemil.report.checklist.entries import STATES, Entry
from bridgemil.report.pages import render, write

LEAD = (
    "The items of TRIPOD+AI (Collins and others, BMJ 2024, 385:e078378), in our own words, filled in from the records "
    "of the cohort and the runs. Use it beside the checklist itself; check every line before it goes into a paper."
)


def write_checklist_page(path: str | Path, checklist: Checklist) -> None:
    """Write the page.

    Parameters
    ----------
    path
        The HTML file.
    checklist
        From ``bridgemil.report.checklist.build_checklist``.
    """
    write(path, checklist_page(checklist))


def checklist_page(checklist: Checklist) -> str:
    """The page as text; parameters as for ``write_checklist_page``."""
    groups = [_group(number, section) for number, section in enumerate(checklist.sections, 1)]
    links = [(f"cohort-{group['id']}", group["name"]) for group in groups]
    if len(groups) == 1:
        links = [(f"part-1-{number}", part["title"]) for number, part in enumerate(groups[0]["parts"], 1)]
        links.append(("bias-1", "Risk of bias"))
    return render(
        "checklist.html",
        title=f"Reporting checklist of {checklist.name}: bridgemil",
        heading=f"Reporting checklist of {checklist.name}",
        sections=[*links, *([("remarks", "Not in this checklist")] if checklist.remarks else [])],
        audit_warnings=checklist.warnings,
        lead=LEAD,
        states=STATES,
        groups=groups,
        caveat=CAVEAT,
        not_done=NOT_DONE,
        remarks=checklist.remarks,
    )


def _group(number: int, section: Section) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for title, entries in groupby(section.entries, key=lambda entry: entry.item.section):
        parts.append({"title": title, "entries": list[Entry](entries)})
    return {
        "id": number,
        "name": section.name,
        "counts": section.counts,
        "n": len(section.entries),
        "warnings": section.warnings,
        "parts": parts,
        "judgements": _judgements(section),
    }


def _judgements(section: Section) -> Sequence[dict[str, Any]]:
    return [
        {"title": judgement.domain.title, "risk": judgement.risk, "why": judgement.why,
         "evidence": judgement.evidence, "questions": judgement.domain.questions}
        for judgement in section.judgements
    ]  # fmt: skip
