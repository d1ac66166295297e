"""Audit warnings that stay with results: each WARN of a cohort's quick audit, and each FAIL that was accepted.

audit.guard -> Experiment -> RUNS/splits (``RunStore.note_split``) -> ``Results.warnings`` -> terminal, pages, JSON

They belong to a cohort and a split, not to a run: a finished run is not run again when an audit learns something new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

AuditWarning = dict[str, str]  # check, level (WARN or FAIL) and message; where several cohorts are shown, cohort
TITLE = "Audit warnings of the cohort"


def merged(*groups: Iterable[Mapping[str, str]]) -> list[AuditWarning]:
    """Warnings of several audits without repetition, FAIL first.

    Parameters
    ----------
    groups
        Of one check (and cohort) the message of the last group is kept.
    """
    by_check = {(w.get("cohort", ""), w["check"]): dict(w) for group in groups for w in group}
    return [by_check[key] for key in sorted(by_check, key=lambda key: (by_check[key]["level"] != "FAIL", *key))]


def warning_text(warning: Mapping[str, str]) -> str:
    """One warning as one line of text.

    Parameters
    ----------
    warning
        ``check``, ``level``, ``message`` and, where several cohorts are shown, ``cohort``.
    """
    accepted = " (accepted; results are not valid as they stand)" if warning["level"] == "FAIL" else ""
    return f"{_name(warning)}{accepted}: {' '.join(warning['message'].split())}"


def warning_names(warnings: Iterable[Mapping[str, str]]) -> str:
    """Levels and checks alone, for a column of a table: ``FAIL same_signal; WARN size``.

    Parameters
    ----------
    warnings
        As ``merged`` returns them.
    """
    return "; ".join(map(_name, warnings))


def _name(warning: Mapping[str, str]) -> str:
    cohort = f"{warning['cohort']}: " if "cohort" in warning else ""
    return f"{cohort}{warning['level']} {warning['check']}"
