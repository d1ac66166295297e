"""Tables of one split as rows of text, shared by the terminal, Markdown, LaTeX and the pages.

Scores, the layout of the paper's Table 1, comparisons and clinical metrics.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bridgemil.errors import BadUse
from bridgemil.evaluation.clinical import INTERVALS, TITLES, ClinicalOptions, PerClassMetrics, TwoClassMetrics
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.statistics import SCORE_INTERVALS, Comparison, points
from bridgemil.report.benchmark import AVERAGED, BenchmarkReport, Cell, Place

Mark = Literal["best", "second"]
Block = Mapping[Place, Sequence[Cell]]  # the sections of a cohort and split
INTERVAL = (
    f"{SCORE_INTERVALS} ±: standard deviation over seeds (ddof 0). Fold mean: mean over folds of the fold's accuracy, "
    "as the paper reports it."
)
VERDICT = "Verdict by the Holm-corrected p: the first method is higher, lower, or not significantly different (n.s.)."


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
    """Indices of the most accurate cell and the second; ties share a mark. Averaged seeds are not ranked."""
    values = {i: round(cell.row["accuracy"], 2) for i, cell in enumerate(cells) if not cell.averaged}
    order = sorted(set(values.values()), reverse=True)
    marks: dict[float, Mark] = {}
    if len(order) > 1:
        marks[order[0]] = "best"
    if len(order) > 2:
        marks[order[1]] = "second"
    return {i: marks[value] for i, value in values.items() if value in marks}


def accuracy(cell: Cell, what: str = "accuracy") -> str:
    """``mean ± std`` in percent, without spread for one seed. ``what``: ``accuracy`` or ``fold_mean``."""
    row = cell.row
    alone = cell.averaged or row["seeds"] == 1 or (cell.is_baseline and row["accuracy_std"] == 0)
    return f"{row[what]:.2f}" + ("" if alone else f" ± {row[what + '_std']:.2f}")


def row_name(cell: Cell) -> str:
    """First column of a table: the method; indented for its averaged seeds."""
    return f"  {AVERAGED[2:]}" if cell.averaged else cell.label


def _interval(cell: Cell) -> str:
    return f"{cell.row['ci95_low']:.1f} - {cell.row['ci95_high']:.1f}"


def _published(cell: Cell) -> tuple[str, str]:
    """The paper's number, and our fold mean minus it."""
    if cell.published is None:
        return "", ""
    mean, std = cell.published
    return f"{mean:.2f} ± {std:.2f}", f"{cell.row['fold_mean'] - mean:+.2f}"


def every(block: Block) -> list[Cell]:
    """All cells of a cohort and split."""
    return [cell for cells in block.values() for cell in cells]


def scores(block: Block) -> list[Sheet]:
    """One table for the baselines and one for each network section; best and second are of the whole block."""
    marks = ranks(every(block))
    sheets, start = [], 0
    columns = ["method", "accuracy", "95 %", "fold mean", "balanced", "AUROC", "seeds"]
    for place, cells in block.items():
        rows = [
            [
                row_name(cell), accuracy(cell), _interval(cell), f"{cell.row['fold_mean']:.2f}",
                f"{cell.row['balanced_accuracy']:.3f}", f"{cell.row['auroc']:.3f}", str(cell.row["seeds"]),
            ]
            for cell in cells
        ]  # fmt: skip
        here: dict[tuple[int, int], Mark] = {(i, 1): marks[start + i] for i in range(len(cells)) if start + i in marks}
        sheets.append(Sheet(place.title, columns, rows, here, after=_changes(cells)))
        start += len(cells)
    return sheets


def left_out_groups(result: Results) -> Sheet:
    """Results of each group that was left out, with intervals over its subjects."""

    def shown(row: Mapping[Hashable, Any], score: str, factor: float = 1.0, digits: int = 3) -> list[str]:
        value, low, high = (factor * row[f"{score}{end}"] for end in ("", "_low", "_high"))
        return ["", ""] if value != value else [f"{value:.{digits}f}", f"{low:.{digits}f} - {high:.{digits}f}"]

    column = result.split.get("groups", "group")
    rows = [
        [str(row["group"]), str(row["n"]), *shown(row, "accuracy", 100, 1), *shown(row, "balanced_accuracy"),
         *shown(row, "auroc")]
        for row in result.groups.to_dict("records")
    ]  # fmt: skip
    columns = [f"{column} left out", "n", "accuracy", "95 %", "bal. acc.", "95 %", "AUROC", "95 %"]
    return Sheet(f"{result.name}: each {column} tested by models of the others", columns, rows)


def with_published(block: Block) -> list[Sheet]:
    """Our numbers, the paper's and the difference: one table for each section that has numbers of the paper."""
    columns = ["method", "ours (fold mean)", "paper", "ours - paper"]
    return [
        Sheet(
            f"{place.title}, and the paper's", columns,
            [[cell.label, accuracy(cell, "fold_mean"), *_published(cell)] for cell in known],
        )
        for place, cells in block.items()
        if (known := [cell for cell in cells if cell.published])
    ]  # fmt: skip


def table1(report: BenchmarkReport) -> list[Sheet]:
    """The layout of the paper's Table 1: for each cohort and split, networks by backbone and method."""
    names = list(dict.fromkeys(c.label for c in report.cells if not c.is_baseline and not c.averaged))
    sheets = []
    for (cohort, split), block in report.blocks().items():
        rows, marks = list[list[str]](), dict[tuple[int, int], Mark]()
        for place, section in block.items():
            cells = [cell for cell in section if not cell.averaged]
            if place.backbone:
                marks |= {(len(rows), 1 + names.index(cells[i].label)): mark for i, mark in ranks(cells).items()}
                rows += _table1_rows(place.title, cells, names)
        baselines = [f"{cell.label} {accuracy(cell)}" for cell in every(block) if cell.is_baseline]
        before = [f"Baselines: {', '.join(baselines)}."] if baselines else []
        after = [*facts(every(block)), INTERVAL, *caveats(every(block))]
        sheets.append(Sheet(f"{cohort}, {split}", ["backbone", *names], rows, marks, before, after))
    return sheets


def _table1_rows(title: str, cells: Sequence[Cell], names: Sequence[str]) -> list[list[str]]:
    """Accuracies, their intervals, and where there are any the paper's numbers and the differences."""
    rows = {title: {cell.label: accuracy(cell) for cell in cells}}
    rows["95 %"] = {cell.label: _interval(cell) for cell in cells}
    if any(cell.published for cell in cells):
        rows["fold mean"] = {cell.label: accuracy(cell, "fold_mean") for cell in cells}
        rows["paper"] = {cell.label: _published(cell)[0] for cell in cells}
        rows["ours - paper"] = {cell.label: _published(cell)[1] for cell in cells}
    return [[name, *(row.get(label, "") for label in names)] for name, row in rows.items()]


def comparisons(compared: Sequence[Comparison], title: str) -> Sheet:
    """One row per pair of methods.

    Parameters
    ----------
    compared : sequence of Comparison
        One family, Holm-corrected.
    title : str
        Of the table.
    """
    rows = [
        [
            f"{c.one} - {c.other}", points(c.difference), f"{points(c.low)} to {points(c.high)}", f"{c.p:.3f}",
            f"{c.p_holm:.3f}", str(c.splits),
            "n.s." if not c.significant else "higher" if c.difference > 0 else "lower",
        ]
        for c in compared
    ]  # fmt: skip
    return Sheet(title, ["pair", "points", "95 %", "p", "p, Holm", "splits", "verdict"], rows)


def facts(cells: Sequence[Cell]) -> list[str]:
    """Number of subjects and chance level of a cohort and split."""
    row = cells[0].row
    return [
        f"{row['n_subjects']} subjects, each held out once. Chance level (largest class): {row['chance']:.1f}; 95 % "
        f"chance interval for n = {row['n_subjects']}: {row['chance95_low']:.1f} to {row['chance95_high']:.1f}."
    ]


def _changes(cells: Sequence[Cell]) -> list[str]:
    """Settings that differ from recipe and budget, and the number of sub-bag pairs."""
    changed: dict[str, list[str]] = {}
    for cell in cells:
        settings = [f"{key}={value}" for key, value in cell.changed.items()]
        if cell.row["subbag_pairs"] is not None and "stage1.subbag_pairs" not in cell.changed:
            settings.append(f"subbag_pairs {cell.row['subbag_pairs']:.0f}, as in the budget")
        if settings and not cell.averaged:
            changed.setdefault(", ".join(settings), []).append(cell.label)
    return [f"{', '.join(labels)}: {settings}" for settings, labels in changed.items()]


def caveats(cells: Sequence[Cell]) -> list[str]:
    """Differences from the paper's setting, where its numbers are shown."""
    published = [cell for cell in cells if cell.published]
    if not published:
        return []
    reasons = sorted({reason for cell in published for reason in cell.caveats})
    if not reasons:
        return [
            "As in the paper, as far as is known: data set, preparation, subjects, budget, settings, seeds and folds. "
            "Its split is not known."
        ]
    return [f"NOT the paper's setting ({'; '.join(reasons)}): the difference is not evidence about replication."]


def with_clinical_options(report: BenchmarkReport, options: ClinicalOptions) -> None:
    """Apply the user's options to every experiment of a report, in place.

    Cohorts of more than two classes have no options; a cohort without the named positive class keeps its default, and
    a remark says so.

    Parameters
    ----------
    report : BenchmarkReport
        Its cells are replaced.
    options : ClinicalOptions
        Positive class, operating point and prevalence.

    Raises
    ------
    BadUse
        If the options apply to no cohort.
    """
    if options == ClinicalOptions():
        return
    chosen: dict[str, ClinicalOptions] = {}
    for cell in report.cells:
        classes = cell.results.classes
        if len(classes) == 2 and cell.cohort not in chosen:
            there = options.positive is None or options.positive in classes
            chosen[cell.cohort] = options if there else replace(options, positive=None)
            if not there:
                report.remarks.append(f"{cell.cohort} has no class {options.positive}: its default positive class")
    if not chosen or all(used.positive != options.positive for used in chosen.values()):
        classes = sorted({name for cell in report.cells for name in cell.results.classes})
        raise BadUse(
            "--positive, --operating-point and --prevalence are for two classes, one of them the positive one; the "
            f"classes of these runs are {', '.join(classes)}"
        )
    for i, cell in enumerate(report.cells):
        if cell.cohort in chosen:
            report.cells[i] = replace(cell, results=replace(cell.results, clinical_options=chosen[cell.cohort]))


def block_clinical(block: Block) -> list[Sheet]:
    """Clinical metrics of a cohort and split; labels name the section where there are several backbones."""
    several = sum(bool(place.backbone) for place in block) > 1
    return clinical(
        [
            (f"{cell.label}, {place.title}" if several and place.backbone else cell.label, cell.results)
            for place, cells in block.items()
            for cell in cells
        ]
    )


def clinical(named: Sequence[tuple[str, Results]]) -> list[Sheet]:
    """Sensitivity, specificity and predictive values with intervals, in percent.

    Parameters
    ----------
    named : sequence of (str, Results)
        Labels and results on one cohort and split, with the same clinical options.
    """
    found = [(label, results.clinical) for label, results in named]
    two = [(label, metrics) for label, metrics in found if isinstance(metrics, TwoClassMetrics)]
    if two:
        return _two_classes(two)
    each = [(label, metrics) for label, metrics in found if isinstance(metrics, PerClassMetrics)]
    names = list(each[0][1].classes)
    rows = [
        [f"{label}, {measure}", *(str(metrics.classes[name][measure]) for name in names)]
        for label, metrics in each
        for measure in ("sensitivity", "specificity")
    ]
    after = [" ".join([*each[0][1].sentences, INTERVALS])]
    return [Sheet("Sensitivity and specificity of each class, % (95 %)", ["method", *names], rows, after=after)]


def _two_classes(two: Sequence[tuple[str, TwoClassMetrics]]) -> list[Sheet]:
    first = two[0][1]
    rows = [[label, *map(str, metrics.measures.values())] for label, metrics in two]
    lines = [*first.sentences, INTERVALS]
    if not first.thresholds.empty:
        ranges = "; ".join(f"{label.strip()} {metrics.threshold_range}" for label, metrics in two)
        lines.insert(1, f"Thresholds of the folds, as probabilities of {first.positive}: {ranges}.")
    after = [" ".join(lines), *(f"WARNING: {label}: {found.unreached}." for label, found in two if found.unreached)]
    title = f"Sensitivity, specificity and predictive values, positive class {first.positive}, % (95 %)"
    sheets = [Sheet(title, ["method", *TITLES.values()], rows, after=after)]
    if first.options.prevalence is not None:
        rows = [[label, *map(str, metrics.at_prevalence.values())] for label, metrics in two]
        title = f"Predictive values at a prevalence of {100 * first.options.prevalence:g} %, % (95 %)"
        note = "By Bayes' rule from sensitivity and specificity, whose intervals are combined (MOVER)."
        sheets.append(Sheet(title, ["method", "PPV", "NPV"], rows, after=[note]))
    return sheets
