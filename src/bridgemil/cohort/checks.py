"""Judging recordings before anything is written: every problem at once, and how each good recording will be cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bridgemil.cohort import channels
from bridgemil.cohort.listing import LeftOut, Listing
from bridgemil.cohort.preprocessing import Plan, touching
from bridgemil.cohort.reading import Facts
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.transform import notch_end
from bridgemil.errors import Problem
from bridgemil.parallel import machine_memory

IMPLAUSIBLE_UV = 100_000.0  # no EEG and no electrode drift varies by a tenth of a volt
LOUDEST_UV = 1000.0  # nor does a recording's middle electrode vary by a millivolt, drift and mains left aside
UNIT_FACTOR = 100.0  # recordings of one cohort differ by less; a wrong unit is a factor of 1000
COPY_UV = 0.1  # a copy's samples, rounded by another format, differ by less on average
FLAT_UV = 0.1  # a channel whose standard deviation over the recording is below this is flat


@dataclass
class Verdict:
    """What to cut, what is wrong, and what the cohort's record must say."""

    channels: list[str] = field(default_factory=list)  # as the cohort names them
    plans: list[Plan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost_copies: dict[str, str] = field(default_factory=dict)  # subject with a copy to the one that keeps the recording


def judge(listing: Listing, looked: Sequence[Facts], settings: PrepareSettings) -> Verdict:
    """Decide what can be cut, and list everything that cannot.

    Parameters
    ----------
    listing
        The recordings with their subjects and labels.
    looked
        What a first look at each showed, in the listing's order.
    settings
        How they are to be cut.

    Returns
    -------
    Verdict
        The cohort's channels, a plan for every good recording, and every problem.
    """
    verdict = Verdict(problems=list(listing.problems), left_out=list(listing.left_out), notes=list(listing.notes))
    usable = [facts for facts in looked if facts.error is None]
    verdict.problems += [_problem(facts, facts.error) for facts in looked if facts.error]
    for facts in usable:
        _find_bad_channels(facts)
    refused = _duplicates(usable, listing, settings, verdict)
    usual = _usual_level(usable)
    for facts in usable:
        found = _unusable(facts, settings) + _wrong_unit(facts, usual)
        verdict.problems += [_problem(facts, what) for what in found]
        if found:
            refused.add(id(facts))
    usable = [facts for facts in usable if id(facts) not in refused]  # what is not used has no say in the channels
    usable, keep = _settle_channels(usable, settings, verdict)
    _list_channels(usable, keep, settings, verdict)
    verdict.channels = channels.display(keep, usable[0].spellings.values()) if usable else []
    if settings.channels is not None:
        verdict.channels = list(settings.channels)
    verdict.plans = [_plan(facts, keep, settings, verdict) for facts in usable if keep]
    _note_references(listing, usable, settings, verdict)
    _subjects_left(listing, looked, verdict)
    return verdict


def _problem(facts: Facts, what: str | None) -> Problem:
    return Problem(what or "", facts.recording.subject, facts.recording.name)


def _find_bad_channels(facts: Facts) -> None:
    """Flat channels and channels with missing values are bad channels, as those marked bad are."""
    for channel, std in facts.std.items():
        if facts.non_finite[channel]:
            facts.bad.setdefault(channel, f"has {facts.non_finite[channel]} NaN or infinite samples")
        elif std < FLAT_UV:
            facts.bad.setdefault(channel, f"is flat (standard deviation {std:.3g} µV, flat is under {FLAT_UV} µV)")


def _settle_channels(usable: list[Facts], settings: PrepareSettings, verdict: Verdict) -> tuple[list[Facts], list[str]]:
    """The recordings that can be cut, and the channels that they are cut into: who is refused has no say in these."""
    while True:
        keep = _choose_channels(usable, settings)
        found = [_refusals(facts, keep, settings) for facts in usable]
        if not any(found):
            return usable, keep
        for facts, refusals in zip(usable, found, strict=True):
            verdict.problems += [_problem(facts, what) for what in refusals]
        usable = [facts for facts, refusals in zip(usable, found, strict=True) if not refusals]


def _choose_channels(usable: Sequence[Facts], settings: PrepareSettings) -> list[str]:
    """The channels of the cohort: those asked for, or the scalp electrodes that all recordings share."""
    if settings.channels is not None:
        return [channels.key(name) for name in settings.channels]
    electrodes = [{c for c in _present(facts, settings) if channels.electrode(c)} for facts in usable]
    shared = set.intersection(*electrodes) if electrodes else set()
    sole = {channels.key(name) for name in settings.reference} if len(settings.reference) == 1 else set()
    return channels.order(shared - sole)  # a sole reference would be zero against itself


def _present(facts: Facts, settings: PrepareSettings) -> set[str]:
    """The channels that a recording can give."""
    return set(facts.spellings) - set(facts.ambiguous) - set(facts.bad if settings.bad_channels == "drop" else ())


def _list_channels(usable: Sequence[Facts], keep: Sequence[str], settings: PrepareSettings, verdict: Verdict) -> None:
    """List the channels that the cohort does not have, and why; none at all is a problem."""
    present = [_present(facts, settings) for facts in usable]
    anywhere = {channel for facts in usable for channel in facts.spellings}
    if usable and not keep:
        seen = sorted(anywhere)[:12]
        what = f"no scalp electrode is shared by all recordings (channels seen: {', '.join(seen)} …)"
        verdict.problems.append(Problem(f"{what}; name the ones to keep with --channels"))
    for channel in channels.order(anywhere - set(keep)):
        having = [facts for facts, own in zip(usable, present, strict=True) if channel in own]
        lacking = sorted({facts.recording.subject for facts in usable} - {facts.recording.subject for facts in having})
        name = next(facts.spellings[channel] for facts in usable if channel in facts.spellings)
        if settings.channels is not None:
            why = "not among the channels asked for"
        elif channel in [channels.key(name) for name in settings.reference]:
            why = "the reference"
        elif channels.electrode(channel) is None:
            why = "no scalp electrode"
        else:
            why = f"not usable in every recording (lacking in {_some(lacking)})"
        verdict.left_out.append(LeftOut(f"channel {name}", f"{why}; in {len(having)} of {len(usable)} recordings"))
    typed = sorted({name for facts in usable for name in facts.other if name not in facts.spellings.values()})
    verdict.left_out += [LeftOut(f"channel {name}", "not of type EEG") for name in typed]


def _unusable(facts: Facts, settings: PrepareSettings) -> list[str]:
    """Why this recording cannot be used, whatever the channels."""
    found = []
    for name in settings.reference:
        channel = channels.key(name)
        if name == "average":
            continue
        if channel not in facts.spellings:
            found.append(f"has no reference channel {name} (it has {', '.join(facts.spellings.values())})")
        elif channel in facts.ambiguous:
            found.append(f"reference {name} is there more than once: {', '.join(facts.ambiguous[channel])}")
        elif channel in facts.bad:
            found.append(f"reference {name} {facts.bad[channel]}")
    n_times = round(facts.n_times * settings.sfreq / facts.sfreq)
    n_windows = max(0, n_times - settings.window_samples) // settings.step_samples + 1
    needed = 4 * max(n_windows * settings.window_samples, n_times) * len(settings.channels or facts.spellings)
    memory = machine_memory()
    if memory is not None and needed > memory:
        found.append(f"its windows would need {needed / 1e9:,.0f} GB of memory: check --sfreq, --window and --overlap")
        return found
    starts = np.arange(0, n_times - settings.window_samples + 1, settings.step_samples) / settings.sfreq
    marked = touching(starts, settings.window_seconds, facts.bad_spans)
    if len(starts) == 0:
        found.append(f"no usable window: {facts.seconds:.2f} s long, a window is {settings.window_seconds:g} s")
    elif settings.bad_annotations == "drop" and marked.all():
        found.append(f"no usable window: all {len(starts)} touch a stretch marked bad")
    return found


def _level(facts: Facts) -> float:
    """How much the middle one of a recording's good electrodes varies, in microvolts; 0 if it has none."""
    levels = [level for c, level in facts.level.items() if c not in facts.bad and channels.electrode(c)]
    return float(np.median(levels)) if levels else 0.0


def _usual_level(usable: Sequence[Facts]) -> float:
    """That of the cohort's middle recording, of those whose level can be; 0 if there are too few to say."""
    levels = [level for facts in usable if 0 < (level := _level(facts)) <= LOUDEST_UV]
    return float(np.median(levels)) if len(levels) > 2 else 0.0


def _wrong_unit(facts: Facts, usual: float) -> list[str]:
    """Whether a recording's level cannot be, or is far from the cohort's."""
    level = _level(facts)
    far = usual and not usual / UNIT_FACTOR <= level <= usual * UNIT_FACTOR
    if not level or not level <= IMPLAUSIBLE_UV or not (far or level > LOUDEST_UV):  # louder channels are named below
        return []
    varies = f"its electrodes vary by {float(f'{level:.2g}'):,g} µV"
    beside = f", {usual:.2g} µV is usual among the others" if usual else ""
    return [f"{varies}{beside}: is the file's unit right? (microvolts called millivolts are a factor of 1000)"]


def _refusals(facts: Facts, keep: Sequence[str], settings: PrepareSettings) -> list[str]:
    """Why this recording cannot be cut into the cohort's channels."""
    found = []
    absent = [channel for channel in keep if channel not in facts.spellings]
    if settings.bad_channels == "drop":
        absent += [channel for channel in keep if channel in facts.bad and channel not in absent]
    if absent:
        found.append(f"missing electrode {', '.join(absent)} (it has {', '.join(facts.spellings.values())})")
    for channel in keep:
        if channel in facts.ambiguous:
            found.append(f"electrode {channel} is there more than once: {', '.join(facts.ambiguous[channel])}")
        if channel in facts.bad and settings.bad_channels == "stop":
            found.append(f"channel {facts.spellings[channel]} {facts.bad[channel]} (see --bad-channels)")
    if settings.bad_channels == "interpolate" and any(c in facts.bad for c in keep):
        good = [c for c in facts.spellings if c not in facts.bad and channels.electrode(c)]
        unplaced = [c for c in keep if c in facts.bad and channels.electrode(c) is None]
        if unplaced or len(good) < 4:
            found.append(f"cannot interpolate {', '.join(unplaced) or 'with fewer than 4 good electrodes'}")
    loud = [facts.spellings[c] for c in keep if c not in facts.bad and not facts.std.get(c, 0) <= IMPLAUSIBLE_UV]  # NaN
    if loud:
        found.append(
            f"channel {', '.join(loud)} varies by more than {IMPLAUSIBLE_UV / 1000:g} mV: is the file's unit right?"
        )
    nyquist = native_rate(facts, keep) / 2
    if settings.low is not None and settings.low >= nyquist:
        found.append(f"the high-pass edge {settings.low:g} Hz is at or beyond its Nyquist, {nyquist:g} Hz")
    beyond = [edge for edge in (settings.high, *map(notch_end, settings.notch)) if edge is not None and edge >= nyquist]
    if beyond and not settings.allow_low_rate:
        found.append(
            f"sampled at {2 * nyquist:g} Hz: a filter edge of {max(beyond):g} Hz is at or beyond its Nyquist, "
            f"{nyquist:g} Hz; lower --high, or pass --allow-low-rate to leave that filter out"
        )
    return found


def native_rate(facts: Facts, keep: Iterable[str]) -> float:
    """The lowest rate, in Hz, at which one of the kept channels was recorded: a file may hold signals of several.

    Parameters
    ----------
    facts
        The recording.
    keep
        Its channels that the cohort has (see ``channels.key``).
    """
    return min((facts.rates.get(channel, facts.sfreq) for channel in keep), default=facts.sfreq)


def _plan(facts: Facts, keep: Sequence[str], settings: PrepareSettings, verdict: Verdict) -> Plan:
    interpolate = tuple(channel for channel in keep if channel in facts.bad)
    good = {c: n for c, n in facts.spellings.items() if c not in facts.bad and c not in facts.ambiguous}
    supports = {c: n for c, n in good.items() if interpolate and c not in keep and channels.electrode(c)}
    nyquist = native_rate(facts, keep) / 2
    notch = tuple(frequency for frequency in settings.notch if notch_end(frequency) < nyquist)
    high = settings.high if settings.high is None or settings.high < nyquist else None
    if high != settings.high or notch != settings.notch:
        what = f"{facts.recording.subject}, {facts.recording.name}: sampled at {2 * nyquist:g} Hz;"
        verdict.notes.append(f"{what} filters at or beyond {nyquist:g} Hz were left out")
    for channel in interpolate:
        why = facts.bad[channel]
        verdict.notes.append(f"{facts.recording.subject}, {facts.recording.name}: {channel} {why}; interpolated")
    return Plan(
        recording=facts.recording,
        settings=settings,
        spellings={channel: facts.spellings[channel] for channel in keep},
        interpolate=interpolate,
        supports=supports,
        references=tuple(facts.spellings[channels.key(name)] for name in settings.reference if name != "average"),
        high=high,
        notch=notch,
    )


def _note_references(listing: Listing, usable: Sequence[Facts], settings: PrepareSettings, verdict: Verdict) -> None:
    """Say so if recordings are kept against the different references that they were made with."""
    planned = {plan.recording for plan in verdict.plans}
    counts = Counter(
        (_reference(facts.reference) or "none named", listing.labels[facts.recording.subject] or "recordings")
        for facts in usable
        if facts.recording in planned
    )
    references = sorted({reference for reference, _ in counts})
    if len(references) < 2 or settings.reference:
        return
    each = (
        f"{reference} ({', '.join(f'{n} {label}' for (r, label), n in sorted(counts.items()) if r == reference)})"
        for reference in references
    )
    words = "by their channels' names the recordings have different references"
    verdict.notes.append(f"{words}: {', '.join(each)}; --reference average makes them alike")


def _reference(stated: str) -> str:
    """The reference in the channels' names, the same for all spellings of it; several words are of several channels."""
    return "+".join(sorted({channels.reference_name(word) or word for word in stated.split("+")}))


def _duplicates(usable: Sequence[Facts], listing: Listing, settings: PrepareSettings, verdict: Verdict) -> set[int]:
    """Find recordings that are one and the same, by bytes or by samples; return the ones not to be used.

    Of copies within one subject the first is good; copies in two subjects are all refused, since nobody can tell
    whose they are. With ``keep-first`` the first of copies with one label is kept and the others are listed: whoever
    it is, the label is right. Copies with two labels are always refused.
    """
    copies = _identical(usable)

    def labels_differ(first: Facts, second: Facts) -> bool:
        return listing.labels[first.recording.subject] != listing.labels[second.recording.subject]

    unclear = {id(first) for first, second, _ in copies if labels_differ(first, second)}
    refused: set[int] = set()
    for first, second, how in copies:
        original, copy = first.recording, second.recording
        whose = "the same subject" if original.subject == copy.subject else original.subject
        refused.add(id(second))
        if settings.duplicates == "keep-first" and id(first) not in unclear:
            why = f"{how} identical to {original.name} of {whose}, which is kept"
            verdict.left_out.append(LeftOut(f"{copy.subject}, {copy.name}", why))
            verdict.lost_copies[copy.subject] = original.subject
            continue
        if original.subject != copy.subject:
            refused.add(id(first))
        advice = ", which has another label" if labels_differ(first, second) else ""
        if settings.duplicates == "stop" and not advice:
            advice = " (--duplicates keep-first keeps one)"
        verdict.problems.append(_problem(second, f"duplicate: {how} identical to {original.name} of {whose}{advice}"))
    return refused


def _identical(usable: Sequence[Facts]) -> list[tuple[Facts, Facts, str]]:
    """Pairs of recordings with the same bytes, or the same samples on every channel they share.

    Samples are compared at 256 places of each channel: their difference must be rounding (``COPY_UV``, or a thousandth
    of the channel's spread). A copy stored in another format still matches, two different recordings never do.
    """
    pairs = []
    groups: dict[tuple[int, float], list[Facts]] = defaultdict(list)
    for facts in usable:
        group = groups[facts.n_times, facts.sfreq]
        for earlier in group:
            if earlier.sha256 == facts.sha256:
                pairs.append((earlier, facts, "byte for byte"))
                break
            shared = [c for c in facts.fingerprint if c in earlier.fingerprint and facts.std[c] >= FLAT_UV]
            if not shared:
                continue
            if all(_same_samples(earlier, facts, channel) for channel in shared):
                pairs.append((earlier, facts, "sample for sample"))
                break
        group.append(facts)
    return pairs


def _same_samples(earlier: Facts, later: Facts, channel: str) -> bool:
    """Whether a channel of two recordings differs by no more than rounding, at the places of the fingerprint."""
    first, second = earlier.fingerprint[channel], later.fingerprint[channel]
    allowed = min(max(COPY_UV, 1e-3 * later.std[channel]), 0.2 * later.std[channel])
    if abs(first[0] - second[0]) > allowed * len(first) ** 0.5:  # one number rules nearly every pair out
        return False
    return bool(np.sqrt(np.mean((first - second) ** 2)) <= allowed)


def _subjects_left(listing: Listing, looked: Sequence[Facts], verdict: Verdict) -> None:
    """Problems of whole subjects and classes."""
    planned = {plan.recording.subject for plan in verdict.plans}
    with_files = {facts.recording.subject for facts in looked}
    explained = {problem.subject for problem in verdict.problems}
    gone = with_files - planned - explained
    for subject in sorted(gone - set(verdict.lost_copies)):
        verdict.problems.append(Problem("no usable recording is left", subject))
    _note_copies(gone, verdict)
    folded: dict[str, str] = {}
    for subject in sorted(planned):
        twin = folded.setdefault(subject.lower(), subject)
        if twin != subject:
            verdict.plans = [plan for plan in verdict.plans if plan.recording.subject != subject]
            verdict.problems.append(
                Problem(f"differs from {twin!r} only in capitals; some file systems cannot tell", subject)
            )


def _note_copies(gone: set[str], verdict: Verdict) -> None:
    """Say which of two ids with the same recording is kept, and why."""
    for subject, kept in sorted(verdict.lost_copies.items()):
        label = "both have the same label, and one person in two folds leaks test data into training"
        if subject in gone:
            why = f"its recordings are identical to those of {kept}"
            verdict.left_out.append(LeftOut(subject, f"{why}, which is kept"))
            verdict.notes.append(f"{subject} is left out: {why}, which is kept as the first of the two ids; {label}")
        elif subject != kept:
            same = f"{subject} and {kept} share a recording, which is kept with {kept}; are they one person?"
            verdict.notes.append(f"{same} Then give them one name in a column and use --groups COLUMN")


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
