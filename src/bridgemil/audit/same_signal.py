"""Is one signal there under two subjects?"""

from __future__ import annotations

from bridgemil.audit.copies import SAME, Copy, groups_of, laid_out, overlapping, same_windows
from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.audit.measures import MATCH_BAND

NAME = "same_signal"


def check(inputs: AuditInput) -> list[Finding]:
    """Look for windows and stretches that two people share, whatever their scale, sign or offset."""
    cohort = inputs.cohort
    by_people: dict[tuple[str, str], Copy] = {}
    for copy in [*overlapping(cohort), *same_windows(cohort, inputs.measures.people)]:
        earlier = by_people.setdefault((copy.first, copy.second), copy)
        if copy.seconds > 1.5 * earlier.seconds:
            by_people[copy.first, copy.second] = copy
    how = f"|r| over {SAME} between {MATCH_BAND[0]:g} and {MATCH_BAND[1]:g} Hz, at any offset, scale and sign"
    window, most = cohort.n_times / cohort.sfreq, laid_out(cohort)
    if any(record.n_windows * window > most for record in cohort.records.values()):
        how += f"; offsets within the first {most / 60:.3g} minutes of a person, window by window beyond"
    n = len(cohort)
    if len(groups_of(n)) < n:
        how += "; among so many people, of stretches that are not cut alike only long ones"
    if not by_people:
        message = f"No signal is there under two subjects ({n * (n - 1) // 2} pairs compared; {how})."
        return [Finding(NAME, "PASS", message, numbers={"pairs": n * (n - 1) // 2, "copies": []})]
    copies = sorted(by_people.values(), key=lambda copy: -copy.seconds)
    labels = {subject: record.label for subject, record in cohort.records.items()}
    lines = [f"{c} [{labels[c.first]} / {labels[c.second]}]" for c in copies]
    # A calibration pulse or a short artefact may fill one window of two people; hardly two.
    longer = [copy for copy in copies if copy.seconds > 1.01 * window]
    people = sorted({subject for copy in longer or copies for subject in (copy.first, copy.second)})
    numbers = {"subjects": people, "copies": [vars(copy) for copy in copies]}
    if not longer:
        message = f"{len(people)} subjects share a single window's length of signal with another one."
        fix = (
            "look at these windows: an artefact or a test signal may be left in; if they are EEG, they are one person's"
        )
        return [Finding(NAME, "WARN", message, shortened(lines), fix, numbers)]
    message = f"{len(people)} subjects share signal with another one: split apart, training sees the test."
    fix = "find out whose signal it is, remove or join these subjects (one subject a person), and prepare again"
    return [Finding(NAME, "FAIL", message, shortened(lines), fix, numbers)]
