"""Words and tables in Markdown; what a name holds means nothing there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bridgemil.report.benchmark_sheets import Sheet
from bridgemil.runs import TITLE, AuditWarning, warning_text


def md_sheet(sheet: Sheet, level: int = 3) -> list[str]:
    """A table with its title and the sentences around it, as lines.

    Parameters
    ----------
    sheet
        The table.
    level
        Of its heading.
    """
    title = f"{'#' * level} {md_text(sheet.title)}"
    return ["", title, *md_lines(sheet.before), *md_table(sheet), *md_lines(sheet.after)]


def md_table(sheet: Sheet) -> list[str]:
    """The rows alone; the best in bold, the second underlined.

    Parameters
    ----------
    sheet
        The table.
    """
    marks = {"best": "**{}**", "second": "<ins>{}</ins>", None: "{}"}
    lines = ["", f"| {' | '.join(map(md_text, sheet.columns))} |", "|---" * len(sheet.columns) + "|"]
    for i, row in enumerate(sheet.rows):
        cells = [marks[sheet.marks.get((i, j))].format(md_text(word)) for j, word in enumerate(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def md_warnings(warnings: Sequence[AuditWarning]) -> list[str]:
    """Audit warnings as a block quote, to stand above everything else; nothing where there are none.

    Parameters
    ----------
    warnings
        As ``Results.warnings`` holds them.
    """
    if not warnings:
        return []
    return ["", f"> **{TITLE}**", ">", *(f"> - {md_text(warning_text(warning))}" for warning in warnings)]


def md_lines(lines: Sequence[str]) -> list[str]:
    """Sentences, a paragraph each.

    Parameters
    ----------
    lines
        Plain words.
    """
    return [part for line in lines for part in ("", md_text(line))]


def md_text(text: str) -> str:
    """Plain words in Markdown; an underscore within a word means nothing there.

    Parameters
    ----------
    text
        From anywhere; line breaks become spaces.
    """
    indent = "&emsp;" if text.startswith("  ") else ""
    return indent + re.sub(r"[\\`*\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", " ".join(text.split()))
