"""The checklist in Markdown, and both of its files."""

from __future__ import annotations

from pathlib import Path

from bridgemil.report.checklist import Checklist, Section
from bridgemil.report.checklist.bias import CAVEAT, NOT_DONE, Judgement
from bridgemil.report.checklist.entries import STATES, Entry
from bridgemil.report.markdown import md_lines, md_sheet, md_text, md_warnings
from bridgemil.report.pages.checks import LEAD, checklist_page
from bridgemil.report.templating import write


def write_checklist(checklist: Checklist, folder: Path) -> list[Path]:
    """Write ``checklist.md`` and ``checklist.html``.

    Parameters
    ----------
    checklist
        From ``build_checklist``.
    folder
        Where; it must be there.
    """
    write(folder / "checklist.md", markdown(checklist))
    write(folder / "checklist.html", checklist_page(checklist))
    return [folder / "checklist.md", folder / "checklist.html"]


def markdown(checklist: Checklist) -> str:
    """The whole checklist.

    Parameters
    ----------
    checklist
        From ``build_checklist``.
    """
    lines = [
        f"# Reporting checklist of {md_text(checklist.name)}",
        *md_warnings(checklist.warnings),
        *md_lines([LEAD]),
        "",
    ]
    lines += [f"- **{state}**: {words}" for state, words in STATES.items()]
    for section in checklist.sections:
        lines += _section(section)
    if checklist.remarks:
        lines += ["", "## Not in this checklist", "", *(f"- {md_text(line)}" for line in checklist.remarks)]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    counts = ", ".join(f"{n} {state}" for state, n in section.counts.items())
    lines = ["", f"## {md_text(section.name)}", "", f"{len(section.entries)} items and sub-items: {counts}."]
    for line in section.warnings:
        lines += ["", f"> **{md_text(line)}**"]
    lines += ["", "### TRIPOD+AI"]
    part = ""
    for entry in section.entries:
        if entry.item.section != part:
            part = entry.item.section
            lines += ["", f"#### {part}"]
        lines += _entry(entry)
    lines += ["", "### Risk of bias, a help to self-assessment", *md_lines([CAVEAT, NOT_DONE])]
    return [*lines, *(line for judgement in section.judgements for line in _judgement(judgement))]


def _entry(entry: Entry) -> list[str]:
    lines = ["", f"**{entry.item.number} {entry.item.topic}** ({entry.state})", *md_lines(entry.answer.lines)]
    for sheet in entry.answer.sheets:
        lines += md_sheet(sheet, level=5)
    return lines + (["", *(f"- *To add:* {md_text(words)}." for words in entry.to_add)] if entry.to_add else [])


def _judgement(judgement: Judgement) -> list[str]:
    lines = ["", f"#### {judgement.domain.title}: {judgement.risk}", "", f"{md_text(_sentence(judgement.why))}", ""]
    lines += [f"- {md_text(line)}" for line in judgement.evidence]
    return [*lines, "", "Yours to judge:", "", *(f"- {question}" for question in judgement.domain.questions)]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
