"""Do the records of two subjects' files say that they are one?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bridgemil.audit.case import Case
from bridgemil.audit.findings import Finding, shortened

# What a cohort's record of a file may hold: whether two subjects that share it must be one.
HEADER = {
    "patient": True, "patient_id": True, "patient_code": True, "subject_info": True, "recording_id": True,
    "meas_date": False, "start": False, "start_time": False,
}  # fmt: skip


def check(case: Case) -> list[Finding]:
    """Compare files and what their headers said, as far as the cohort records it."""
    files = case.cohort.about.get("files") or []
    if not files:
        return [Finding("shared_files", "SKIP", "The cohort was made from arrays: it knows no files.")]
    return [_same_bytes(files), *_header(files)]


def _same_bytes(files: Sequence[Mapping[str, Any]]) -> Finding:
    owners = _owners(files, "sha256")
    twice = {digest: names for digest, names in owners.items() if len(names) > 1}
    if twice:
        lines = [f"{', '.join(sorted(names))}: one file ({digest[:12]})" for digest, names in twice.items()]
        words = f"{len(twice)} files are byte for byte the same under several subjects."
        fix = "keep one of each, under the subject it belongs to, and prepare again"
        return Finding("shared_files", "FAIL", words, shortened(lines), fix, {"files": len(twice)})
    if not owners:
        return Finding("shared_files", "SKIP", "The cohort records no hash of its files.")
    words = f"No file is there under two subjects ({len(owners)} different files)."
    return Finding("shared_files", "PASS", words, numbers={"files": len(owners)})


def _header(files: Sequence[Mapping[str, Any]]) -> list[Finding]:
    present = [key for key in HEADER if any(file.get(key) not in (None, "", [], {}) for file in files)]
    if not present:
        words = "The cohort records neither patient codes nor times from its files' headers, to keep them private."
        return [Finding("shared_header", "SKIP", words)]
    findings = []
    for key in present:
        twice = {value: names for value, names in _owners(files, key).items() if len(names) > 1}
        if not twice:
            continue
        # The value itself may name a person: it is counted, not shown.
        lines = [f"{', '.join(sorted(names))}: the same {key}" for names in twice.values()]
        fix = "find out whether they are one person; if so, join them into one subject and prepare again"
        words = f"{sum(map(len, twice.values()))} subjects share the {key} of their files' headers with another one."
        findings.append(Finding("shared_header", "FAIL" if HEADER[key] else "WARN", words, shortened(lines), fix))
    passed = Finding("shared_header", "PASS", f"No two subjects share {', '.join(present)} of their files' headers.")
    return findings or [passed]


def _owners(files: Sequence[Mapping[str, Any]], key: str) -> dict[str, set[str]]:
    owners: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.get(key) not in (None, "", [], {}):
            owners[str(file[key])].add(str(file.get("subject")))
    return owners
