"""Subjects of a cohort by sex, age and site: characteristics of each class, and results of an experiment by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import AGE, SEX, folded, is_missing
from bridgemil.evaluation.sites import group_scores
from bridgemil.report.benchmark import Cell
from bridgemil.report.tables import Sheet, interval

if TYPE_CHECKING:
    import pandas as pd

SITES = ("site", "centre", "center", "hospital", "site_id", "centre_id", "center_id")
OWN = ("subject", "label", "n_windows", "n_recordings")  # columns that every cohort has
FEW = 10  # subjects of a group, below which its accuracy is not reported
FEW_OF_A_CLASS = 5  # below which its balanced accuracy is not reported
MOST_GROUPS = 12  # values of a column that are shown


class Group(NamedTuple):
    """Some subjects of a cohort: ``Gender F``, ``Age 66 or less``."""

    title: str
    subjects: tuple[str, ...]


def left_out(cohort: Cohort) -> dict[str, list[str]]:
    """What preparation excluded (subjects, recordings, channels), by reason.

    A subject without any recording left is not named again where its recordings are.
    """
    reasons: dict[str, list[str]] = {}
    items = [(str(item["what"]), str(item["why"])) for item in cohort.metadata["left_out"]]
    listed = {what.partition(", ")[0] for what, _ in items if ", " in what}
    for what, why in items:
        if not (what in listed and "its recordings" in why):
            reasons.setdefault(why, []).append(what)
    return reasons


def columns(cohort: Cohort) -> list[str]:
    """Columns of the cohort's table beyond those that every cohort has."""
    return [str(column) for column in cohort.table.columns if column not in OWN]


def column_of(cohort: Cohort, names: Sequence[str]) -> str | None:
    """The cohort's column of one of these names (lower case, without spaces); None if it has none."""
    return next((column for column in columns(cohort) if folded(column) in names), None)


def known(cohort: Cohort, column: str | None) -> pd.Series:
    """Values of a column by subject, as text; without missing ones. A code in numbers (1, 2) is a name too."""
    import pandas as pd

    pairs = [] if column is None else zip(cohort.subjects, cohort.column(column), strict=True)
    values = {
        subject: f"{value:g}" if isinstance(value, float) else str(value).strip()
        for subject, value in pairs
        if not is_missing(value)
    }
    return pd.Series(values, dtype=object, name=column)


def by_value(cohort: Cohort, names: Sequence[str]) -> list[Group]:
    """One group for each value of the column of one of these names, capitals ignored; empty without such a column."""
    values = known(cohort, column_of(cohort, names))
    spelling = values.groupby(values.astype(str).str.lower()).transform("first")
    return [Group(f"{values.name} {name}", tuple(own.index)) for name, own in values.groupby(spelling)][:MOST_GROUPS]


def numbers(values: pd.Series) -> pd.Series:
    """Of values by subject, those that are finite numbers."""
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce").astype(float)
    return found[np.isfinite(found)]


def by_age(cohort: Cohort) -> list[Group]:
    """Two halves at the median age; empty without a column of ages."""
    age = numbers(known(cohort, column_of(cohort, AGE)))
    middle = age.median()
    halves = {"or less": age[age <= middle], "above": age[age > middle]}
    titles = {"or less": f"{age.name} {middle:g} or less", "above": f"{age.name} above {middle:g}"}
    return [Group(titles[half], tuple(own.index)) for half, own in halves.items() if len(own)]


def _members(cohort: Cohort) -> dict[str, list[str]]:
    """Subjects of each class."""
    pairs = list(zip(cohort.subjects, cohort.labels, strict=True))
    return {name: [subject for subject, label in pairs if label == name] for name in cohort.classes}


def class_rows(cohort: Cohort) -> list[dict[str, Any]]:
    """One row per class: number of subjects and windows, and age and sex where the cohort has such columns."""
    rows = []
    for name, members in _members(cohort).items():
        windows = sum(cohort.records[subject].n_windows for subject in members)
        row: dict[str, Any] = {"class": name, "n": len(members), "windows": windows}
        for column in sorted(column for column in columns(cohort) if column.lower() in ("age", *SEX)):
            own = known(cohort, column)
            own = own[own.index.isin(members)]
            ages = numbers(own) if column.lower() == "age" else own[:0]
            spread = f"{ages.mean():.0f} ({ages.min():.0f} to {ages.max():.0f})" if len(ages) else "not known"
            counts = ", ".join(f"{value}: {n}" for value, n in sorted(Counter(own).items()))
            row[column.lower()] = spread if len(ages) == len(own) else counts  # "70+" is no number
        rows.append(row)
    return rows


def characteristics(cohort: Cohort, overlap: float = 0.0) -> Sheet:
    """Sex, age, recordings, windows and minutes, one column per class.

    ``overlap`` is the share of a window that the next one repeats, for the minutes.
    """
    minutes = cohort.n_times / cohort.sfreq * (1 - overlap) / 60  # of a window
    sexes, age = by_value(cohort, SEX), numbers(known(cohort, column_of(cohort, AGE)))

    def column(who: Sequence[str]) -> dict[str, str]:
        records = [cohort.records[subject] for subject in who]
        windows = float(np.median([record.n_windows for record in records]))
        values = {"subjects": str(len(who))}
        for group in sexes:
            n = len(set(group.subjects) & set(who))
            values[group.title] = f"{n} ({n / max(1, len(who)):.0%})"
        if age.name is not None:
            own = age[age.index.isin(who)]
            spread = f" ± {own.std():.1f}" if len(own) > 1 else ""
            ages = f"{own.mean():.1f}{spread} ({own.min():g} - {own.max():g})" if len(own) else "not known"
            values |= {f"{age.name}, mean ± SD (range)": ages, f"{age.name} missing": str(len(who) - len(own))}
        recordings = sum(len(record.recordings) for record in records)
        return values | {
            "recordings, total": str(recordings),
            "windows, median": f"{windows:g}",
            "minutes, median": f"{windows * minutes:.1f}",
        }

    found = {name: column(who) for name, who in ({"all": cohort.subjects} | _members(cohort)).items()}
    rows = [[title, *(values[title] for values in found.values())] for title in found["all"]]
    return Sheet("Characteristics by class", ["", *found], rows)


def group_row(cell: Cell, group: Group) -> list[str]:
    """Subjects, classes, accuracy and balanced accuracy of a group, the latter two with 95 % intervals.

    Accuracy is the proportion of the group's subjects correctly classified, mean over seeds, with a Wilson interval.
    """
    predictions, classes = cell.results.predictions, cell.results.classes
    rows = predictions[predictions["subject"].isin(group.subjects)]
    counts = Counter(rows.drop_duplicates("subject")["label"])
    n, mixture = str(counts.total()), ", ".join(f"{counts[name]} {name}" for name in classes)
    if counts.total() < FEW:
        return [n, mixture, f"too few subjects (under {FEW})", ""]
    found = group_scores(rows, classes)
    few = min(counts[name] for name in classes) < FEW_OF_A_CLASS
    balanced = f"too few (under {FEW_OF_A_CLASS}) of a class" if few else interval(found, "balanced_accuracy", digits=3)
    return [n, mixture, interval(found, "accuracy", 100, 1), balanced]
