"""Were the subjects recorded with different low-pass filters?

A filter of the amplifier or of an earlier cleaning leaves an edge in the spectrum. Where one part of the cohort has it
and the other has not, a network can learn it; inside one class, no rank of any amplitude shows it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding
from bridgemil.audit.inputs import AuditInput

Floats = NDArray[np.float64]

NAME = "filter_edges"
FIRST, LAST = 15, 45  # Hz: below is alpha, above are the mains
BELOW, GAP, ABOVE = 3, 4, 3  # Hz on either side of an edge that are compared, and between them
# A low-pass of fourth order falls by 8.5 dB from 25 to 32 Hz. Without one, halves of a cohort differ by up to 3.4 dB
# (adftd-300s, eegmat-rest), and uncleaned muscle activity spreads widely but has one mode.
APART = 6.0  # dB between the means of two groups
# Ashman's D: distance of the means in standard deviations within groups. Halves of a Gaussian have 2.6, of a uniform
# distribution 3.5.
BIMODAL = 4.0
FEWEST, SHARE = 3, 0.05  # subjects in the smaller group: so many, and this share
MOST_NAMES = 12


def check(inputs: AuditInput) -> list[Finding]:
    """Look for two groups of subjects by how much the spectrum drops within a few Hz."""
    cohort = inputs.cohort
    spectra = np.stack([inputs.measures.people[subject].spectrum for subject in cohort.subjects]).astype(np.float64)
    top = min(LAST, inputs.measures.top)
    drops = _drops(spectra, np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq), top)
    if not drops or len(cohort) < 2 * FEWEST:
        message = (
            f"Needs {2 * FEWEST} subjects and a spectrum above {FIRST + BELOW + GAP + ABOVE} Hz (it ends at {top:g})."
        )
        return [Finding(NAME, "SKIP", message)]
    found = {edge: split for edge, values in drops.items() if (split := two_groups(values)) is not None}
    if not found:
        message = f"The spectra have no filter edge that divides the subjects (between {FIRST} and {top:g} Hz)."
        return [Finding(NAME, "PASS", message)]
    edge = max(found, key=lambda at: abs(_difference(drops[at], found[at])))
    return [_two_filters(inputs, edge, drops[edge], drops[edge] >= found[edge])]


def _two_filters(inputs: AuditInput, edge: int, drop: Floats, steep: NDArray[np.bool_]) -> Finding:
    cohort = inputs.cohort
    groups, evidence = {}, []
    for name, members in (("filtered", steep), ("others", ~steep)):
        groups[name] = [s for s, inside in zip(cohort.subjects, members, strict=True) if inside]
        counts = Counter(cohort.records[s].label for s in groups[name])
        classes = ", ".join(f"{counts[label]} {label}" for label in cohort.classes) or "no labels"
        more = f" and {len(groups[name]) - MOST_NAMES} more" if len(groups[name]) > MOST_NAMES else ""
        names = ", ".join(groups[name][:MOST_NAMES]) + more
        evidence.append(f"mean drop {drop[members].mean():.1f} dB: {len(groups[name])} subjects ({classes}): {names}")
    message = (
        f"Two acquisition filters: from {edge - BELOW}-{edge} to {edge + GAP}-{edge + GAP + ABOVE} Hz the power of "
        f"{len(groups['filtered'])} subjects drops by {drop[steep].mean():.0f} dB, of {len(groups['others'])} by "
        f"{drop[~steep].mean():.0f} dB."
    )
    fix = (
        f"prepare again with a common low-pass below the edge (`--high {edge - BELOW}`), or leave one of the groups out"
    )
    numbers = {"edge": edge, "groups": groups, "difference_db": float(drop[steep].mean() - drop[~steep].mean())}
    return Finding(NAME, "WARN", message, tuple(evidence), fix, numbers)


def _drops(spectra: Floats, frequencies: NDArray[np.floating], top: float) -> dict[int, Floats]:
    """By the edge in Hz, the drop of each subject's spectrum across it in dB."""
    drops = {}
    for edge in range(FIRST + BELOW, int(top) - GAP - ABOVE + 1):
        below = (frequencies >= edge - BELOW) & (frequencies < edge)
        above = (frequencies >= edge + GAP) & (frequencies < edge + GAP + ABOVE)
        if below.any() and above.any():
            drops[edge] = spectra[:, below].mean(axis=1) - spectra[:, above].mean(axis=1)
    return drops


def two_groups(values: Floats) -> float | None:
    """The least value of the upper of two groups that are apart; None where there are no two.

    The split is Otsu's: the one with the largest variance between the groups.

    Parameters
    ----------
    values
        One per subject, in dB.
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


def _difference(values: Floats, split: float) -> float:
    return float(values[values >= split].mean() - values[values < split].mean())
