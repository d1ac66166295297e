"""Are amplitudes those of scalp EEG in microvolts, and were all subjects recorded with one low-pass filter?

A filter of the amplifier or of earlier preprocessing leaves an edge in the spectrum. A network can learn it where only
some of the subjects have it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.audit.measures import held_top
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import some

Floats = NDArray[np.float64]

# Scalp EEG after a high-pass has a standard deviation of 5 to 50 µV (adftd-300s: 27 to 45, eegmat-rest: 7 to 16; slow
# waves of deep sleep about 60). Below 0.5 µV is amplifier noise. Normalised arrays (1) do not warn.
LEAST, MOST = 0.5, 100.0
FACTOR = 10.0  # of a subject's amplitude and the cohort's: subjects differ by a factor of 2 to 3, units by 1000
FIRST, LAST = 15, 45  # Hz: below is alpha, above is line noise
BELOW, GAP, ABOVE = 3, 4, 3  # Hz on either side of an edge that are compared, and between them
# A low-pass of fourth order falls by 8.5 dB from 25 to 32 Hz. Without one, halves of a cohort differ by up to 3.4 dB
# (adftd-300s, eegmat-rest), and uncleaned muscle activity has one wide mode.
APART = 6.0  # dB between the means of two groups
# Ashman's D: distance of the means in standard deviations within groups. Halves of a Gaussian have 2.6, of a uniform
# distribution 3.5.
BIMODAL = 4.0
FEWEST, SHARE = 3, 0.05  # subjects in the smaller group: this number, and this share
MOST_NAMES = 12


def check(inputs: AuditInput) -> list[Finding]:
    """Compare amplitudes with those of scalp EEG and of the cohort, and look for two groups of spectra."""
    return [_amplitude(inputs), _filter_edges(inputs)]


def channel_sd(cohort: Cohort) -> Floats:
    """The standard deviation of each subject's median channel, in microvolts, shape (n_subjects,); reads no signal."""
    records = cohort.records.values()
    return np.array([np.sqrt(np.median(r.centred_squares) / max(r.n_windows * cohort.n_times, 1)) for r in records])


def implausible(median_sd: float) -> str:
    """A sentence if the median standard deviation over subjects, in microvolts, is not that of EEG; else empty."""
    if LEAST <= median_sd <= MOST:
        return ""
    return (
        f"Implausible amplitudes: the median channel has a standard deviation of {median_sd:.3g} µV, scalp EEG has "
        "5 to 50. The unit or the gain is likely wrong"
    )


def _amplitude(inputs: AuditInput) -> Finding:
    cohort = inputs.cohort
    sd = channel_sd(cohort)
    peaks = np.array([inputs.measures[subject].peak for subject in cohort.subjects])
    middle, peak = float(np.median(sd)), float(np.median(peaks))
    different = np.flatnonzero((sd > FACTOR * middle) | (sd < middle / FACTOR))
    numbers = {"median_sd": middle, "median_peak": peak, "subjects": [cohort.subjects[i] for i in different]}
    summary = f"median SD {middle:.3g} µV (subjects {sd.min():.3g} to {sd.max():.3g}), median peak {peak:.3g} µV"
    lines = [f"{cohort.subjects[i]}: SD {sd[i]:.3g} µV, peak {peaks[i]:.3g} µV" for i in different]
    wrong = implausible(middle)
    if not wrong and not lines:
        return Finding("amplitude", "PASS", f"Amplitudes are those of scalp EEG ({summary}).", numbers=numbers)
    message = f"{wrong}." if wrong else (
        f"{len(lines)} subjects have more than {FACTOR:g} times or less than 1/{FACTOR:g} of the cohort's amplitude. "
        "Their unit or gain is likely wrong."
    )  # fmt: skip
    fix = (
        "compare the unit and the gain in the recordings (physical minimum and maximum of EDF, `units` in "
        "channels.tsv, the amplifier's gain) with the data set's description, correct them, and prepare again"
    )
    return Finding("amplitude", "WARN", message, [summary, *lines], fix, numbers)


def _filter_edges(inputs: AuditInput) -> Finding:
    """Look for two groups of subjects by how much the spectrum drops within a few Hz."""
    cohort, measures = inputs.cohort, inputs.measures
    spectra = np.stack([measures[subject].spectrum for subject in cohort.subjects]).astype(np.float64)
    top = min(LAST, held_top(cohort))
    frequencies, drops = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq), dict[int, Floats]()
    for edge in range(FIRST + BELOW, int(top) - GAP - ABOVE + 1):  # the drop of each subject's spectrum across it in dB
        below = (frequencies >= edge - BELOW) & (frequencies < edge)
        above = (frequencies >= edge + GAP) & (frequencies < edge + GAP + ABOVE)
        if below.any() and above.any():
            drops[edge] = spectra[:, below].mean(axis=1) - spectra[:, above].mean(axis=1)
    if not drops or len(cohort) < 2 * FEWEST:
        least = FIRST + BELOW + GAP + ABOVE
        message = f"Needs {2 * FEWEST} subjects and a spectrum above {least} Hz (it ends at {top:g})."
        return Finding("filter_edges", "SKIP", message)
    steep = {edge: drop >= split for edge, drop in drops.items() if (split := two_groups(drop)) is not None}
    if not steep:
        message = f"The spectra have no filter edge that divides the subjects (between {FIRST} and {top:g} Hz)."
        return Finding("filter_edges", "PASS", message)
    differences = {edge: float(drops[edge][own].mean() - drops[edge][~own].mean()) for edge, own in steep.items()}
    edge = max(differences, key=lambda at: differences[at])
    groups, evidence, falls = {}, [], []
    for name, members in (("filtered", steep[edge]), ("others", ~steep[edge])):
        own = groups[name] = [cohort.subjects[i] for i in np.flatnonzero(members)]
        falls.append(drops[edge][members].mean())
        counts = Counter(cohort.records[s].label for s in own)
        classes = ", ".join(f"{counts[label]} {label}" for label in cohort.classes) or "no labels"
        evidence.append(f"mean drop {falls[-1]:.1f} dB: {len(own)} subjects ({classes}): {some(own, MOST_NAMES)}")
    message = (
        f"Two acquisition filters: from {edge - BELOW}-{edge} to {edge + GAP}-{edge + GAP + ABOVE} Hz the power of "
        f"{len(groups['filtered'])} subjects drops by {falls[0]:.0f} dB, of {len(groups['others'])} by "
        f"{falls[1]:.0f} dB."
    )
    fix = f"prepare again with a common low-pass below the edge (`--high {edge - BELOW}`), or leave out one group"
    numbers = {"edge": edge, "groups": groups, "difference_db": differences[edge]}
    return Finding("filter_edges", "WARN", message, evidence, fix, numbers)


def two_groups(values: Floats) -> float | None:
    """The smallest of the upper of two separate groups of subjects' values, in dB; None where there is one group.

    The split is Otsu's: the one with the largest variance between the groups.
    """
    ordered, n = np.sort(values), len(values)
    fewest = max(FEWEST, int(np.ceil(SHARE * n)))
    if n < 2 * fewest:
        return None
    sizes = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(ordered)
    between = (sums[-1] - sums[sizes - 1]) / (n - sizes) - sums[sizes - 1] / sizes
    size = int(sizes[(sizes * (n - sizes) * between**2).argmax()])
    low, high = ordered[:size], ordered[size:]
    within = np.sqrt((low.var() + high.var()) / 2)
    apart = high.mean() - low.mean()
    return float(high[0]) if apart >= APART and apart >= BIMODAL * within else None
