"""Validating recordings before anything is written: every problem at once, and how each good one is segmented."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

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


def validate(
    listing: Listing, scans: Sequence[RecordingScan], settings: PrepareSettings
) -> tuple[list[str], list[SegmentPlan]]:
    """The cohort's channels, as it names them, and how each good recording is segmented.

    ``scans`` are of the recordings of ``listing``, in its order. The listing is given every problem of the others, what
    is left out, and what the cohort's record must note.
    """
    usable = [scan for scan in scans if scan.error is None]
    for scan in usable:
        _add_reference(scan, settings, listing)
    listing.problems += [scan.problem(scan.error) for scan in scans if scan.error]
    refused, kept_copies = _duplicates(usable, listing, settings)
    levels = [scan.amplitude for scan in usable if 0 < scan.amplitude <= LOUDEST_UV]
    usual = float(np.median(levels)) if len(levels) > 2 else 0.0
    for scan in usable:
        if found := _unusable(scan, settings, usual):
            listing.problems += map(scan.problem, found)
            refused.add(id(scan))
    usable = [scan for scan in usable if id(scan) not in refused]
    while True:  # who is refused does not decide on the channels
        keep = _choose_channels(usable, settings)
        refusals = {id(scan): _refusals(scan, keep, settings) for scan in usable}
        listing.problems += [scan.problem(what) for scan in usable for what in refusals[id(scan)]]
        if not any(refusals.values()):
            break
        usable = [scan for scan in usable if not refusals[id(scan)]]
    _list_channels(usable, keep, settings, listing)
    plans = [_plan(scan, keep, settings, listing) for scan in usable if keep]
    _note_references(usable, settings, listing)
    twins = _subjects_left(scans, {plan.scan.recording.subject for plan in plans}, kept_copies, listing)
    named = channels.display(keep, usable[0].spellings.values() if usable else ())
    return list(settings.channels or named), [plan for plan in plans if plan.scan.recording.subject not in twins]


def _add_reference(scan: RecordingScan, settings: PrepareSettings, listing: Listing) -> None:
    """Add the electrode that is itself the reference, by the user's word or the sidecar's, as a channel of zeros."""
    name = settings.recorded_reference or channels.reference_electrode(scan.stated_reference or "")
    channel = channels.key(name or "")
    if name is None:
        return
    if channel in scan.ambiguous or scan.std.get(channel, 0.0) >= FLAT_UV:  # the file holds a signal of it
        if settings.recorded_reference:
            what = "is not flat, so it is not the reference; used as recorded"
            listing.notes.append(f"{scan.recording.subject}, {scan.recording.name}: {name} {what}")
        return
    scan.zero = channel
    scan.spellings.setdefault(channel, name)
    for part in (scan.bad, scan.rates, scan.std, scan.level, scan.fingerprint):
        part.pop(channel, None)


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
    usable: Sequence[RecordingScan], keep: Sequence[str], settings: PrepareSettings, listing: Listing
) -> None:
    """List the channels that the cohort does not have, and why; none at all is a problem."""
    anywhere = {channel for scan in usable for channel in scan.spellings}
    references = [channels.key(name) for name in settings.reference]
    if usable and not keep:
        what = f"no scalp electrode is shared by all recordings (channels seen: {some(sorted(anywhere), 12)})"
        listing.problems.append(Problem(f"{what}; name the ones to keep with --channels"))
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
        listing.left_out.append(LeftOut(f"channel {name}", f"{why}; in {len(having)} of {len(usable)} recordings"))
    typed = sorted({name for scan in usable for name in scan.other if name not in scan.spellings.values()})
    listing.left_out += [LeftOut(f"channel {name}", "not of type EEG") for name in typed]


def _unusable(scan: RecordingScan, settings: PrepareSettings, usual: float) -> list[str]:
    """Why this recording cannot be used, whatever the channels; ``usual`` is the cohort's median amplitude or 0."""
    found = []
    for name in () if settings.reference == ("average",) else settings.reference:
        channel = channels.key(name)
        if channel not in scan.spellings:
            found.append(f"has no reference channel {name} (it has {', '.join(scan.spellings.values())})")
        elif channel in scan.ambiguous:
            found.append(f"reference {name} is there more than once: {', '.join(scan.ambiguous[channel])}")
        elif channel in scan.bad:
            found.append(f"reference {name} {scan.bad[channel]}")
    level, beside = scan.amplitude, f", {usual:.2g} µV is usual among the others" if usual else ""
    far = usual and not usual / UNIT_FACTOR <= level <= usual * UNIT_FACTOR
    if 0 < level <= IMPLAUSIBLE_UV and (far or level > LOUDEST_UV):  # louder channels: see ``_refusals``
        varies = f"its electrodes vary by {float(f'{level:.2g}'):,g} µV{beside}"
        found.append(f"{varies}: is the file's unit right? (microvolts called millivolts are a factor of 1000)")
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


def _plan(scan: RecordingScan, keep: Sequence[str], settings: PrepareSettings, listing: Listing) -> SegmentPlan:
    name = f"{scan.recording.subject}, {scan.recording.name}"
    interpolate = tuple(channel for channel in keep if channel in scan.bad)
    good = {c: n for c, n in scan.spellings.items() if c not in scan.bad and c not in scan.ambiguous}
    supports = {c: n for c, n in good.items() if interpolate and c not in keep and channels.electrode(c)}
    nyquist = scan.native_rate(keep) / 2
    notch = tuple(frequency for frequency in settings.notch if notch_end(frequency) < nyquist)
    high = settings.high if settings.high is None or settings.high < nyquist else None
    if high != settings.high or notch != settings.notch:
        left_out = f"filters at or beyond {nyquist:g} Hz were left out"
        listing.notes.append(f"{name}: sampled at {2 * nyquist:g} Hz; {left_out}")
    listing.notes += [f"{name}: {channel} {scan.bad[channel]}; interpolated" for channel in interpolate]
    return SegmentPlan(
        scan,
        settings,
        spellings={channel: scan.spellings[channel] for channel in keep},
        interpolate=interpolate,
        supports=supports,
        references=tuple(scan.spellings[channels.key(one)] for one in settings.reference if one != "average"),
        high=high,
        notch=notch,
        zero=scan.spellings[scan.zero] if scan.zero else None,
    )


def _note_references(usable: Sequence[RecordingScan], settings: PrepareSettings, listing: Listing) -> None:
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
    listing.notes.append(f"{different}: {', '.join(sorted(each))}; --reference average makes them alike")


def _duplicates(
    usable: Sequence[RecordingScan], listing: Listing, settings: PrepareSettings
) -> tuple[set[int], dict[str, str]]:
    """The recordings not to be used, being the same as another by bytes or by samples; subjects with a dropped copy.

    The latter with the subject that keeps the recording.

    Of copies within one subject the first is good; copies in two subjects are all refused, since nobody can tell
    whose they are. With ``keep-first`` the first of copies with one label is kept and the others are listed: whoever
    it is, the label is right. Copies with two labels are always refused.
    """
    pairs, refused, kept_copies = list[tuple[RecordingScan, RecordingScan, str]](), set[int](), dict[str, str]()
    label = listing.labels
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
            listing.left_out.append(LeftOut(f"{copy.subject}, {copy.name}", f"{same}, which is kept"))
            kept_copies[copy.subject] = original.subject
            continue
        if original.subject != copy.subject and id(first) not in refused:
            refused.add(id(first))
            listing.problems.append(first.problem(f"duplicate: {copy.name} of {copy.subject} is the same recording"))
        advice = " (--duplicates keep-first keeps one)" if settings.duplicates == "stop" else ""
        advice = ", which has another label" if differ[id(second)] else advice
        listing.problems.append(second.problem(f"duplicate: {same}{advice}"))
    return refused, kept_copies


def _how_alike(earlier: RecordingScan, later: RecordingScan) -> str:
    """How two recordings are identical: by bytes, or by samples on every channel they share; '' if they are not.

    Samples are compared at 256 places of each channel: their difference must be rounding (``COPY_UV``, or a thousandth
    of the channel's spread). A copy stored in another format still matches, two different recordings never do.
    """
    if earlier.sha256 == later.sha256:
        return "byte for byte"
    shared = [c for c in later.fingerprint if c in earlier.fingerprint and later.std[c] >= FLAT_UV]
    for channel in shared:
        first, second, spread = earlier.fingerprint[channel], later.fingerprint[channel], later.std[channel]
        allowed = min(max(COPY_UV, 1e-3 * spread), 0.2 * spread)
        if abs(first[0] - second[0]) > allowed * len(first) ** 0.5:  # one number rules nearly every pair out
            return ""
        if not np.sqrt(np.mean((first - second) ** 2)) <= allowed:
            return ""
    return "sample for sample" if shared else ""


def _subjects_left(
    scans: Sequence[RecordingScan], planned: set[str], kept_copies: Mapping[str, str], listing: Listing
) -> set[str]:
    """State what became of whole subjects: who lost all recordings, whose are kept under another id, twins.

    Returns the subjects that cannot be used since their names differ from another only in capitals.
    """
    explained = {problem.subject for problem in listing.problems}
    gone = {scan.recording.subject for scan in scans} - planned - explained
    lost = sorted(gone - set(kept_copies))
    listing.problems += [Problem("no usable recording is left", subject) for subject in lost]
    for subject, kept in sorted(kept_copies.items()):
        if subject in gone:
            why = f"its recordings are identical to those of {kept}, which is kept"
            label = "both have the same label, and one person in two folds leaks test data into training"
            listing.left_out.append(LeftOut(subject, why))
            listing.notes.append(f"{subject} is left out: {why} as the first of the two ids; {label}")
        elif subject != kept:
            same = f"{subject} and {kept} share a recording, which is kept with {kept}; are they one person?"
            listing.notes.append(f"{same} Then give them one name in a column and use --groups COLUMN")
    first: dict[str, str] = {}
    twins = {subject for subject in sorted(planned) if first.setdefault(subject.lower(), subject) != subject}
    for subject in sorted(twins):
        what = f"differs from {first[subject.lower()]!r} only in capitals; some file systems cannot tell"
        listing.problems.append(Problem(what, subject))
    return twins
