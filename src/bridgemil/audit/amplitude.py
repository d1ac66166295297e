"""Are the amplitudes those of scalp EEG in microvolts?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.cohort import Cohort

NAME = "amplitude"
# Scalp EEG after a high-pass has a standard deviation of 5 to 50 µV (adftd-300s: 27 to 45, eegmat-rest: 7 to 16; slow
# waves of deep sleep about 60). Below 0.5 µV is the noise of amplifiers. Normalised arrays (1) are left alone.
LEAST, MOST = 0.5, 100.0
FACTOR = 10.0  # of a subject's amplitude and the cohort's: people differ by a factor of 2 to 3, units by 1000


def channel_sd(cohort: Cohort) -> NDArray[np.float64]:
    """The standard deviation of each subject's median channel, in microvolts; no signal is read.

    Parameters
    ----------
    cohort
        Whose signal.
    """
    records = cohort.records.values()
    return np.array(
        [np.sqrt(np.median(r.centred_squares) / max(r.n_windows * cohort.n_times, 1)) for r in records],
        dtype=np.float64,
    )


def implausible(median_sd: float) -> str:
    """What is wrong with a cohort's amplitude; empty where nothing is.

    Parameters
    ----------
    median_sd
        Over subjects, in microvolts.
    """
    if LEAST <= median_sd <= MOST:
        return ""
    return (
        f"Implausible amplitudes: the median channel has a standard deviation of {median_sd:.3g} µV, scalp EEG has "
        "5 to 50. The unit or the gain is likely wrong"
    )


def check(inputs: AuditInput) -> list[Finding]:
    """Compare standard deviations with those of scalp EEG, and those of single subjects with the cohort's."""
    cohort = inputs.cohort
    sd = channel_sd(cohort)
    peaks = np.array([inputs.measures.people[subject].peak for subject in cohort.subjects])
    middle, peak = float(np.median(sd)), float(np.median(peaks))
    different = np.flatnonzero((sd > FACTOR * middle) | (sd < middle / FACTOR))
    numbers = {"median_sd": middle, "median_peak": peak, "subjects": [cohort.subjects[i] for i in different]}
    summary = f"median SD {middle:.3g} µV (subjects {sd.min():.3g} to {sd.max():.3g}), median peak {peak:.3g} µV"
    lines = [f"{cohort.subjects[i]}: SD {sd[i]:.3g} µV, peak {peaks[i]:.3g} µV" for i in different]
    wrong = implausible(middle)
    if not wrong and not lines:
        return [Finding(NAME, "PASS", f"Amplitudes are those of scalp EEG ({summary}).", numbers=numbers)]
    message = (
        f"{len(lines)} subjects have more than {FACTOR:g} times or less than 1/{FACTOR:g} of the cohort's amplitude. "
        "Their unit or gain is likely wrong."
    )
    fix = (
        "compare the unit and the gain in the recordings (physical minimum and maximum of EDF, `units` in "
        "channels.tsv, the amplifier's gain) with the data set's description, correct them, and prepare again"
    )
    message = f"{wrong}." if wrong else message
    return [Finding(NAME, "WARN", message, (summary, *shortened(lines)), fix, numbers)]
