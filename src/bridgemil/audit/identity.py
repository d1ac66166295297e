"""Do the records of two subjects' files say that they are one?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bridgemil.audit.findings import Finding, Status, shortened
from bridgemil.audit.inputs import AuditInput

# What a cohort's record of a file may hold: whether two subjects that share it must be one.
HEADER = {
    "identity": True, "patient": True, "patient_id": True, "patient_code": True, "subject_info": True,
    "recording_id": True, "meas_date": False, "start": False, "start_time": False,
}  # fmt: skip

MOST_OF_ONE, SHARE_OF_ONE = 3, 0.1  # subjects that may be one person by mistake: so many, or this share of all


def check(inputs: AuditInput) -> list[Finding]:
    """Compare files and what their headers said, as far as the cohort records it."""
    files = inputs.cohort.metadata.get("files") or []
    if not files:
        return [Finding("shared_files", "SKIP", "The cohort was made from arrays: it knows no files.")]
    return [_same_bytes(files), *_header(files)]


def _same_bytes(files: Sequence[Mapping[str, Any]]) -> Finding:
    owners = _owners(files, "sha256")
    twice = {digest: names for digest, names in owners.items() if len(names) > 1}
    if twice:
        lines = [f"{', '.join(sorted(names))}: one file ({digest[:12]})" for digest, names in twice.items()]
        message = f"{len(twice)} files are byte for byte the same under several subjects."
        fix = "keep one of each, under the subject it belongs to, and prepare again"
        return Finding("shared_files", "FAIL", message, shortened(lines), fix, {"files": len(twice)})
    if not owners:
        return Finding("shared_files", "SKIP", "The cohort records no hash of its files.")
    message = f"No file is shared by two subjects ({len(owners)} different files)."
    return Finding("shared_files", "PASS", message, numbers={"files": len(owners)})


def _header(files: Sequence[Mapping[str, Any]]) -> list[Finding]:
    present = [key for key in HEADER if any(file.get(key) not in (None, "", [], {}) for file in files)]
    if not present:
        message = "No file's header says whose it is: they are anonymised, or of a format without it."
        if not any("identity" in file for file in files):
            message = "Whom the files' headers name is not recorded: the cohort was prepared by an earlier version."
        return [Finding("shared_header", "SKIP", message)]
    n_people = len({file.get("subject") for file in files})
    findings = []
    for key in present:
        twice = {value: names for value, names in _owners(files, key).items() if len(names) > 1}
        if not twice:
            continue
        # One text in the headers of many is rather a form that nobody filled in than a person.
        few = [names for names in twice.values() if len(names) <= max(MOST_OF_ONE, SHARE_OF_ONE * n_people)]
        many = [names for names in twice.values() if names not in few]
        findings += [_shared(key, few, "FAIL" if HEADER[key] else "WARN")] if few else []
        findings += [_shared(key, many, "WARN")] if many else []
    passed = Finding("shared_header", "PASS", f"No two subjects share {', '.join(present)} of their files' headers.")
    return findings or [passed]


def _shared(key: str, groups: Sequence[set[str]], status: Status) -> Finding:
    """Subjects whose headers say the same; what they say may name a person: it is counted, not shown."""
    lines = [f"{', '.join(sorted(names))}: the same {key}" for names in groups]
    fix = "find out whether they are one person; if so, merge them into one subject and prepare again"
    message = f"{sum(map(len, groups))} subjects share the {key} of their files' headers with another one."
    return Finding("shared_header", status, message, shortened(lines), fix)


def _owners(files: Sequence[Mapping[str, Any]], key: str) -> dict[str, set[str]]:
    owners: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.get(key) not in (None, "", [], {}):
            owners[str(file[key])].add(str(file.get("subject")))
    return owners
