"""Groups of a cohort's people (by sex, age, site), and how an experiment fares with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import folded, is_missing
from bridgemil.evaluation.metrics import accuracy as pooled_accuracy
from bridgemil.evaluation.metrics import accuracy_interval, score_intervals, scores
from bridgemil.report.benchmark import Cell

SEX, AGE = ("sex", "gender"), ("age", "ageyears", "age_years", "age(years)")
SITES = ("site", "centre", "center", "hospital", "site_id", "centre_id", "center_id")
FEW = 10  # people of a group; of fewer a share of right answers says nothing
FEW_OF_A_CLASS = 5  # below which balanced accuracy of a group says nothing
MOST_GROUPS = 12  # values of a column that are shown


@dataclass(frozen=True)
class Group:
    """Some people of a cohort: ``Gender F``, ``Age 66 or less``."""

    title: str
    people: tuple[str, ...]


def column_of(cohort: Cohort, names: Sequence[str]) -> str | None:
    """The cohort's column of one of these names, capitals and spaces aside; None if it has none.

    Parameters
    ----------
    cohort
        Whose columns.
    names
        In small letters, without spaces.
    """
    columns = [str(column) for column in cohort.table.columns]
    return next((column for column in columns if folded(column) in names), None)


def by_value(cohort: Cohort, column: str) -> dict[str, list[str]]:
    """People by what a column says of them; those of whom it says nothing are left out.

    Parameters
    ----------
    cohort
        Whose people.
    column
        One of its columns; capitals do not matter in its values.
    """
    spelling: dict[str, str] = {}
    people: dict[str, list[str]] = {}
    for subject, value in zip(cohort.subjects, cohort.column(column), strict=True):
        words = "" if value is None else str(value).strip()
        if not is_missing(words):
            people.setdefault(spelling.setdefault(words.lower(), words), []).append(subject)
    return {name: people[name] for name in sorted(people)}


def ages(cohort: Cohort, column: str) -> dict[str, float]:
    """Age by subject; who has none, or one that is no number, is left out.

    Parameters
    ----------
    cohort
        Whose people.
    column
        The column that holds it.
    """
    known = {}
    for subject, value in zip(cohort.subjects, cohort.column(column), strict=True):
        try:
            age = float(str(value))
        except ValueError:
            continue
        if np.isfinite(age):
            known[subject] = age
    return known


def by_sex(cohort: Cohort) -> list[Group]:
    """A group for each value of the column that says it; none without such a column."""
    return _groups(cohort, column_of(cohort, SEX))


def by_site(cohort: Cohort) -> list[Group]:
    """A group for each value of the column that says it; none without such a column."""
    return _groups(cohort, column_of(cohort, SITES))


def by_age(cohort: Cohort) -> list[Group]:
    """Two halves at the median; none without a column of ages."""
    column = column_of(cohort, AGE)
    known = ages(cohort, column) if column is not None else {}
    if not known:
        return []
    middle = float(np.median(list(known.values())))
    halves = {
        f"{column} {middle:g} or less": tuple(s for s, age in known.items() if age <= middle),
        f"{column} above {middle:g}": tuple(s for s, age in known.items() if age > middle),
    }
    return [Group(title, people) for title, people in halves.items() if people]


def _groups(cohort: Cohort, column: str | None) -> list[Group]:
    if column is None:
        return []
    found = by_value(cohort, column)
    return [Group(f"{column} {name}", tuple(people)) for name, people in found.items()][:MOST_GROUPS]


def group_row(cell: Cell, group: Group) -> list[str]:
    """People, classes, accuracy and balanced accuracy of a group, each with its 95 % interval, in words.

    Accuracy is the share of the group's subjects correctly classified, mean over seeds, with Wilson's interval.

    Parameters
    ----------
    cell
        The experiment.
    group
        Whose held-out predictions are looked at.
    """
    predictions, classes = cell.results.predictions, cell.results.classes
    rows = predictions[predictions["subject"].isin(group.people)]
    counts = Counter(rows.drop_duplicates("subject")["label"])
    n = counts.total()
    mixture = ", ".join(f"{counts[name]} {name}" for name in classes)
    if n < FEW:
        return [str(n), mixture, f"too few (under {FEW}) to say", ""]
    low, high = accuracy_interval(rows)
    accuracy = f"{100 * pooled_accuracy(rows):.1f} ({100 * low:.1f} - {100 * high:.1f})"
    if min(counts[name] for name in classes) < FEW_OF_A_CLASS:
        return [str(n), mixture, accuracy, f"too few (under {FEW_OF_A_CLASS}) of a class"]
    balanced = np.mean([scores(seed, classes)["balanced_accuracy"] for _, seed in rows.groupby("seed")])
    low, high = score_intervals(rows, classes)["balanced_accuracy"]
    return [str(n), mixture, accuracy, f"{balanced:.3f} ({low:.3f} - {high:.3f})"]
