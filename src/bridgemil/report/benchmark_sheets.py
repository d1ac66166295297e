"""The tables of a report as rows of words: what the terminal, Markdown and LaTeX have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, Comparison, points
from bridgemil.report.benchmark_splits import OverSplits, SplitRow
from bridgemil.report.benchmark_table import AVERAGED, BenchmarkReport, Cell, Place

Mark = Literal["best", "second"]
Block = Mapping[Place, Sequence[Cell]]  # the sections of a cohort and split
INTERVAL = (
    f"{SCORE_INTERVALS} ±: standard deviation over seeds (ddof 0). Fold mean: mean over folds of the fold's accuracy, "
    "as the paper reports it."
)
SPLITS = (
    "Mean ± standard deviation over splits (ddof 0); of each split, its mean over seeds. All splits hold the same "
    "subjects, assigned to folds with a new seed: ± is not a standard error."
)


@dataclass(frozen=True)
class Sheet:
    """A table."""

    title: str
    columns: Sequence[str]  # the first one names the rows
    rows: Sequence[Sequence[str]]
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)  # by row and column
    before: Sequence[str] = ()  # sentences above it
    after: Sequence[str] = ()  # and below


def ranks(cells: Sequence[Cell]) -> dict[int, Mark]:
    """The places of the most accurate cell and the second; ties share a mark. Averaged seeds are not in it."""
    values = {i: round(cell.row["accuracy"], 2) for i, cell in enumerate(cells) if not cell.averaged}
    order = sorted(set(values.values()), reverse=True)
    marks: dict[int, Mark] = {}
    for i, value in values.items():
        if len(order) > 1 and value == order[0]:
            marks[i] = "best"
        elif len(order) > 2 and value == order[1]:
            marks[i] = "second"
    return marks


def accuracy(cell: Cell, what: str = "accuracy") -> str:
    """``mean ± std`` in percent; no spread where there is none. ``what``: ``accuracy`` or ``fold_mean``."""
    row = cell.row
    alone = cell.averaged or row["seeds"] == 1 or (cell.is_baseline and row["accuracy_std"] == 0)
    return f"{row[what]:.2f}" + ("" if alone else f" ± {row[what + '_std']:.2f}")


def _interval(cell: Cell) -> str:
    return f"{cell.row['ci95_low']:.1f} - {cell.row['ci95_high']:.1f}"


def _beside(cell: Cell) -> tuple[str, str]:
    """The paper's number, and our fold mean minus it."""
    if cell.published is None:
        return "", ""
    mean, std = cell.published
    return f"{mean:.2f} ± {std:.2f}", f"{cell.row['fold_mean'] - mean:+.2f}"


def scores(block: Block) -> list[Sheet]:
    """A sheet for the baselines and for each network section; best and second are of the whole block."""
    marks = ranks([cell for cells in block.values() for cell in cells])
    sheets, start = [], 0
    for place, cells in block.items():
        rows = [
            [
                f"  {AVERAGED[2:]}" if cell.averaged else cell.label, accuracy(cell), _interval(cell),
                f"{cell.row['fold_mean']:.2f}",
                f"{cell.row['balanced_accuracy']:.3f}", f"{cell.row['auroc']:.3f}", str(cell.row["seeds"]),
            ]
            for cell in cells
        ]  # fmt: skip
        here: dict[tuple[int, int], Mark] = {(i, 1): marks[start + i] for i in range(len(cells)) if start + i in marks}
        columns = ["method", "accuracy", "95 %", "fold mean", "balanced", "AUROC", "seeds"]
        sheets.append(Sheet(place.title, columns, rows, here, after=changes(cells)))
        start += len(cells)
    return sheets


def beside_the_paper(block: Block) -> list[Sheet]:
    """Ours, the paper's and the difference, a sheet for each section with numbers of the paper."""
    sheets = []
    for place, cells in block.items():
        known = [cell for cell in cells if cell.published]
        if known:
            rows = [[cell.label, accuracy(cell, "fold_mean"), *_beside(cell)] for cell in known]
            columns = ["method", "ours (fold mean)", "paper", "ours - paper"]
            sheets.append(Sheet(f"{place.title}, and the paper's", columns, rows))
    return sheets


def table1(report: BenchmarkReport) -> list[Sheet]:
    """The layout of the paper's Table 1: for each cohort and split, networks by backbone and method."""
    names = list(dict.fromkeys(c.label for c in report.cells if not c.is_baseline and not c.averaged))
    sheets = []
    for (cohort, split), block in report.blocks().items():
        rows, marks = list[list[str]](), dict[tuple[int, int], Mark]()
        for place, every in block.items():
            cells = [cell for cell in every if not cell.averaged]
            if place.backbone:
                marks |= {(len(rows), 1 + names.index(cells[i].label)): mark for i, mark in ranks(cells).items()}
                rows += _table1_rows(place.title, cells, names)
        baselines = [f"{cell.label} {accuracy(cell)}" for cell in _every(block) if cell.is_baseline]
        before = [f"Baselines: {', '.join(baselines)}."] if baselines else []
        after = [*facts(_every(block)), INTERVAL, *caveats(_every(block))]
        sheets.append(Sheet(f"{cohort}, {split}", ["backbone", *names], rows, marks, before, after))
    return sheets


def _table1_rows(title: str, cells: Sequence[Cell], names: Sequence[str]) -> list[list[str]]:
    """A row of accuracies, below it the intervals, and the paper's and the differences where there are any."""
    rows = {title: {cell.label: accuracy(cell) for cell in cells}}
    rows["95 %"] = {cell.label: _interval(cell) for cell in cells}
    if any(cell.published for cell in cells):
        rows["fold mean"] = {cell.label: accuracy(cell, "fold_mean") for cell in cells}
        rows["paper"] = {cell.label: _beside(cell)[0] for cell in cells}
        rows["ours - paper"] = {cell.label: _beside(cell)[1] for cell in cells}
    return [[name, *(row.get(label, "") for label in names)] for name, row in rows.items()]


def comparisons(compared: Sequence[Comparison], title: str) -> Sheet:
    """One row per pair."""
    rows = [
        [
            f"{c.one} - {c.other}", points(c.difference), f"{points(c.low)} to {points(c.high)}", f"{c.p:.3f}",
            f"{c.p_holm:.3f}", str(c.splits),
            "n.s." if not c.significant else "higher" if c.difference > 0 else "lower",
        ]
        for c in compared
    ]  # fmt: skip
    columns = ["pair", "points", "95 %", "p", "p, Holm", "splits", "verdict"]
    verdicts = "Verdict by the Holm-corrected p: the first method is higher, lower, or not significantly different."
    return Sheet(title, columns, rows, after=[f"{COMPARED} {verdicts}"])


def splits(table: OverSplits) -> list[Sheet]:
    """Means and spread over splits, a sheet for each section."""
    sheets = []
    for place, rows in table.rows.items():
        columns = ["method", "accuracy", "balanced", "AUROC", "splits", "seeds"]
        means = [
            [_split_name(row), _spread(row, "accuracy", 1), _spread(row, "balanced_accuracy", 3),
             _spread(row, "auroc", 3), str(len(row.cells)), row.seeds]
            for row in rows
        ]  # fmt: skip
        sheets.append(Sheet(f"{place.title}, over splits", columns, means))
    return sheets


def split_differences(table: OverSplits) -> list[Sheet]:
    """Each method minus each baseline over the splits that both have, a sheet for the cohort."""
    return [comparisons(table.comparisons, "differences to the baselines, over splits")] if table.comparisons else []


def split_facts(table: OverSplits) -> list[str]:
    """What the means over splits are to be read with."""
    uneven = "Not every method was run on every split: compare them by the differences, which are over shared splits."
    return [SPLITS, *([] if table.is_even else [uneven])]


def _split_name(row: SplitRow) -> str:
    return f"  {AVERAGED[2:]}" if row.first.averaged else row.first.label


def _spread(row: SplitRow, score: str, digits: int) -> str:
    spread = f" ± {row.std(score):.{digits}f}" if len(row.cells) > 1 else ""
    return f"{row.mean(score):.{digits}f}{spread}"


def _every(block: Block) -> list[Cell]:
    return [cell for cells in block.values() for cell in cells]


def facts(cells: Sequence[Cell]) -> list[str]:
    """What every number of a cohort and split is to be read with."""
    row = cells[0].row
    return [
        f"{row['n_subjects']} subjects, each held out once. Chance level (largest class): {row['chance']:.1f}; 95 % "
        f"chance interval for n = {row['n_subjects']}: {row['chance95_low']:.1f} to {row['chance95_high']:.1f}."
    ]


def changes(cells: Sequence[Cell]) -> list[str]:
    """What was not run as recipe and budget have it, and the sub-bag pairs."""
    said: dict[str, list[str]] = {}
    for cell in cells:
        words = [f"{key}={value}" for key, value in cell.changed.items()]
        if cell.row["subbag_pairs"] is not None and "stage1.subbag_pairs" not in cell.changed:
            words.append(f"subbag_pairs {cell.row['subbag_pairs']:.0f}, as the budget has it")
        if words and not cell.averaged:
            said.setdefault(", ".join(words), []).append(cell.label)
    return [f"{', '.join(labels)}: {words}" for words, labels in said.items()]


def caveats(cells: Sequence[Cell]) -> list[str]:
    """What differs from the paper's setting, where numbers stand beside the paper's."""
    published = [cell for cell in cells if cell.published]
    if not published:
        return []
    reasons = sorted({reason for cell in published for reason in cell.caveats})
    if not reasons:
        words = (
            "As in the paper, so far as is known: data set, preparation, subjects, budget, settings, seeds and folds. "
            "Its split is not known."
        )
        return [words]
    return [f"NOT the paper's setting ({'; '.join(reasons)}): the difference is not a failed or better repetition."]
