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


def known(cohort: Cohort, names: Sequence[str]) -> pd.Series:
    """Values by subject, as text and without missing ones, of the column of one of these names (lower case, no spaces).

    Without such a column it is empty and has no name. A code in numbers (1, 2) is a name too.
    """
    import pandas as pd

    column = next((column for column in columns(cohort) if folded(column) in names), None)
    values = [] if column is None else cohort.column(column)
    texts = {
        subject: f"{value:g}" if isinstance(value, float) else str(value).strip()
        for subject, value in zip(cohort.subjects, values, strict=False)
        if not is_missing(value)
    }
    return pd.Series(texts, dtype=object, name=column)


def by_value(cohort: Cohort, names: Sequence[str]) -> list[Group]:
    """One group for each value of the column of one of these names, capitals ignored; empty without such a column."""
    values = known(cohort, names)
    spelling = values.groupby(values.astype(str).str.lower()).transform("first")
    return [Group(f"{values.name} {name}", tuple(own.index)) for name, own in values.groupby(spelling)][:MOST_GROUPS]


def numbers(values: pd.Series) -> pd.Series:
    """Of values by subject, those that are finite numbers."""
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce").astype(float)
    return found[np.isfinite(found)]


def by_age(cohort: Cohort) -> list[Group]:
    """Two halves at the median age; empty without a column of ages."""
    age = numbers(known(cohort, AGE))
    middle = age.median()
    halves = {f"{middle:g} or less": age[age <= middle], f"above {middle:g}": age[age > middle]}
    return [Group(f"{age.name} {half}", tuple(own.index)) for half, own in halves.items() if len(own)]


def _labelled(cohort: Cohort) -> pd.DataFrame:
    return cohort.table[cohort.table["label"] != ""]


def class_rows(cohort: Cohort) -> list[dict[str, Any]]:
    """One row per class: number of subjects and windows, and age and sex where the cohort has such columns."""
    rows = []
    for name, members in _labelled(cohort).groupby("label"):
        row: dict[str, Any] = {"class": name, "n": len(members), "windows": int(members["n_windows"].sum())}
        for column in sorted({"age", *SEX} & {column.lower() for column in columns(cohort)}):
            own = known(cohort, [column])
            own = own[own.index.isin(members["subject"])]
            ages = numbers(own) if column == "age" else own[:0]
            spread = f"{ages.mean():.0f} ({ages.min():.0f} to {ages.max():.0f})" if len(ages) else "not known"
            counts = ", ".join(f"{value}: {n}" for value, n in sorted(Counter(own).items()))
            row[column] = spread if len(ages) == len(own) else counts  # "70+" is no number
        rows.append(row)
    return rows


def characteristics(cohort: Cohort, overlap: float = 0.0) -> Sheet:
    """Sex, age, recordings, windows and minutes, one column per class.

    ``overlap`` is the share of a window that the next one repeats, for the minutes.
    """
    minutes = cohort.n_times / cohort.sfreq * (1 - overlap) / 60  # of a window
    sexes, age = by_value(cohort, SEX), numbers(known(cohort, AGE))

    def column(rows: pd.DataFrame) -> dict[str, str]:
        windows = rows["n_windows"].median()
        values = {"subjects": str(len(rows))}
        for group in sexes:
            n = rows["subject"].isin(group.subjects).sum()
            values[group.title] = f"{n} ({n / max(1, len(rows)):.0%})"
        if age.name is not None:
            own = age[age.index.isin(rows["subject"])]
            spread = f" ± {own.std():.1f}" if len(own) > 1 else ""
            ages = f"{own.mean():.1f}{spread} ({own.min():g} - {own.max():g})" if len(own) else "not known"
            values |= {f"{age.name}, mean ± SD (range)": ages, f"{age.name} missing": str(len(rows) - len(own))}
        return values | {
            "recordings, total": str(rows["n_recordings"].sum()),
            "windows, median": f"{windows:g}",
            "minutes, median": f"{windows * minutes:.1f}",
        }

    found = {name: column(rows) for name, rows in [("all", cohort.table), *_labelled(cohort).groupby("label")]}
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
