"""Do two subjects share a recording, a file, or the identity in the headers of their files?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding, Status, pass_or_fail
from bridgemil.cohort.cohort import Cohort

MOST_OF_ONE, SHARE_OF_ONE = 3, 0.1  # subjects that may be one person by mistake: this number, or this share of all


def check(inputs: AuditInput) -> list[Finding]:
    """Compare recordings, window starts, files and headers, as far as the cohort records them."""
    files = inputs.cohort.metadata.get("files") or []
    if not files:
        message, fix = "The cohort was made from arrays: it records no files.", "rely on same_signal"
        return [Finding(name, "SKIP", message, fix=fix) for name in ("same_time", "shared_files")]
    return [_same_time(inputs.cohort), _same_bytes(files), *_header(files)]


def _same_time(cohort: Cohort) -> Finding:
    """Windows may overlap within a subject: all of a subject's windows are in one fold."""
    problems, n_files, length = [], len(cohort.metadata["files"]), cohort.n_times / cohort.sfreq
    for recording, spans in _spans(cohort).items():
        for (first, one), (second, two) in combinations(sorted(spans.items()), 2):
            common = sum(np.clip(length - np.abs(two - start), 0, None).max(initial=0) for start in one)
            if common > 0:
                problems.append(f"{first} and {second} both hold {common:.0f} s of {recording}")
            else:
                problems.append(f"{first} and {second} hold parts of {recording}: one person as two subjects?")
    overlap = float(cohort.preparation.get("overlap") or 0)
    inside = f" Windows overlap by {overlap:g} within a subject only." if overlap else ""
    success = f"No recording gives windows to two subjects ({n_files} recordings).{inside}"
    failure = (
        f"{len(problems)} pairs of subjects hold windows of one recording, which leaks test data into training when "
        "split across folds."
    )
    fix = "give every recording to one subject in the manifest or the BIDS folder, and prepare again"
    numbers = {"pairs": len(problems), "recordings": n_files, "overlap": overlap}
    return pass_or_fail("same_time", problems, success, failure, fix, numbers)


def _spans(cohort: Cohort) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Recording to subject to the starts of its windows in seconds; recordings are equal by name or by content."""
    content = {(f.get("subject"), f.get("file")): f.get("sha256") for f in cohort.metadata["files"]}
    first_name: dict[str, str] = {}
    spans: dict[str, dict[str, NDArray[np.float64]]] = defaultdict(dict)
    for subject, record in cohort.records.items():
        parts = np.split(cohort.window_starts(subject), np.cumsum(record.recording_windows)[:-1])
        for name, starts in zip(record.recordings, parts, strict=True):
            spans[first_name.setdefault(content.get((subject, name)) or name, name)][subject] = starts
    return spans


def _same_bytes(files: Sequence[Mapping[str, Any]]) -> Finding:
    owners = _owners(files, "sha256")
    if not owners:
        return Finding("shared_files", "SKIP", "The cohort records no hash of its files.")
    twice = [f"{', '.join(sorted(of))}: one file ({digest[:12]})" for digest, of in owners.items() if len(of) > 1]
    success = f"No file is shared by two subjects ({len(owners)} different files)."
    failure = f"{len(twice)} files are identical under several subjects."
    fix = "keep one of each, under the subject it belongs to, and prepare again"
    return pass_or_fail("shared_files", twice, success, failure, fix, {"files": len(twice or owners)})


def _header(files: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Subjects whose headers name one person: a cohort records which of them do, and not whom."""
    owners = _owners(files, "identity")
    if not owners:
        message = "No header names its subject: the files are anonymised, or of a format without such a field."
        return [Finding("shared_header", "SKIP", message)]
    most = max(MOST_OF_ONE, SHARE_OF_ONE * len({file.get("subject") for file in files}))
    twice = [names for names in owners.values() if len(names) > 1]
    fix = "find out whether they are one person; if so, merge them into one subject and prepare again"
    findings, statuses = [], tuple[Status, ...](("FAIL", "WARN"))
    for status in statuses:
        # One text in the headers of many subjects is an unedited template rather than a person.
        groups = [names for names in twice if (len(names) > most) is (status == "WARN")]
        lines = [f"{', '.join(sorted(names))}: the same identity" for names in groups]
        message = f"{sum(map(len, groups))} subjects share the identity of their files' headers with another one."
        findings += [Finding("shared_header", status, message, lines, fix)] if groups else []
    return findings or [Finding("shared_header", "PASS", "No two subjects share the identity of their files' headers.")]


def _owners(files: Sequence[Mapping[str, Any]], key: str) -> dict[str, set[str]]:
    """The subjects of each value that a field has."""
    owners: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.get(key) not in (None, "", [], {}):
            owners[str(file[key])].add(str(file.get("subject")))
    return owners
