"""Do two subjects hold windows of the same stretch of the same recording?"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.cohort import Cohort

NAME = "same_time"


def check(inputs: AuditInput) -> list[Finding]:
    """Compare names, contents and window starts of the recordings of different subjects.

    Windows may overlap within a subject: all of a subject's windows are on one side of every border.
    """
    cohort = inputs.cohort
    files = cohort.metadata.get("files") or []
    if not files:
        message = "The cohort was made from arrays: it does not say which recordings its windows are of."
        return [Finding(NAME, "SKIP", message, fix="rely on same_signal, which compares the signals themselves")]
    wrong, shared = [], 0
    for recording, spans in _spans(cohort).items():
        for (first, one), (second, two) in combinations(sorted(spans.items()), 2):
            shared += 1
            seconds = _common(one, two, cohort.n_times / cohort.sfreq)
            if seconds > 0:
                wrong.append(f"{first} and {second} both hold {seconds:.0f} s of {recording}")
            else:
                wrong.append(f"{first} and {second} hold different parts of {recording}: one person as two subjects?")
    if wrong:
        message = (
            f"{shared} pairs of subjects hold windows of one recording, which leaks test data into training when split "
            "across folds."
        )
        fix = "give every recording to one subject in the manifest or the BIDS folder, and prepare again"
        return [Finding(NAME, "FAIL", message, shortened(wrong), fix, {"pairs": shared})]
    overlap = float(cohort.preparation.get("overlap") or 0)
    inside = f" Windows overlap by {overlap:g} within a subject only." if overlap else ""
    message = f"No recording gives windows to two subjects ({len(files)} recordings).{inside}"
    return [Finding(NAME, "PASS", message, numbers={"recordings": len(files), "overlap": overlap})]


def _spans(cohort: Cohort) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Recording to subject to the starts of its windows, in seconds; a recording is one by its name or its bytes."""
    content = {(f.get("subject"), f.get("file")): f.get("sha256") for f in cohort.metadata["files"]}
    first_name: dict[str, str] = {}
    spans: dict[str, dict[str, NDArray[np.float64]]] = defaultdict(dict)
    for subject, record in cohort.records.items():
        starts, at = cohort.window_starts(subject), 0
        for name, size in zip(record.recordings, record.recording_windows, strict=True):
            digest = content.get((subject, name)) or name
            known = first_name.setdefault(digest, name)
            spans[known][subject] = starts[at : at + size]
            at += size
    return spans


def _common(one: NDArray[np.float64], two: NDArray[np.float64], length: float) -> float:
    """Seconds that windows of this length, begun at these times, have in common."""
    return float(sum(np.clip(length - np.abs(two - start), 0, None).max(initial=0) for start in one))
