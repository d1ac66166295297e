"""The page of an audit: every finding with its evidence and what to do about it."""

from __future__ import annotations

from pathlib import Path

from bridgemil.audit.findings import STATUSES, Audit
from bridgemil.report.audit_text import levels
from bridgemil.report.pages import render, write

TITLES = {
    "FAIL": "Fix before reporting any result",
    "WARN": "State beside every result",
    "INFO": "Numbers to know",
    "SKIP": "Not checked",
    "PASS": "Checked, nothing found",
}


def write_audit_page(path: str | Path, audit: Audit) -> None:
    """Write the page.

    Parameters
    ----------
    path
        The HTML file.
    audit
        What was found.
    """
    write(path, audit_page(audit))


def audit_page(audit: Audit) -> str:
    """The page as text; parameters as for ``write_audit_page``."""
    groups = [
        {"id": status.lower(), "title": TITLES[status], "status": status,
         "findings": [finding for finding in audit.findings if finding.status == status]}
        for status in STATUSES
        if audit.counts[status]
    ]  # fmt: skip
    name = Path(audit.cohort).name
    return render(
        "audit.html",
        title=f"Audit of {name}: bridgemil",
        heading=f"Audit of {name}",
        sections=[(group["id"], group["status"]) for group in groups],
        groups=groups,
        audit=audit,
        levels=list(levels(audit)),
    )
