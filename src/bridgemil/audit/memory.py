"""The quick audit of a cohort, remembered: in this process, and beside the runs, so that resuming is instant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bridgemil.audit.findings import Finding
from bridgemil.cohort.cohort import Cohort
from bridgemil.runs import RunStore
from bridgemil.storage.checksums import digest

VERSION = 3  # raised by hand when a check changes
_KNOWN: dict[str, list[Finding]] = {}


def remembered(cohort: Cohort, runs: str | Path | None, check: Callable[[Cohort], list[Finding]]) -> list[Finding]:
    """The findings of ``check``, from memory or from RUNS/audits if they were kept there. Nothing is written.

    Parameters
    ----------
    cohort
        What is audited; its signals, labels, columns and files decide whether it is the same.
    runs
        The folder of runs, there or not; None for none.
    check
        Does the audit.
    """
    key = _key(cohort)
    if key not in _KNOWN and runs is not None and key in RunStore(Path(runs)).names("audits"):
        _KNOWN[key] = [Finding.from_json(finding) for finding in RunStore(Path(runs)).audit(key)]
    if key not in _KNOWN:
        _KNOWN[key] = check(cohort)
    return _KNOWN[key]


def keep(cohort: Cohort, runs: str | Path) -> None:
    """Keep what this process knows of a cohort beside its runs, if it knows anything.

    Parameters
    ----------
    cohort
        What was audited.
    runs
        The folder of runs.
    """
    key = _key(cohort)
    if key in _KNOWN:
        findings = [finding.for_json() for finding in _KNOWN[key]]
        RunStore(Path(runs)).note_audit(key, cohort.hash, findings)


def _key(cohort: Cohort) -> str:
    rows = [{k: v for k, v in row.items() if k not in ("sums", "centred_squares")} for row in cohort.rows()]
    return digest([VERSION, cohort.hash, json.loads(json.dumps(rows, default=str)), cohort.metadata.get("files")])[:24]
