"""What the records say of people, recordings and their preparation: items 4 to 11 and 20."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bridgemil.audit.size import half_width
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.tables import is_missing
from bridgemil.evaluation.statistics import counted
from bridgemil.report.checklist import people
from bridgemil.report.checklist.dossier import Dossier
from bridgemil.report.checklist.entries import Answer
from bridgemil.report.tables import Sheet

NAMED = 6  # examples that are named of each reason for leaving something out
WORDS = {  # of settings of ``prepare``
    "bad_annotations": {
        "drop": "windows that touch a stretch marked bad were left out",
        "keep": "windows that touch a stretch marked bad were kept",
    },
    "bad_channels": {
        "stop": "recordings with a channel marked bad, flat or not finite were refused",
        "drop": "channels marked bad, flat or not finite in some recording were left out of all",
        "interpolate": "channels marked bad, flat or not finite were interpolated",
    },
    "duplicates": {
        "stop": "recordings that were there twice were refused",
        "keep-first": "of recordings that were there twice in one class the first was kept",
    },
}
OWN = ("subject", "label", "n_windows", "n_recordings")


def classes_words(known: Dossier) -> str:
    """``36 A, 29 C, 23 F``."""
    return ", ".join(f"{n} {name}" for name, n in known.per_class.items())


def _unknown(known: Dossier, what: str) -> Answer:
    """Nothing to say, and why."""
    return Answer(unknown=(f"{what}: {known.absent}",))


def objectives(known: Dossier) -> Answer:
    """Item 4."""
    return Answer(
        (
            f"These runs develop models that tell {', '.join(known.classes)} apart from EEG, and validate them "
            "internally, by cross-validation over people. No separate data were used for evaluation.",
        )
    )


def sources(known: Dossier) -> Answer:
    """Item 5a."""
    source = known.source
    words = f"One source ({source['source']}): {source['n_subjects']} people, {source['n_windows']:,} windows."
    if known.cohort is None:
        return Answer((words,), unknown=(f"the number of recordings: {known.absent}",))
    recordings = sum(len(record.recordings) for record in known.cohort.records.values())
    return Answer(
        (f"{words} They were cut from {counted(recordings, 'recording')}; training and evaluation share the source.",)
    )


def setting(known: Dossier) -> Answer:
    """Item 6a: sites, where a column says them."""
    groups = people.by_site(known.cohort) if known.cohort is not None else []
    if not groups:
        return Answer()
    return Answer(("People by centre: " + ", ".join(f"{g.title}: {len(g.people)}" for g in groups) + ".",))


def exclusions(known: Dossier) -> Answer:
    """Item 6b: what ``prepare`` left out, and why."""
    if known.cohort is None:
        return _unknown(known, "what was left out in preparation")
    if known.unprepared:
        return Answer(unknown=(known.unprepared,))
    rows = _left_out(known.cohort, channels=False)
    if not rows:
        return Answer(("Preparation left nobody and no recording out.",))
    sheet = Sheet("Left out in preparation", ["why", "how many", "which"], rows)
    return Answer((f"Preparation left out {_entries(rows)}.",), (sheet,))


def _entries(rows: Sequence[Sequence[str]]) -> str:
    total = sum(int(row[1]) for row in rows)
    return f"{total} {'entry' if total == 1 else 'entries'} of the source (people or recordings)"


def _left_out(cohort: Cohort, *, channels: bool) -> list[list[str]]:
    """Reason, how many, and which: of channels, or of people and recordings."""
    reasons: dict[str, list[str]] = {}
    entries = [item for item in cohort.about["left_out"] if isinstance(item, Mapping) and {"what", "why"} <= set(item)]
    for item in entries:
        if str(item["what"]).startswith("channel ") == channels:
            reasons.setdefault(str(item["why"]), []).append(str(item["what"]).removeprefix("channel "))
    for line in [] if channels else cohort.about.get("skipped", []):
        where, _, why = str(line).partition(": ")
        reasons.setdefault(f"skipped as bad: {why or where}", []).append(where if why else "")
    return [
        [why, str(len(names)), ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")]
        for why, names in reasons.items()
    ]


def preparation(known: Dossier) -> Answer:
    """Item 7: the settings of ``prepare`` and what it noted."""
    if known.preparation is None:
        return Answer(unknown=(known.unprepared,))
    lines = [preparation_words(known.preparation)]
    if known.cohort is None:
        return Answer(tuple(lines), unknown=(f"what was noted of single recordings: {known.absent}",))
    notes = [str(note) for note in known.cohort.about["notes"]]
    more = f" and {len(notes) - NAMED} more, in cohort.json" if len(notes) > NAMED else ""
    lines += [f"Noted: {'; '.join(notes[:NAMED])}{more}."] if notes else ["Nothing was noted of single recordings."]
    return Answer(tuple(lines))


def preparation_words(settings: PrepareSettings) -> str:
    """How recordings became windows, a sentence.

    Parameters
    ----------
    settings
        Of ``prepare``.
    """
    low = "no lower edge" if settings.low is None else f"{settings.low:g}"
    high = "no upper edge" if settings.high is None else f"{settings.high:g} Hz"
    parts = [f"filtered from {low} to {high}"]
    parts += [f"notch at {', '.join(f'{edge:g}' for edge in settings.notch)} Hz"] if settings.notch else []
    parts.append(f"resampled to {settings.sfreq:g} Hz")
    parts.append(f"reference {', '.join(settings.reference) or 'left as recorded'}")
    overlap = f"overlapping by {settings.overlap:.0%}" if settings.overlap else "without overlap"
    parts.append(f"cut into windows of {settings.window_seconds:g} s {overlap}")
    limit = settings.reject_uv
    parts.append(f"windows above {limit:g} µV peak to peak were left out" if limit else "none left out by amplitude")
    parts += [words[getattr(settings, key)] for key, words in WORDS.items()]
    return f"Recordings were {'; '.join(parts)}."


def outcome(known: Dossier) -> Answer:
    """Item 8a."""
    return Answer(
        (f"The outcome is the diagnosis that the source states of each person, one of: {classes_words(known)}.",)
    )


def choice_of_predictors(known: Dossier) -> Answer:
    """Item 9a: which electrodes, and which not."""
    asked = known.preparation is not None and known.preparation.channels is not None
    names = known.facts["signal"]["channels"]
    how = "those asked for" if asked else "all scalp electrodes that every recording has"
    line = f"{counted(len(names), 'channel')}: {', '.join(names)}"
    line += f" ({how})." if known.preparation is not None else "."
    lines = (line, "Nothing here selected predictors by their relation to the outcome before training.")
    if known.cohort is None:
        return Answer(lines, unknown=(f"which channels were left out: {known.absent}",))
    rows = _left_out(known.cohort, channels=True)
    sheet = Sheet("Channels left out", ["why", "how many", "which"], rows)
    return Answer(lines, (sheet,) if rows else ())


def predictors(known: Dossier) -> Answer:
    """Item 9b."""
    signal = known.facts["signal"]
    words = (
        f"The predictors are the EEG itself: windows of {signal['n_times'] / signal['sfreq']:g} s, "
        f"{counted(len(signal['channels']), 'channel')}, {signal['sfreq']:g} Hz, in microvolts"
    )
    words += f", recorded at {signal['native_sfreq']:g} Hz or more." if signal["native_sfreq"] else "."
    lines = [words, "Age, sex and all other columns are seen by no model."]
    if known.cohort is not None:
        counts = [record.n_windows for record in known.cohort.records.values()]
        lines.append(f"Windows of a person: median {np.median(counts):g}, from {min(counts)} to {max(counts)}.")
    return Answer(tuple(lines))


def sample_size(known: Dossier) -> Answer:
    """Item 10."""
    n = sum(known.per_class.values())
    lines = [f"{n} people: {classes_words(known)}. An accuracy of 75 % over {n} people is known to "
             f"± {100 * half_width(n):.1f} points (95 %)."]  # fmt: skip
    for finding in known.findings:
        if finding.name == "size":
            lines += [f"{line[:1].upper()}{line[1:]}." for line in finding.evidence] or [finding.message]
    return Answer(tuple(lines))


def missing_data(known: Dossier) -> Answer:
    """Item 11: windows, recordings, channels and values that are missing."""
    if known.cohort is None:
        return _unknown(known, "how much was left out, and missing values")
    lines = [f"{known.unprepared[:1].upper()}{known.unprepared[1:]}."]
    if known.preparation is not None:
        files = known.cohort.about["files"]
        total = {key: sum(n for file in files if isinstance(n := file.get(key), int))
                 for key in ("windows", "marked_bad", "dropped_marked_bad", "dropped_amplitude")}  # fmt: skip
        rows, skipped = _left_out(known.cohort, channels=False), known.cohort.about.get("skipped", [])
        interpolated = sum(str(note).endswith("interpolated") for note in known.cohort.about["notes"])
        lines = [
            f"Windows kept: {total['windows']:,}. Touching a stretch marked bad: {total['marked_bad']}, of which "
            f"{total['dropped_marked_bad']} were left out; left out for their amplitude: {total['dropped_amplitude']}.",
            f"Left out before windows were cut: {_entries(rows)}, {len(skipped)} of them as bad. "
            f"Channels interpolated in single recordings: {interpolated}.",
            "Nothing else was filled in: a model sees the windows that are there.",
        ]
    gaps = _missing_values(known.cohort)
    lines.append(
        f"Missing in the columns of people: {gaps}." if gaps else "No value is missing in the people's columns."
    )
    return Answer(tuple(lines))


def _missing_values(cohort: Cohort) -> str:
    gaps = {}
    for column in map(str, cohort.table.columns):
        if column not in OWN:
            values = cohort.column(column)
            gaps[column] = sum(is_missing(value) for value in values)
    return ", ".join(
        f"{column} of {counted(n, 'person').replace('persons', 'people')}" for column, n in gaps.items() if n
    )


def flow(known: Dossier) -> Answer:
    """Item 20a."""
    n = sum(known.per_class.values())
    held_out = f"{n} people were analysed ({classes_words(known)}), each held out once in every experiment."
    if known.cohort is None:
        return Answer((held_out,), unknown=(f"who was left out in preparation: {known.absent}",))
    if known.unprepared:
        return Answer((held_out,), unknown=(known.unprepared,))
    rows = _left_out(known.cohort, channels=False)
    lost = f"Preparation left out {_entries(rows)}; reasons under 6b." if rows else "Preparation left nobody out."
    return Answer((lost, held_out))


def characteristics(known: Dossier) -> Answer:
    """Item 20b: a column a class."""
    if known.cohort is None:
        words = f"People by class: {classes_words(known)}."
        return Answer((words,), unknown=(f"age, sex and lengths: {known.absent}",))
    cohort = known.cohort
    members = {"all": cohort.subjects} | {
        name: [s for s in cohort.subjects if cohort.records[s].label == name] for name in cohort.classes
    }
    rows = [["people", *(str(len(who)) for who in members.values())]]
    rows += _sex_rows(cohort, members) + _age_rows(cohort, members)
    seconds = cohort.n_times / cohort.sfreq * (1 - (known.preparation.overlap if known.preparation else 0))
    for title, value in (
        ("recordings, total", lambda who: str(sum(len(cohort.records[s].recordings) for s in who))),
        ("windows, median", lambda who: f"{np.median([cohort.records[s].n_windows for s in who]):g}"),
        ("minutes, median", lambda who: f"{np.median([cohort.records[s].n_windows for s in who]) * seconds / 60:.1f}"),
    ):
        rows.append([title, *map(value, members.values())])
    absent = [what for what, names in (("sex", people.SEX), ("age", people.AGE)) if not people.column_of(cohort, names)]
    unknown = (f"the cohort's columns do not hold {' and '.join(absent)}",) if absent else ()
    others = [str(c) for c in cohort.table.columns if c not in OWN]
    lines = (f"Columns that the cohort has of people: {', '.join(others)}.",) if others else ()
    return Answer(lines, (Sheet("People", ["", *members], rows),), unknown)


def _sex_rows(cohort: Cohort, members: Mapping[str, Sequence[str]]) -> list[list[str]]:
    return [
        [group.title, *(_share(set(group.people) & set(who), who) for who in members.values())]
        for group in people.by_sex(cohort)
    ]


def _share(some: set[str], every: Sequence[str]) -> str:
    return f"{len(some)} ({len(some) / max(1, len(every)):.0%})"


def _age_rows(cohort: Cohort, members: Mapping[str, Sequence[str]]) -> list[list[str]]:
    column = people.column_of(cohort, people.AGE)
    if column is None:
        return []
    known = people.ages(cohort, column)
    row, absent = [f"{column}, mean ± SD (range)"], [f"{column} missing"]
    for who in members.values():
        values = [known[s] for s in who if s in known]
        spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        row.append(f"{np.mean(values):.1f}{spread} ({min(values):g} - {max(values):g})" if values else "not known")
        absent.append(str(len(who) - len(values)))
    return [row, absent]


def same_people(known: Dossier) -> Answer:
    """Item 20c."""
    return Answer(
        ("There is no separate evaluation set: every person is in the training data of other folds' models.",)
    )


FILLERS: dict[str, Callable[[Dossier], Answer]] = {
    "4": objectives, "5a": sources, "6a": setting, "6b": exclusions, "7": preparation, "8a": outcome,
    "9a": choice_of_predictors, "9b": predictors, "10": sample_size, "11": missing_data, "20a": flow,
    "20b": characteristics, "20c": same_people,
}  # fmt: skip
