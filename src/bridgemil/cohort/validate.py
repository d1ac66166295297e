"""Validating recordings before anything is written: every problem at once, and how each good one is segmented."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bridgemil.cohort import channels
from bridgemil.cohort.filters import notch_end
from bridgemil.cohort.scan import FLAT_UV, RecordingScan
from bridgemil.cohort.segment import SegmentPlan, touching
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import LeftOut, Listing
from bridgemil.errors import Problem, some
from bridgemil.parallel import machine_memory

IMPLAUSIBLE_UV = 100_000.0  # no EEG and no electrode drift varies by a tenth of a volt
LOUDEST_UV = 1000.0  # nor does a recording's middle electrode vary by a millivolt, drift and mains left aside
UNIT_FACTOR = 100.0  # recordings of one cohort differ by less; a wrong unit is a factor of 1000
COPY_UV = 0.1  # a copy's samples, rounded by another format, differ by less on average


@dataclass
class ValidationReport:
    """How each good recording is segmented, what is wrong, and what the cohort's record must state."""

    channels: list[str] = field(default_factory=list)  # as the cohort names them
    plans: list[SegmentPlan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost_copies: dict[str, str] = field(default_factory=dict)  # subject with a copy to the one that keeps the recording


def validate(listing: Listing, scans: Sequence[RecordingScan], settings: PrepareSettings) -> ValidationReport:
    """The cohort's channels, a plan for every good recording, and every problem of the others.

    ``scans`` are of the recordings of ``listing``, in its order.
    """
    report = ValidationReport(problems=[*listing.problems], left_out=[*listing.left_out], notes=[*listing.notes])
    usable = [scan for scan in scans if scan.error is None]
    for scan in usable:
        _add_reference(scan, settings, report)
    report.problems += [scan.problem(scan.error) for scan in scans if scan.error]
    refused = _duplicates(usable, listing, settings, report)
    levels = [scan.amplitude for scan in usable if 0 < scan.amplitude <= LOUDEST_UV]
    usual = float(np.median(levels)) if len(levels) > 2 else 0.0
    for scan in usable:
        found = _unusable(scan, settings) + _wrong_unit(scan, usual)
        report.problems += map(scan.problem, found)
        if found:
            refused.add(id(scan))
    usable = [scan for scan in usable if id(scan) not in refused]
    while True:  # who is refused does not decide on the channels
        keep = _choose_channels(usable, settings)
        refusals = {id(scan): _refusals(scan, keep, settings) for scan in usable}
        report.problems += [scan.problem(what) for scan in usable for what in refusals[id(scan)]]
        if not any(refusals.values()):
            break
        usable = [scan for scan in usable if not refusals[id(scan)]]
    _list_channels(usable, keep, settings, report)
    report.channels = channels.display(keep, usable[0].spellings.values()) if usable else []
    if settings.channels is not None:
        report.channels = list(settings.channels)
    report.plans = [_plan(scan, keep, settings, report) for scan in usable if keep]
    _note_references(listing, usable, settings, report)
    _subjects_left(listing, scans, report)
    return report


def _add_reference(scan: RecordingScan, settings: PrepareSettings, report: ValidationReport) -> None:
    """Add the electrode that is itself the reference, by the user's word or the sidecar's."""
    name = settings.recorded_reference or channels.reference_electrode(scan.stated_reference or "")
    if name is not None and not scan.add_reference(name) and settings.recorded_reference:
        what = f"{scan.recording.subject}, {scan.recording.name}: {name} is not flat, so it is not the reference"
        report.notes.append(f"{what}; used as recorded")


def _choose_channels(usable: Sequence[RecordingScan], settings: PrepareSettings) -> list[str]:
    """The channels of the cohort: those asked for, or the scalp electrodes that all recordings share."""
    if settings.channels is not None:
        return [channels.key(name) for name in settings.channels]
    electrodes = [{c for c in _present(scan, settings) if channels.electrode(c)} for scan in usable]
    shared = set.intersection(*electrodes) if electrodes else set()
    sole = {channels.key(name) for name in settings.reference} if len(settings.reference) == 1 else set()
    return channels.order(shared - sole)  # a sole reference would be zero against itself


def _present(scan: RecordingScan, settings: PrepareSettings) -> set[str]:
    """The channels that a recording can give."""
    return set(scan.spellings) - set(scan.ambiguous) - set(scan.bad if settings.bad_channels == "drop" else ())


def _list_channels(
    usable: Sequence[RecordingScan], keep: Sequence[str], settings: PrepareSettings, report: ValidationReport
) -> None:
    """List the channels that the cohort does not have, and why; none at all is a problem."""
    anywhere = {channel for scan in usable for channel in scan.spellings}
    references = [channels.key(name) for name in settings.reference]
    if usable and not keep:
        what = f"no scalp electrode is shared by all recordings (channels seen: {some(sorted(anywhere), 12)})"
        report.problems.append(Problem(f"{what}; name the ones to keep with --channels"))
    for channel in channels.order(anywhere - set(keep)):
        having = [scan.recording.subject for scan in usable if channel in _present(scan, settings)]
        if settings.channels is not None:
            why = "not among the channels asked for"
        elif channel in references:
            why = "the reference"
        elif channels.electrode(channel) is None:
            why = "no scalp electrode"
        else:
            lacking = sorted({scan.recording.subject for scan in usable} - set(having))
            why = f"not usable in every recording (lacking in {some(lacking, 5)})"
        name = next(scan.spellings[channel] for scan in usable if channel in scan.spellings)
        report.left_out.append(LeftOut(f"channel {name}", f"{why}; in {len(having)} of {len(usable)} recordings"))
    typed = sorted({name for scan in usable for name in scan.other if name not in scan.spellings.values()})
    report.left_out += [LeftOut(f"channel {name}", "not of type EEG") for name in typed]


def _unusable(scan: RecordingScan, settings: PrepareSettings) -> list[str]:
    """Why this recording cannot be used, whatever the channels."""
    found = []
    for name in () if settings.reference == ("average",) else settings.reference:
        channel = channels.key(name)
        if channel not in scan.spellings:
            found.append(f"has no reference channel {name} (it has {', '.join(scan.spellings.values())})")
        elif channel in scan.ambiguous:
            found.append(f"reference {name} is there more than once: {', '.join(scan.ambiguous[channel])}")
        elif channel in scan.bad:
            found.append(f"reference {name} {scan.bad[channel]}")
    n_times = round(scan.n_times * settings.sfreq / scan.sfreq)
    n_windows = max(0, n_times - settings.window_samples) // settings.step_samples + 1
    needed = 4 * max(n_windows * settings.window_samples, n_times) * len(settings.channels or scan.spellings)
    if needed > (machine_memory() or math.inf):
        what = f"its windows would need {needed / 1e9:,.0f} GB of memory"
        return [*found, f"{what}: check --sfreq, --window and --overlap"]
    starts = np.arange(0, n_times - settings.window_samples + 1, settings.step_samples) / settings.sfreq
    marked = touching(starts, settings.window_seconds, scan.bad_spans)
    if len(starts) == 0:
        found.append(f"no usable window: {scan.seconds:.2f} s long, a window is {settings.window_seconds:g} s")
    elif settings.bad_annotations == "drop" and marked.all():
        found.append(f"no usable window: all {len(starts)} touch a stretch marked bad")
    return found


def _wrong_unit(scan: RecordingScan, usual: float) -> list[str]:
    """Whether a recording's amplitude is implausible, or far from the cohort's median recording (0: unknown)."""
    level = scan.amplitude
    far = usual and not usual / UNIT_FACTOR <= level <= usual * UNIT_FACTOR
    if not 0 < level <= IMPLAUSIBLE_UV or not (far or level > LOUDEST_UV):  # louder channels: see ``_refusals``
        return []
    varies = f"its electrodes vary by {float(f'{level:.2g}'):,g} µV"
    beside = f", {usual:.2g} µV is usual among the others" if usual else ""
    return [f"{varies}{beside}: is the file's unit right? (microvolts called millivolts are a factor of 1000)"]


def _refusals(scan: RecordingScan, keep: Sequence[str], settings: PrepareSettings) -> list[str]:
    """Why this recording cannot give the cohort's channels."""
    found = []
    absent = [channel for channel in keep if channel not in scan.spellings]
    silent = absent + [channel for channel in keep if "is flat" in scan.bad.get(channel, "")]
    sole = len(silent) == 1 and not scan.zero and channels.electrode(silent[0])
    option = f"; --recorded-reference {silent[0]} if it is the reference electrode" if sole else ""
    if settings.bad_channels == "drop":
        absent += [channel for channel in keep if channel in scan.bad and channel not in absent]
    if absent and not any(map(channels.electrode, scan.spellings)):
        option = "; --montage NAME, if these are names of a cap"
    if absent:
        found.append(f"missing electrode {', '.join(absent)} (it has {', '.join(scan.spellings.values())}{option})")
    for channel in keep:
        if channel in scan.ambiguous:
            found.append(f"electrode {channel} is there more than once: {', '.join(scan.ambiguous[channel])}")
        if channel in scan.bad and settings.bad_channels == "stop":
            hint = f"see --bad-channels{option if channel in silent else ''}"
            found.append(f"channel {scan.spellings[channel]} {scan.bad[channel]} ({hint})")
    if settings.bad_channels == "interpolate" and any(c in scan.bad for c in keep):
        good = [c for c in scan.spellings if c not in scan.bad and channels.electrode(c)]
        unplaced = [c for c in keep if c in scan.bad and channels.electrode(c) is None]
        if unplaced or len(good) < 4:
            found.append(f"cannot interpolate {', '.join(unplaced) or 'with fewer than 4 good electrodes'}")
    loud = [scan.spellings[c] for c in keep if c not in scan.bad and not scan.std.get(c, 0) <= IMPLAUSIBLE_UV]  # NaN
    if loud:
        limit = f"{IMPLAUSIBLE_UV / 1000:g} mV"
        found.append(f"channel {', '.join(loud)} varies by more than {limit}: is the file's unit right?")
    nyquist = scan.native_rate(keep) / 2
    if settings.low is not None and settings.low >= nyquist:
        found.append(f"the high-pass edge {settings.low:g} Hz is at or beyond its Nyquist, {nyquist:g} Hz")
    beyond = [edge for edge in (settings.high, *map(notch_end, settings.notch)) if edge is not None and edge >= nyquist]
    if beyond and not settings.allow_low_rate:
        found.append(
            f"sampled at {2 * nyquist:g} Hz: a filter edge of {max(beyond):g} Hz is at or beyond its Nyquist, "
            f"{nyquist:g} Hz; lower --high, or pass --allow-low-rate to leave that filter out"
        )
    return found


def _plan(scan: RecordingScan, keep: Sequence[str], settings: PrepareSettings, report: ValidationReport) -> SegmentPlan:
    name = f"{scan.recording.subject}, {scan.recording.name}"
    interpolate = tuple(channel for channel in keep if channel in scan.bad)
    good = {c: n for c, n in scan.spellings.items() if c not in scan.bad and c not in scan.ambiguous}
    supports = {c: n for c, n in good.items() if interpolate and c not in keep and channels.electrode(c)}
    nyquist = scan.native_rate(keep) / 2
    notch = tuple(frequency for frequency in settings.notch if notch_end(frequency) < nyquist)
    high = settings.high if settings.high is None or settings.high < nyquist else None
    if high != settings.high or notch != settings.notch:
        left_out = f"filters at or beyond {nyquist:g} Hz were left out"
        report.notes.append(f"{name}: sampled at {2 * nyquist:g} Hz; {left_out}")
    report.notes += [f"{name}: {channel} {scan.bad[channel]}; interpolated" for channel in interpolate]
    spellings = {channel: scan.spellings[channel] for channel in keep}
    zero = scan.spellings[scan.zero] if scan.zero else None
    references = tuple(scan.spellings[channels.key(one)] for one in settings.reference if one != "average")
    return SegmentPlan(scan.recording, settings, spellings, interpolate, supports, references, high, notch, zero)


def _note_references(
    listing: Listing, usable: Sequence[RecordingScan], settings: PrepareSettings, report: ValidationReport
) -> None:
    """A note if the recordings were made with different references, by their channels' names, and keep them."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # by reference: recordings of each class
    for scan in usable:
        names = {channels.reference_name(word) or word for word in scan.reference.split("+")}
        reference = "+".join(sorted(names)) or "none named"
        counts[reference][listing.labels[scan.recording.subject] or "recordings"] += 1
    if len(counts) < 2 or settings.reference:
        return
    each = (f"{name} ({', '.join(f'{n} {label}' for label, n in sorted(own.items()))})" for name, own in counts.items())
    different = "by their channels' names the recordings have different references"
    report.notes.append(f"{different}: {', '.join(sorted(each))}; --reference average makes them alike")


def _duplicates(
    usable: Sequence[RecordingScan], listing: Listing, settings: PrepareSettings, report: ValidationReport
) -> set[int]:
    """Find recordings that are one and the same, by bytes or by samples; return the ones not to be used.

    Of copies within one subject the first is good; copies in two subjects are all refused, since nobody can tell
    whose they are. With ``keep-first`` the first of copies with one label is kept and the others are listed: whoever
    it is, the label is right. Copies with two labels are always refused.
    """
    pairs, refused, label = list[tuple[RecordingScan, RecordingScan, str]](), set[int](), listing.labels
    groups: dict[tuple[int, float], list[RecordingScan]] = defaultdict(list)
    for scan in usable:
        group = groups[scan.n_times, scan.sfreq]
        copies = ((earlier, scan, how) for earlier in group if (how := _how_alike(earlier, scan)))
        pairs += itertools.islice(copies, 1)
        group.append(scan)
    differ = {id(b): label[a.recording.subject] != label[b.recording.subject] for a, b, _ in pairs}
    unclear = {id(first) for first, second, _ in pairs if differ[id(second)]}
    for first, second, how in pairs:
        original, copy = first.recording, second.recording
        whose = "the same subject" if original.subject == copy.subject else original.subject
        same = f"{how} identical to {original.name} of {whose}"
        refused.add(id(second))
        if settings.duplicates == "keep-first" and id(first) not in unclear:
            report.left_out.append(LeftOut(f"{copy.subject}, {copy.name}", f"{same}, which is kept"))
            report.lost_copies[copy.subject] = original.subject
            continue
        if original.subject != copy.subject and id(first) not in refused:
            refused.add(id(first))
            report.problems.append(first.problem(f"duplicate: {copy.name} of {copy.subject} is the same recording"))
        advice = " (--duplicates keep-first keeps one)" if settings.duplicates == "stop" else ""
        advice = ", which has another label" if differ[id(second)] else advice
        report.problems.append(second.problem(f"duplicate: {same}{advice}"))
    return refused


def _how_alike(earlier: RecordingScan, later: RecordingScan) -> str:
    """How two recordings are identical: by bytes, or by samples on every channel they share; '' if they are not.

    Samples are compared at 256 places of each channel: their difference must be rounding (``COPY_UV``, or a thousandth
    of the channel's spread). A copy stored in another format still matches, two different recordings never do.
    """
    if earlier.sha256 == later.sha256:
        return "byte for byte"
    shared = [c for c in later.fingerprint if c in earlier.fingerprint and later.std[c] >= FLAT_UV]
    same = shared and all(_same_samples(earlier, later, channel) for channel in shared)
    return "sample for sample" if same else ""


def _same_samples(earlier: RecordingScan, later: RecordingScan, channel: str) -> bool:
    """Whether a channel of two recordings differs by no more than rounding, at the places of the fingerprint."""
    first, second = earlier.fingerprint[channel], later.fingerprint[channel]
    allowed = min(max(COPY_UV, 1e-3 * later.std[channel]), 0.2 * later.std[channel])
    if abs(first[0] - second[0]) > allowed * len(first) ** 0.5:  # one number rules nearly every pair out
        return False
    return bool(np.sqrt(np.mean((first - second) ** 2)) <= allowed)


def _subjects_left(listing: Listing, scans: Sequence[RecordingScan], report: ValidationReport) -> None:
    """Problems of whole subjects and classes."""
    planned = {plan.recording.subject for plan in report.plans}
    with_files = {scan.recording.subject for scan in scans}
    explained = {problem.subject for problem in report.problems}
    gone = with_files - planned - explained
    lost = sorted(gone - set(report.lost_copies))
    report.problems += [Problem("no usable recording is left", subject) for subject in lost]
    _note_copies(gone, report)
    folded: dict[str, str] = {}
    for subject in sorted(planned):
        twin = folded.setdefault(subject.lower(), subject)
        if twin != subject:
            report.plans = [plan for plan in report.plans if plan.recording.subject != subject]
            what = f"differs from {twin!r} only in capitals; some file systems cannot tell"
            report.problems.append(Problem(what, subject))


def _note_copies(gone: set[str], report: ValidationReport) -> None:
    """Say which of two ids with the same recording is kept, and why."""
    label = "both have the same label, and one person in two folds leaks test data into training"
    for subject, kept in sorted(report.lost_copies.items()):
        if subject in gone:
            why = f"its recordings are identical to those of {kept}, which is kept"
            report.left_out.append(LeftOut(subject, why))
            report.notes.append(f"{subject} is left out: {why} as the first of the two ids; {label}")
        elif subject != kept:
            same = f"{subject} and {kept} share a recording, which is kept with {kept}; are they one person?"
            report.notes.append(f"{same} Then give them one name in a column and use --groups COLUMN")
