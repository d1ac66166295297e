"""Are there duplicate signals across subjects: equal windows, or recordings that overlap at any offset?

Windows are compared if their hash codes agree, which do not depend on scale and sign. Recordings are laid out in time,
and every two of them are correlated at all offsets, by phases only, so that no strong rhythm dominates. Both use
differences of electrodes, which do not depend on the reference. Candidates are compared sample by sample, without their
artefacts (see ``resemblance``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.audit.measures import MATCH_BAND, MOST_MATCH_CHANNELS, SubjectMeasures, WindowHash, differences, spectra
from bridgemil.audit.resemblance import (
    Cleaned,
    best_lag,
    referenced_to_median,
    shared,
    window_correlation,
    without_artefacts,
)
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.signal import evenly

NAME = "same_signal"
# A calibration pulse or an artefact may fill one window of two recordings, but hardly three seconds of them.
LONG, SHARE = 3.0, 0.75  # seconds in common from which it is a FAIL; of shorter recordings, this share
SAME = 0.95  # correlation from which two windows are one signal
WORTHWHILE = 0.5  # mean agreement of phases of two windows that are worth correlating
STANDS_OUT = 6.5  # standard deviations of a pair's correlation over all offsets
MOST_SECONDS = 1800.0  # of a subject's timeline
MOST_CANDIDATES = 400  # pairs that are compared sample by sample
LOUD = 400  # samples over which the amplitude is normalised
CLIP = 4.0  # of that amplitude: a pop within them has no more weight than a large wave
ROOM = 400e6  # bytes for the spectra of all timelines
BYTES = 8  # of a phase, complex64
# Measured by benchmarks/copy_limits.py on adftd-300s.
LIMITS = (
    "Not detected: shared stretches under about 12 s in 300 s that start at another place in the window, a sampling "
    "rate that is wrong by 2.4 %, time reversal, most channels replaced, and copies after a narrow band-pass."
)


def check(inputs: AuditInput) -> list[Finding]:
    """Look for windows and stretches that two subjects share, whatever their scale, sign or offset."""
    cohort = inputs.cohort
    by_pair: dict[tuple[str, str], Copy] = {}
    for copy in [*overlapping(cohort), *same_windows(cohort, inputs.measures)]:
        earlier = by_pair.setdefault((copy.first, copy.second), copy)
        if copy.seconds > 1.5 * earlier.seconds:
            by_pair[copy.first, copy.second] = copy
    n_pairs = len(cohort) * (len(cohort) - 1) // 2
    if not by_pair:
        message = f"No duplicate signals across subjects ({n_pairs} pairs compared{_how(cohort)}). {LIMITS}"
        return [Finding(NAME, "PASS", message, numbers={"pairs": n_pairs, "copies": []})]
    copies = sorted(by_pair.values(), key=lambda copy: -copy.seconds)
    lines = [f"{c} [{cohort.records[c.first].label} / {cohort.records[c.second].label}]" for c in copies]
    long = [copy for copy in copies if copy.seconds >= _long(cohort, copy)]
    subjects = sorted({subject for copy in long or copies for subject in (copy.first, copy.second)})
    numbers, n = {"subjects": subjects, "copies": [vars(copy) for copy in copies]}, len(subjects)
    if long:
        message = f"{n} subjects share signal with another subject, which leaks test data into training when split"
        fix = "find out whose signal it is, remove or merge these subjects (one subject per person), and prepare again"
        return [Finding(NAME, "FAIL", f"{message} across folds.", lines, fix, numbers)]
    fix = (
        "look at these windows in the recordings: mark calibration signals and artefacts as BAD and prepare again; "
        "if they are EEG, find out whose, and keep one of the subjects"
    )
    message = f"{n} subjects share under {LONG:g} s of signal with another subject."
    return [Finding(NAME, "WARN", message, lines, fix, numbers)]


def _how(cohort: Cohort) -> str:
    """The band, and where not everything was compared at all offsets."""
    how = f" between {MATCH_BAND[0]:g} and {MATCH_BAND[1]:g} Hz, at any offset, scale and sign"
    most = laid_out(cohort)
    if any(record.n_windows * cohort.n_times / cohort.sfreq > most for record in cohort.records.values()):
        how += f"; offsets within the first {most / 60:.3g} minutes of a subject, window by window beyond"
    return how


def _long(cohort: Cohort, copy: Copy) -> float:
    """Seconds from which a copy is a FAIL: more than a window, unless the recording has hardly more."""
    window = cohort.n_times / cohort.sfreq
    shorter = min(cohort.records[subject].n_windows for subject in (copy.first, copy.second)) * window
    return min(max(LONG, 1.01 * window), SHARE * shorter)


@dataclass(frozen=True)
class Copy:
    """Two subjects with the same signal."""

    first: str
    second: str
    seconds: float  # that are the same
    r: float  # the correlation there; negative where the sign was flipped
    offset: float | None  # seconds by which it is later in the second; None where windows match one by one

    def __str__(self) -> str:
        where = "window by window" if self.offset is None else f"{self.offset:+.2f} s apart"
        return f"{self.first} and {self.second}: {self.seconds:.0f} s are one signal ({where}; r = {self.r:+.3f})"


def same_windows(cohort: Cohort, measures: dict[str, SubjectMeasures]) -> list[Copy]:
    """Pairs of subjects with equal windows."""
    import pandas as pd

    subjects, codes = list(measures), [one.codes for one in measures.values()]
    owner = np.repeat(np.arange(len(subjects)), list(map(len, codes)))
    window = np.concatenate([np.arange(len(own)) for own in codes])
    pairs = np.unique(np.concatenate([_equal(table, owner) for table in np.concatenate(codes).T]), axis=0)
    copies = []
    for _, frame in pd.DataFrame(pairs).groupby([owner[pairs[:, 0]], owner[pairs[:, 1]]]):
        rows = frame.to_numpy()
        first, second = (subjects[i] for i in owner[rows[0]])
        r = _windows_alike(cohort, first, second, window[rows])
        if len(r):
            copies.append(Copy(first, second, len(r) * cohort.n_times / cohort.sfreq, float(np.median(r)), None))
    return copies


def _equal(table: NDArray[np.int32], owner: NDArray[np.intp]) -> NDArray[np.intp]:
    """Windows of two subjects with one code (m x 2); of more than eight equal ones, each with its next eight only."""
    order, pairs = np.lexsort((owner, table)), []
    for step in range(1, 9):
        a, b = order[:-step], order[step:]
        same = (table[a] == table[b]) & (table[a] >= 0) & (owner[a] != owner[b])
        pairs.append(np.sort(np.column_stack([a[same], b[same]]), axis=1))
    return np.concatenate(pairs)


def _windows_alike(cohort: Cohort, first: str, second: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The correlations of those pairs of windows that are the same.

    Tried are pairs whose phases agree, whatever the sign: that is fast, but sensitive to artefacts.
    """
    bags, hashing = (cohort.windows(first), cohort.windows(second)), WindowHash(cohort)
    a, b = (
        hashing.phases(spectra(differences(np.array(bag[rows[:, side]]), hashing.channels)))
        for side, bag in enumerate(bags)
    )
    rows = rows[2 * np.abs((a * b).sum(axis=1)) / a.shape[1] > WORTHWHILE]
    r = np.array([window_correlation(bags[0][i], bags[1][j], cohort.sfreq) for i, j in rows])
    same = np.abs(r) > SAME
    return np.asarray(r[same][np.unique(rows[same][:, 0], return_index=True)[1]])


def overlapping(cohort: Cohort) -> list[Copy]:
    """Pairs of subjects whose recordings overlap at some offset."""

    def cleaned(most: int, subject: str) -> Cleaned:
        line = timeline(cohort, subject, evenly(n, most), reference_free=referenced_to_median)
        return without_artefacts(line, cohort.sfreq)

    copies, n, some = [], len(cohort.channels), MOST_MATCH_CHANNELS
    for first, second, lag in _candidates(cohort):
        best = best_lag(cleaned(some, first), cleaned(some, second), lag, cohort.sfreq)
        if best is None:
            continue
        seconds, r = shared(cleaned(n, first), cleaned(n, second), best, cohort.sfreq)
        if seconds:
            copies.append(Copy(first, second, seconds, r, best / cohort.sfreq))
    return copies


def laid_out(cohort: Cohort) -> float:
    """Seconds of each timeline that are compared at all offsets: fewer with many subjects, to bound the memory."""
    # A tenth is left for rounding up to a length that is fast to transform.
    bins = 0.9 * ROOM / (len(cohort) * BYTES)
    fitting = bins / (2 * (MATCH_BAND[1] - MATCH_BAND[0]))
    return max(min(MOST_SECONDS, fitting), cohort.n_times / cohort.sfreq)


def timeline(
    cohort: Cohort,
    subject: str,
    channels: NDArray[np.intp],
    seconds: float = MOST_SECONDS,
    reference_free: Callable[[NDArray[np.float32], NDArray[np.intp]], NDArray[np.float32]] = differences,
) -> NDArray[np.float32]:
    """A subject's recordings, one after the other (rows x samples, at least a window); zero where there is no window.

    The rows are what ``reference_free`` gives for these channels: ``differences``, or ``referenced_to_median``.
    """
    begins = _begins(cohort, subject)
    most = round(seconds * cohort.sfreq)
    inside = np.flatnonzero(begins + cohort.n_times <= max(most, cohort.n_times))
    bag = cohort.windows(subject)
    rows = len(reference_free(bag[0], channels))
    line = np.zeros((rows, int(begins[inside].max()) + cohort.n_times), dtype=np.float32)
    for row in inside.tolist():
        line[:, begins[row] : begins[row] + cohort.n_times] = reference_free(bag[row], channels)
    return line


def _begins(cohort: Cohort, subject: str) -> NDArray[np.int64]:
    """The sample of the timeline at which each window begins."""
    starts = np.round(cohort.window_starts(subject) * cohort.sfreq).astype(np.int64)
    begins, at = [], 0
    for part in np.split(starts, np.cumsum(cohort.records[subject].recording_windows)[:-1]):
        if len(part):  # of some recordings no window is left
            begins.append(part - part.min() + at)
            at = int(begins[-1].max()) + cohort.n_times
    return np.concatenate(begins)


def _candidates(cohort: Cohort) -> list[tuple[str, str, int]]:
    """Pairs of subjects whose timelines agree much better at one offset than at all others; the offset in samples."""
    from scipy.fft import irfft, next_fast_len

    phases, n, low, high = all_phases(cohort)
    short = next_fast_len(2 * high, real=True)
    spectrum = np.zeros(short // 2 + 1, dtype=np.complex64)
    standing: list[tuple[float, int, int, int]] = []
    for a, b in combinations(range(len(cohort)), 2):
        spectrum[low:high] = np.einsum("cf,cf->f", phases[a].conj(), phases[b])
        correlation = irfft(spectrum, short)
        size = np.abs(correlation)
        place = int(size.argmax())
        height = float(size[place] / max(float(correlation.std()), 1e-20))
        if height >= STANDS_OUT:
            lag = place if place <= short // 2 else place - short
            standing.append((height, a, b, round(lag * n / short)))
    standing.sort(reverse=True)
    return [(cohort.subjects[a], cohort.subjects[b], lag) for _, a, b, lag in standing[:MOST_CANDIDATES]]


def all_phases(cohort: Cohort) -> tuple[NDArray[np.complex64], int, int, int]:
    """Phases of all timelines (subjects x differences x bins), in at most ``ROOM`` bytes.

    With the length of the transform in samples, and the first and the last bin (exclusive).
    """
    from scipy.fft import next_fast_len

    seconds = laid_out(cohort)
    longest = max(int(_begins(cohort, subject).max()) for subject in cohort.subjects) + cohort.n_times
    n = next_fast_len(2 * min(longest, max(round(seconds * cohort.sfreq), cohort.n_times)), real=True)
    low, high = (max(1, round(edge * n / cohort.sfreq)) for edge in MATCH_BAND)
    high = min(high, n // 2)
    fitting = int(ROOM / (len(cohort) * (high - low) * BYTES))
    channels = evenly(len(cohort.channels), max(2, min(5, fitting + 1)))
    phases = np.empty((len(cohort), max(1, len(channels) - 1), high - low), dtype=np.complex64)
    for row, subject in enumerate(cohort.subjects):
        phases[row] = _timeline_phases(timeline(cohort, subject, channels, seconds), n, low, high)
    return phases, n, low, high


def _timeline_phases(line: NDArray[np.float32], n: int, low: int, high: int) -> NDArray[np.complex64]:
    """Phases of a timeline with a normalised amplitude, so that artefacts do not dominate."""
    from scipy.fft import rfft
    from scipy.ndimage import uniform_filter1d

    amplitude = np.sqrt(uniform_filter1d(line**2, min(LOUD, line.shape[1]), axis=-1, mode="nearest").clip(min=0))
    usual = np.median(amplitude, axis=-1, keepdims=True)
    even = np.clip(line / np.maximum(amplitude, 0.05 * usual + 1e-9), -CLIP, CLIP)
    spectrum = rfft(even, n, axis=-1)[:, low:high]
    size = np.abs(spectrum)
    return np.asarray(np.divide(spectrum, size, out=np.zeros_like(spectrum), where=size > 1e-9))
