"""Markdown: escaped text, tables and audit warnings; the filters of the templates (bridgemil.report.templating)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridgemil.runs import TITLE, AuditWarning, warning_text

if TYPE_CHECKING:
    from bridgemil.report.tables import Sheet

MARKS = {"best": "**{}**", "second": "<ins>{}</ins>", None: "{}"}


def md_text(text: str) -> str:
    """Plain text with Markdown's characters escaped.

    Parameters
    ----------
    text : str
        From anywhere; line breaks become spaces. An underscore within a word has no meaning in Markdown and is kept.
    """
    indent = "&emsp;" if text.startswith("  ") else ""
    return indent + re.sub(r"[\\`*\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", " ".join(text.split()))


def md_table(sheet: Sheet) -> str:
    """The rows of a table; the best in bold, the second underlined.

    Parameters
    ----------
    sheet : Sheet
        Its title and sentences are not included.
    """
    lines = [f"| {' | '.join(map(md_text, sheet.columns))} |", "|---" * len(sheet.columns) + "|"]
    for i, row in enumerate(sheet.rows):
        cells = [MARKS[sheet.marks.get((i, j))].format(md_text(text)) for j, text in enumerate(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def md_sheet(sheet: Sheet, level: int = 3) -> str:
    """A table with its title and the sentences around it.

    Parameters
    ----------
    sheet : Sheet
        The table.
    level : int
        Of its heading.
    """
    parts = [f"{'#' * level} {md_text(sheet.title)}", *map(md_text, sheet.before), md_table(sheet)]
    return "\n\n".join([*parts, *map(md_text, sheet.after)])


def md_warnings(warnings: Sequence[AuditWarning]) -> str:
    """Audit warnings as a block quote; empty if there are none.

    Parameters
    ----------
    warnings : sequence of AuditWarning
        As in ``Results.warnings``.
    """
    lines = [f"> **{TITLE}**", ">", *(f"> - {md_text(warning_text(warning))}" for warning in warnings)]
    return "\n".join(lines) if warnings else ""
