"""Subjects of a cohort by sex, age and site: characteristics of each class, and results of an experiment by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import AGE, SEX, folded, is_missing
from bridgemil.evaluation import metrics
from bridgemil.report.benchmark import Cell
from bridgemil.report.tables import Sheet, span

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
    """What preparation excluded (subjects, recordings, channels), by reason."""
    reasons: dict[str, list[str]] = {}
    for item in cohort.metadata["left_out"]:
        reasons.setdefault(str(item["why"]), []).append(str(item["what"]))
    return reasons


def columns(cohort: Cohort) -> list[str]:
    """Columns of the cohort's table beyond those that every cohort has."""
    return [str(column) for column in cohort.table.columns if column not in OWN]


def column_of(cohort: Cohort, names: Sequence[str]) -> str | None:
    """The cohort's column of one of these names (lower case, without spaces); None if it has none."""
    return next((column for column in columns(cohort) if folded(column) in names), None)


def known(cohort: Cohort, column: str | None) -> dict[str, str]:
    """Values of a column by subject, as text; without missing ones. A code in numbers (1, 2) is a name too."""
    pairs = [] if column is None else zip(cohort.subjects, cohort.column(column), strict=True)
    return {
        subject: f"{value:g}" if isinstance(value, float) else str(value).strip()
        for subject, value in pairs
        if not is_missing(value)
    }


def by_value(cohort: Cohort, names: Sequence[str]) -> list[Group]:
    """One group for each value of the column of one of these names, capitals ignored; empty without such a column."""
    column, spelling = column_of(cohort, names), dict[str, str]()
    groups: dict[str, list[str]] = {}
    for subject, value in known(cohort, column).items():
        groups.setdefault(spelling.setdefault(value.lower(), value), []).append(subject)
    return [Group(f"{column} {value}", tuple(groups[value])) for value in sorted(groups)][:MOST_GROUPS]


def numbers(values: dict[str, str]) -> dict[str, float]:
    """Of values by subject, those that are finite numbers."""
    import pandas as pd

    found = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").astype(float)
    return {str(subject): float(value) for subject, value in found[np.isfinite(found)].items()}


def by_age(cohort: Cohort) -> list[Group]:
    """Two halves at the median age; empty without a column of ages."""
    column = column_of(cohort, AGE)
    age = numbers(known(cohort, column))
    middle = float(np.median(list(age.values()))) if age else 0.0
    halves = [
        Group(f"{column} {middle:g} or less", tuple(subject for subject in age if age[subject] <= middle)),
        Group(f"{column} above {middle:g}", tuple(subject for subject in age if age[subject] > middle)),
    ]
    return [half for half in halves if half.subjects]


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
        for column in sorted(columns(cohort)):
            if column.lower() in ("age", *SEX):
                own = {subject: value for subject, value in known(cohort, column).items() if subject in members}
                ages = list(numbers(own).values()) if column.lower() == "age" else []
                spread = f"{np.mean(ages):.0f} ({min(ages):.0f} to {max(ages):.0f})" if ages else "not known"
                counts = ", ".join(f"{value}: {n}" for value, n in sorted(Counter(own.values()).items()))
                row[column.lower()] = spread if len(ages) == len(own) else counts  # "70+" is no number
        rows.append(row)
    return rows


def characteristics(cohort: Cohort, overlap: float = 0.0) -> Sheet:
    """Sex, age, recordings, windows and minutes, one column per class.

    ``overlap`` is the share of a window that the next one repeats, for the minutes.
    """
    members = {"all": cohort.subjects} | _members(cohort)
    seconds = cohort.n_times / cohort.sfreq * (1 - overlap)
    age = numbers(known(cohort, column_of(cohort, AGE)))

    def windows(who: Sequence[str]) -> float:
        return float(np.median([cohort.records[subject].n_windows for subject in who]))

    def age_text(who: Sequence[str]) -> str:
        values = [age[subject] for subject in who if subject in age]
        spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        return f"{np.mean(values):.1f}{spread} ({min(values):g} - {max(values):g})" if values else "not known"

    def share(group: Group) -> Callable[[Sequence[str]], str]:
        def text(who: Sequence[str]) -> str:
            n = len(set(group.subjects) & set(who))
            return f"{n} ({n / max(1, len(who)):.0%})"

        return text

    rows: dict[str, Callable[[Sequence[str]], str]] = {"subjects": lambda who: str(len(who))}
    rows |= {group.title: share(group) for group in by_value(cohort, SEX)}
    if (column := column_of(cohort, AGE)) is not None:
        rows[f"{column}, mean ± SD (range)"] = age_text
        rows[f"{column} missing"] = lambda who: str(sum(subject not in age for subject in who))
    rows["recordings, total"] = lambda who: str(sum(len(cohort.records[subject].recordings) for subject in who))
    rows["windows, median"] = lambda who: f"{windows(who):g}"
    rows["minutes, median"] = lambda who: f"{windows(who) * seconds / 60:.1f}"
    table = [[title, *map(value, members.values())] for title, value in rows.items()]
    return Sheet("Characteristics by class", ["", *members], table)


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
    low, high = metrics.accuracy_interval(rows)
    accuracy = f"{100 * metrics.accuracy(rows):.1f} ({span(100 * low, 100 * high)})"
    if min(counts[name] for name in classes) < FEW_OF_A_CLASS:
        return [n, mixture, accuracy, f"too few (under {FEW_OF_A_CLASS}) of a class"]
    balanced = np.mean([metrics.scores(seed, classes)["balanced_accuracy"] for _, seed in rows.groupby("seed")])
    low, high = metrics.score_intervals(rows, classes)["balanced_accuracy"]
    return [n, mixture, accuracy, f"{balanced:.3f} ({span(low, high, 3)})"]
