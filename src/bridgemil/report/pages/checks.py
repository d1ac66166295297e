"""The pages of an audit (every finding, its evidence and the fix) and of a reporting checklist."""

from __future__ import annotations

from pathlib import Path

from bridgemil.audit.findings import STATUSES, Audit
from bridgemil.report import templating
from bridgemil.report.checklist import Checklist, texts
from bridgemil.report.terminal import audit_levels


def audit_page(audit: Audit) -> str:
    """The page of an audit, as text.

    Parameters
    ----------
    audit : Audit
        Its findings.
    """
    groups = [(status, [finding for finding in audit.findings if finding.status == status]) for status in STATUSES]
    return templating.page(
        "audit.html.j2",
        heading=f"Audit of {Path(audit.cohort).name}",
        groups=[(status, findings) for status, findings in groups if findings],
        audit=audit,
        levels=[line for line, _ in audit_levels(audit)],
    )


def checklist_page(checklist: Checklist) -> str:
    """The page of a checklist, as text: every item with its state and the records, and the risk of bias.

    Parameters
    ----------
    checklist : Checklist
        From ``bridgemil.report.checklist.build_checklist``.
    """
    return templating.page(
        "checklist.html.j2",
        heading=f"Reporting checklist of {checklist.name}",
        audit_warnings=checklist.warnings,
        checklist=checklist,
        **texts(),
    )
