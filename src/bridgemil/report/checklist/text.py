"""The checklist in Markdown, and both of its files."""

from __future__ import annotations

from pathlib import Path

from bridgemil.report.checklist import Checklist
from bridgemil.report.checklist.bias import CAVEAT, NOT_DONE
from bridgemil.report.checklist.entries import STATES
from bridgemil.report.pages.checks import LEAD, checklist_page
from bridgemil.report.templating import text, write


def write_checklist(checklist: Checklist, folder: Path) -> list[Path]:
    """Write ``checklist.md`` and ``checklist.html``.

    Parameters
    ----------
    checklist
        From ``build_checklist``.
    folder
        Where; it must be there.
    """
    write(folder / "checklist.md", markdown(checklist) + "\n")
    write(folder / "checklist.html", checklist_page(checklist))
    return [folder / "checklist.md", folder / "checklist.html"]


def markdown(checklist: Checklist) -> str:
    """The whole checklist.

    Parameters
    ----------
    checklist
        From ``build_checklist``.
    """
    return text("checklist.md.j2", checklist=checklist, lead=LEAD, states=STATES, caveat=CAVEAT, not_done=NOT_DONE)
