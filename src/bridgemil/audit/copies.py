"""Finding one signal under two names: windows that are the same, and recordings that overlap at any offset.

Windows are compared where random planes put them on the same sides (scale and sign do not matter). Recordings are laid
out in time and every two of them are correlated at all offsets, by phases only, so that no strong rhythm stands out.
Both look at differences of electrodes, in which the reference drops out. What stands out is compared sample by sample,
without its artefacts (see ``resemblance``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.measures import (
    MATCH_BAND,
    PersonMeasures,
    differences,
    match_bins,
    match_channels,
    spectra,
    unit_phases,
)
from bridgemil.audit.resemblance import (
    Cleaned,
    best_lag,
    referenced_to_median,
    shared,
    window_correlation,
    without_artefacts,
)
from bridgemil.cohort.cohort import Cohort

SAME = 0.95  # correlation from which two windows are one signal
WORTHWHILE = 0.5  # mean agreement of phases of two windows that are worth correlating
STANDS_OUT = 6.5  # standard deviations of a pair's correlation over all offsets
MOST_SECONDS = 1800.0  # of a person's timeline that are laid out
MOST_PAIRS = 15_000  # correlations of recordings; more people than that allows are compared in groups
MOST_CANDIDATES = 400  # pairs that are compared sample by sample
LOUD = 400  # samples over which loudness is evened out
CLIP = 4.0  # of that loudness: a pop within them counts no more than a large wave
ROOM = 400e6  # bytes for the spectra of all timelines and of groups of them
BYTES = 8  # of a phase, complex64


@dataclass(frozen=True)
class Copy:
    """Two people with the same signal.

    Parameters
    ----------
    first, second
        Subject ids.
    seconds
        How much of it is the same.
    r
        The correlation there; negative where the sign was flipped.
    offset
        Seconds by which it comes later in the second; None where windows match one by one.
    """

    first: str
    second: str
    seconds: float
    r: float
    offset: float | None

    def __str__(self) -> str:
        where = "window by window" if self.offset is None else f"{self.offset:+.2f} s apart"
        return f"{self.first} and {self.second}: {self.seconds:.0f} s are one signal ({where}; r = {self.r:+.3f})"


def same_windows(cohort: Cohort, people: dict[str, PersonMeasures]) -> list[Copy]:
    """People of whom single windows are the same.

    Parameters
    ----------
    cohort
        Whose signal.
    people
        The measures of each subject.
    """
    subjects = list(people)
    codes = np.concatenate([people[subject].codes for subject in subjects])
    sizes = [len(people[subject].codes) for subject in subjects]
    owner = np.repeat(np.arange(len(subjects)), sizes)
    window = np.concatenate([np.arange(size) for size in sizes])
    pairs = {pair for table in codes.T for pair in _equal(table, owner)}
    by_people: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in pairs:
        by_people.setdefault((int(owner[a]), int(owner[b])), []).append((int(window[a]), int(window[b])))
    copies = []
    for (a, b), rows in sorted(by_people.items()):
        r = _windows_alike(cohort, subjects[a], subjects[b], np.array(sorted(rows)))
        if len(r):
            seconds = len(r) * cohort.n_times / cohort.sfreq
            copies.append(Copy(subjects[a], subjects[b], seconds, float(np.median(r)), None))
    return copies


def _equal(table: NDArray[np.int32], owner: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Windows of two people with one code; in a crowd, each with its next few only."""
    order = np.lexsort((owner, table))
    sorted_codes, pairs = table[order], list[tuple[int, int]]()
    for step in range(1, 9):
        same = (sorted_codes[step:] == sorted_codes[:-step]) & (sorted_codes[step:] >= 0)
        if not same.any():
            break
        a, b = order[:-step][same], order[step:][same]
        apart = owner[a] != owner[b]
        pairs += zip(np.minimum(a, b)[apart].tolist(), np.maximum(a, b)[apart].tolist(), strict=True)
    return pairs


def _windows_alike(cohort: Cohort, first: str, second: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The correlations of those of these pairs of windows that are the same."""
    rows = rows[_agreement(cohort, first, second, rows) > WORTHWHILE]
    one, two = ([cohort.windows(subject)[row] for row in rows[:, side]] for side, subject in enumerate((first, second)))
    r = np.array([window_correlation(a, b, cohort.sfreq) for a, b in zip(one, two, strict=True)])
    same = np.abs(r) > SAME
    best = np.unique(rows[same][:, 0], return_index=True)[1]
    alike: NDArray[np.float64] = r[same][best]
    return alike


def _agreement(cohort: Cohort, first: str, second: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The mean agreement of phases of pairs of windows, whatever the sign: quick, and spoilt by artefacts only."""
    bins, channels = match_bins(cohort), match_channels(cohort)
    a, b = (
        unit_phases(spectra(differences(np.array(cohort.windows(subject)[rows[:, side]]), channels))[..., bins])
        for side, subject in enumerate((first, second))
    )
    agreement: NDArray[np.float64] = 2 * np.abs((a * b).sum(axis=1)) / a.shape[1]
    return agreement


def overlapping(cohort: Cohort) -> list[Copy]:
    """People whose recordings overlap in time at some offset.

    Parameters
    ----------
    cohort
        Whose signal.
    """
    copies = []
    channels = match_channels(cohort)
    for first, second, lag in _candidates(cohort):
        few = _cleaned_pair(cohort, first, second, channels)
        best = best_lag(*few, lag, cohort.sfreq)
        if best is None:
            continue
        a, b = _cleaned_pair(cohort, first, second, list(range(len(cohort.channels))))
        seconds, r = shared(a, b, best, cohort.sfreq)
        if seconds:
            copies.append(Copy(first, second, seconds, r, best / cohort.sfreq))
    return copies


def _cleaned_pair(cohort: Cohort, first: str, second: str, channels: list[int]) -> tuple[Cleaned, Cleaned]:
    one, two = (
        without_artefacts(timeline(cohort, subject, channels, reference_free=referenced_to_median), cohort.sfreq)
        for subject in (first, second)
    )
    return one, two


def laid_out(cohort: Cohort) -> float:
    """Seconds of a person's timeline that are compared at all offsets: fewer where so many people leave no room.

    Parameters
    ----------
    cohort
        Whose signal.
    """
    bins = (
        0.9 * ROOM / (_spectra_kept(len(cohort)) * BYTES)
    )  # a tenth for rounding up to a length that is quick to transform
    fitting = bins / (2 * (MATCH_BAND[1] - MATCH_BAND[0]))
    return max(min(MOST_SECONDS, fitting), cohort.n_times / cohort.sfreq)


def timeline(
    cohort: Cohort,
    subject: str,
    channels: list[int],
    seconds: float = MOST_SECONDS,
    reference_free: Callable[[NDArray[np.float32], list[int]], NDArray[np.float32]] = differences,
) -> NDArray[np.float32]:
    """A person's recordings laid out in time, one after the other; zero where no window is.

    Parameters
    ----------
    cohort, subject
        Whose signal.
    channels
        Numbers of the channels.
    seconds
        How much of it at most; a window at the least.
    reference_free
        Removes the reference: ``differences`` of neighbours, or ``referenced_to_median``.

    Returns
    -------
    ndarray, shape (n_rows, n_samples)
        What ``reference_free`` makes of these channels.
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
    begins, at, row = np.empty_like(starts), 0, 0
    for size in filter(None, cohort.records[subject].recording_windows):  # all windows of one may have been left out
        part = starts[row : row + size]
        begins[row : row + size] = part - part.min() + at
        at, row = int(begins[row : row + size].max()) + cohort.n_times, row + size
    return begins


def _candidates(cohort: Cohort) -> list[tuple[str, str, int]]:
    """Pairs of people whose timelines fit each other better at one offset than at all others; the offset in samples."""
    from scipy.fft import irfft, next_fast_len

    subjects = cohort.subjects
    groups = groups_of(len(subjects))
    phases, n, low, high = all_phases(cohort)
    short = next_fast_len(2 * high, real=True)
    sums = [phases[group[0]] if len(group) == 1 else phases[group].sum(axis=0) for group in groups]
    spectrum = np.zeros(short // 2 + 1, dtype=np.complex64)
    standing: list[tuple[float, int, int, int]] = []

    def compare(a: int, other: NDArray[np.complex64]) -> tuple[float, int]:
        """How far the best offset stands out, and that offset in samples."""
        spectrum[low:high] = np.einsum("cf,cf->f", phases[a].conj(), other)
        correlation = irfft(spectrum, short)
        size = np.abs(correlation)
        place = int(size.argmax())
        lag = place if place <= short // 2 else place - short
        return float(size[place] / max(float(correlation.std()), 1e-20)), round(lag * n / short)

    for a in range(len(subjects)):
        for group, together in zip(groups, sums, strict=True):
            later = [b for b in group if b > a]
            if not later or (len(later) == len(group) > 1 and compare(a, together)[0] < STANDS_OUT):
                continue
            for b in later:
                height, lag = compare(a, phases[b])
                if height >= STANDS_OUT:
                    standing.append((height, a, b, lag))
    standing.sort(reverse=True)
    return [(subjects[a], subjects[b], lag) for _, a, b, lag in standing[:MOST_CANDIDATES]]


def all_phases(cohort: Cohort) -> tuple[NDArray[np.complex64], int, int, int]:
    """Phases of everybody's timeline, within ``ROOM``.

    Parameters
    ----------
    cohort
        Whose signal.

    Returns
    -------
    phases : ndarray, shape (n_subjects, n_differences, high - low)
    n, low, high : int
        The length of the transform in samples, and the bins between which the phases are.
    """
    from scipy.fft import next_fast_len

    seconds = laid_out(cohort)
    longest = max(int(_begins(cohort, subject).max()) for subject in cohort.subjects) + cohort.n_times
    n = next_fast_len(2 * min(longest, max(round(seconds * cohort.sfreq), cohort.n_times)), real=True)
    low, high = (max(1, round(edge * n / cohort.sfreq)) for edge in MATCH_BAND)
    high = min(high, n // 2)
    fitting = int(ROOM / (_spectra_kept(len(cohort)) * (high - low) * BYTES))
    channels = match_channels(cohort, max(2, min(5, fitting + 1)))
    phases = np.empty((len(cohort), max(1, len(channels) - 1), high - low), dtype=np.complex64)
    for row, subject in enumerate(cohort.subjects):
        phases[row] = _timeline_phases(timeline(cohort, subject, channels, seconds), n, low, high)
    return phases, n, low, high


def groups_of(n: int) -> list[list[int]]:
    """One person a group, or more where there are too many pairs: then only longer shared stretches stand out.

    Parameters
    ----------
    n
        How many people.
    """
    size = max(1, int(np.ceil(n * n / 2 / MOST_PAIRS)))
    return [list(range(first, min(first + size, n))) for first in range(0, n, size)]


def _spectra_kept(n: int) -> int:
    """Of so many people and of their groups, if they are compared in groups."""
    groups = len(groups_of(n))
    return n + (groups if groups < n else 0)


def _timeline_phases(line: NDArray[np.float32], n: int, low: int, high: int) -> NDArray[np.complex64]:
    """Phases of a timeline whose loud stretches were made as loud as the others, so that no artefact hides the rest."""
    from scipy.fft import rfft
    from scipy.ndimage import uniform_filter1d

    loudness = np.sqrt(uniform_filter1d(line**2, min(LOUD, line.shape[1]), axis=-1, mode="nearest").clip(min=0))
    usual = np.median(loudness, axis=-1, keepdims=True)
    even = np.clip(line / np.maximum(loudness, 0.05 * usual + 1e-9), -CLIP, CLIP)
    spectrum = rfft(even, n, axis=-1)[:, low:high]
    size = np.abs(spectrum)
    phases: NDArray[np.complex64] = np.divide(spectrum, size, out=np.zeros_like(spectrum), where=size > 1e-9)
    return phases
