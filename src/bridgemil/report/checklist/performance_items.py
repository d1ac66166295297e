"""What the runs show, with intervals: performance, calibration, and results by sex, age and site (item 23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridgemil.evaluation.metrics import calibration_summary, score_intervals
from bridgemil.report import tables as sheets
from bridgemil.report.benchmark import Cell
from bridgemil.report.checklist import people
from bridgemil.report.checklist.dossier import Dossier
from bridgemil.report.checklist.entries import Answer
from bridgemil.report.checklist.model_items import experiment
from bridgemil.report.tables import Sheet, clinical
from bridgemil.runs import warning_text

INTERVAL = "In brackets: 95 % intervals."


def performance(known: Dossier) -> Answer:
    """Item 23a: all experiments, their calibration, and groups of people."""
    groups, unknown = list[people.Group](), list[str]()
    if known.cohort is None:
        unknown.append(f"results by sex and age: {known.absent}")
    else:
        for what, found in (("sex", people.by_sex(known.cohort)), ("age", people.by_age(known.cohort))):
            groups += found
            unknown += [] if found else [f"results by {what}: the cohort has no column of it that can be read"]
    tables = [_scores(known.cells), *_clinical(known.cells), _calibrations(known.cells)]
    tables += [_by_group(known.cells, groups, "Results by sex and age")] if groups else []
    lines = [*map(warning_text, known.accepted), *sheets.facts(known.cells)]
    if len({cell.split.hash for cell in known.cells}) > 1:
        lines.append("Several splits deal the same people anew; means over them are in report.md.")
    return Answer(tuple(lines), tuple(tables), tuple(unknown))


def _scores(cells: Sequence[Cell]) -> Sheet:
    rows = []
    for cell in cells:
        row, intervals = cell.row, score_intervals(cell.results.predictions, cell.results.classes)
        scores = [f"{row[name]:.3f} ({intervals[name][0]:.3f} - {intervals[name][1]:.3f})"
                  for name in ("balanced_accuracy", "auroc")]  # fmt: skip
        accuracy = f"{sheets.accuracy(cell)} ({row['ci95_low']:.1f} - {row['ci95_high']:.1f})"
        rows.append([experiment(cell), cell.place.split, accuracy, *scores, str(row["seeds"])])
    columns = ["experiment", "split", "accuracy %", "balanced accuracy", "AUROC", "seeds"]
    return Sheet("Performance", columns, rows, after=[f"{INTERVAL} {sheets.INTERVAL}"])


def _clinical(cells: Sequence[Cell]) -> list[Sheet]:
    several = len({cell.split.hash for cell in cells}) > 1
    named = [(experiment(cell) + (f", {cell.place.split}" if several else ""), cell.results) for cell in cells]
    return clinical(named)


def _calibrations(cells: Sequence[Cell]) -> Sheet:
    rows = []
    for cell in cells:
        error = calibration_summary(cell.results.predictions, cell.results.classes)
        value = f"{error['value']:.3f} ({error['low']:.3f} - {error['high']:.3f})"
        rows.append([experiment(cell), cell.place.split, value, f"{error['expected']:.3f}"])
    columns = ["experiment", "split", "ECE", "if exactly right"]
    note = (
        "ECE: expected calibration error of the predicted class; of several seeds, the means of each seed's value and "
        "interval. If exactly right: what perfect probabilities would show on so few people by chance alone; only an "
        "error above it is evidence of miscalibration."
    )
    return Sheet("Calibration", columns, rows, after=[f"{INTERVAL} {note}"])


def _by_group(cells: Sequence[Cell], groups: Sequence[people.Group], title: str) -> Sheet:
    rows = [
        [experiment(cell), cell.place.split, group.title, *people.group_row(cell, group)]
        for cell in cells
        for group in groups
    ]
    columns = ["experiment", "split", "people", "n", "classes", "accuracy %", "balanced accuracy"]
    note = (
        "Share of the group's subjects correctly classified, with Wilson's interval; balanced accuracy with Wilson's "
        "intervals of the classes joined. Groups hold other shares of the classes, which alone changes accuracy. No "
        "difference between groups was tested; with so few subjects an equal result is no proof of fairness."
    )
    return Sheet(title, columns, rows, after=[f"{INTERVAL} {note}"])


def across_clusters(known: Dossier) -> Answer:
    """Item 23b: results by site, where a column says it."""
    groups = people.by_site(known.cohort) if known.cohort is not None else []
    if not groups:
        return Answer()
    return Answer((), (_by_group(known.cells, groups, "Results by centre"),))


FILLERS: dict[str, Callable[[Dossier], Answer]] = {"23a": performance, "23b": across_clusters}
