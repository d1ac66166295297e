"""An audit as lines of text: the status, what was found, the evidence, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bridgemil.audit.findings import Audit, Finding

COLOURS = {"PASS": "green", "INFO": "cyan", "WARN": "yellow", "FAIL": "red", "SKIP": "bright_black"}


def printable(text: str) -> str:
    """The text without control characters, which a name in a file could carry to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def levels(audit: Audit) -> Iterator[tuple[str, str]]:
    """One line per level, "3 WARN  shortcut_order, size …", with its colour; the level that needs a reader first.

    Parameters
    ----------
    audit
        What was found.
    """
    for status, n in audit.counts.items():
        if n:
            names = dict.fromkeys(finding.name for finding in audit.findings if finding.status == status)
            yield printable(f"{n} {status}  {', '.join(names)}"), COLOURS[status]


def lines(audit: Audit, width: int = 100) -> Iterator[tuple[str, str]]:
    """Each line with the colour of its first word (empty for none), those that need a reader first.

    Parameters
    ----------
    audit
        What was found.
    width
        Letters in a line.
    """
    for finding in audit.sorted:
        yield from _finding(finding, width)


def _finding(finding: Finding, width: int) -> Iterator[tuple[str, str]]:
    first = f"{finding.status}  {finding.name}: {finding.message}"
    parts = [(first, "      ", COLOURS[finding.status])]
    parts += [(f"      - {line}", "        ", "") for line in finding.evidence]
    parts += [(f"      fix: {finding.fix}", "           ", "")] if finding.fix else []
    for text, indent, colour in parts:
        wrapped = textwrap.wrap(printable(text), width, subsequent_indent=indent, break_on_hyphens=False)
        for number, line in enumerate(wrapped):
            yield line, colour if number == 0 else ""
