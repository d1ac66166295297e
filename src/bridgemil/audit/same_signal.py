"""Are there duplicate signals across subjects?"""

from __future__ import annotations

from bridgemil.audit.copies import Copy, groups_of, laid_out, overlapping, same_windows
from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.audit.measures import MATCH_BAND
from bridgemil.cohort.cohort import Cohort

NAME = "same_signal"
# A calibration pulse or an artefact may fill a window of two recordings; hardly three seconds of them.
LONG, SHARE = 3.0, 0.75  # seconds in common from which it is a FAIL; of shorter recordings, this share
# Measured by benchmarks/copy_limits.py on adftd-300s.
LIMITS = (
    "Not detected: shared stretches under about 12 s in 300 s that start at another place in the window, a sampling "
    "rate that is wrong by 2.4 %, time reversal, most channels replaced, and copies after a narrow band-pass."
)


def check(inputs: AuditInput) -> list[Finding]:
    """Look for windows and stretches that two subjects share, whatever their scale, sign or offset."""
    cohort = inputs.cohort
    by_people: dict[tuple[str, str], Copy] = {}
    for copy in [*overlapping(cohort), *same_windows(cohort, inputs.measures.people)]:
        earlier = by_people.setdefault((copy.first, copy.second), copy)
        if copy.seconds > 1.5 * earlier.seconds:
            by_people[copy.first, copy.second] = copy
    n = len(cohort)
    if not by_people:
        message = f"No duplicate signals across subjects ({n * (n - 1) // 2} pairs compared{_how(cohort)}). {LIMITS}"
        return [Finding(NAME, "PASS", message, numbers={"pairs": n * (n - 1) // 2, "copies": []})]
    copies = sorted(by_people.values(), key=lambda copy: -copy.seconds)
    labels = {subject: record.label for subject, record in cohort.records.items()}
    lines = [f"{c} [{labels[c.first]} / {labels[c.second]}]" for c in copies]
    long = [copy for copy in copies if copy.seconds >= _long(cohort, copy)]
    people = sorted({subject for copy in long or copies for subject in (copy.first, copy.second)})
    numbers = {"subjects": people, "copies": [vars(copy) for copy in copies]}
    if not long:
        message = f"{len(people)} subjects share under {LONG:g} s of signal with another subject."
        fix = (
            "look at these windows in the recordings: mark calibration signals and artefacts as BAD and prepare again; "
            "if they are EEG, find out whose, and keep one of the subjects"
        )
        return [Finding(NAME, "WARN", message, shortened(lines), fix, numbers)]
    message = (
        f"{len(people)} subjects share signal with another subject, which leaks test data into training when they are "
        "split across folds."
    )
    fix = "find out whose signal it is, remove or merge these subjects (one subject per person), and prepare again"
    return [Finding(NAME, "FAIL", message, shortened(lines), fix, numbers)]


def _how(cohort: Cohort) -> str:
    """In which band, and where not everything was compared at all offsets."""
    how = f" between {MATCH_BAND[0]:g} and {MATCH_BAND[1]:g} Hz, at any offset, scale and sign"
    window, most = cohort.n_times / cohort.sfreq, laid_out(cohort)
    if any(record.n_windows * window > most for record in cohort.records.values()):
        how += f"; offsets within the first {most / 60:.3g} minutes of a subject, window by window beyond"
    if len(groups_of(len(cohort))) < len(cohort):
        how += "; with so many subjects, of stretches that start at another place in the window only long ones"
    return how


def _long(cohort: Cohort, copy: Copy) -> float:
    """Seconds from which these two count as one recording: more than a window, unless there is hardly more."""
    window = cohort.n_times / cohort.sfreq
    shorter = min(cohort.records[subject].n_windows for subject in (copy.first, copy.second)) * window
    return min(max(LONG, 1.01 * window), SHARE * shorter)
