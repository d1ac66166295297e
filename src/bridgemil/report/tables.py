"""Tables of results as rows of text, which the terminal, Markdown, LaTeX and the pages print.

Scores, the layout of the paper's Table 1, comparisons and clinical metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from bridgemil.evaluation.clinical import INTERVALS, TITLES, PerClassMetrics, TwoClassMetrics
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.sites import GROUP_SCORES
from bridgemil.evaluation.statistics import SCORE_INTERVALS, Comparison, points
from bridgemil.report.benchmark import BenchmarkReport, Cell, Place
from bridgemil.report.templating import macro

Mark = Literal["best", "second"]
Row = Mapping[Any, Any]
Block = Mapping[Place, Sequence[Cell]]  # the sections of a cohort and split
TEXTS = "results.txt.j2"
INTERVAL = (
    f"{SCORE_INTERVALS} ±: standard deviation over seeds (ddof 0). Fold mean: mean over folds of the fold's accuracy, "
    "as the paper reports it."
)
VERDICT = "Verdict by the Holm-corrected p: the first method is higher, lower, or not significantly different (n.s.)."
DIAGNOSIS = (
    "Diagnosis: AUROC of the diagnosis by the covariate alone. Score: concordance of held-out scores with the "
    "covariate within the classes (of two subjects of a class, how often the one with the higher value has the "
    "higher score; .5: not related), with a bootstrap interval over subjects."
)
TUNED = (
    "Inner cross-validation, one-standard-error rule: the simplest settings whose Brier score is within one standard "
    "error (over subjects) of the lowest; the default, where it is among the values, is the simplest, then as listed."
)


@dataclass(frozen=True)
class Sheet:
    """A table as it is printed."""

    title: str
    columns: Sequence[str]  # the first one names the rows
    rows: Sequence[Sequence[str]]
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)  # by row and column
    after: Sequence[str] = ()  # sentences below it


# ------------------------------------------------------------------ numbers as text


def accuracy(row: Row, what: str = "accuracy", digits: int = 2) -> str:
    """``mean ± std`` in percent, without a spread that is not there. ``what``: ``accuracy`` or ``fold_mean``."""
    std = row[f"{what}_std"]
    alone = row["seeds"] == 1 or std is None or (row["budget"] is None and std == 0)
    return f"{row[what]:.{digits}f}" + ("" if alone else f" ± {std:.{digits}f}")


def span(low: float, high: float, digits: int = 1) -> str:
    """An interval."""
    return f"{low:.{digits}f} - {high:.{digits}f}"


def interval(row: Row, name: str, factor: float = 1.0, digits: int = 2) -> str:
    """A score of a row with its 95 % interval, ``name_low`` to ``name_high``; empty where there is none."""
    value, low, high = (factor * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "" if value != value else f"{value:.{digits}f} ({span(low, high, digits)})"


def score(value: float, digits: int = 3) -> str:
    """A score; empty where it is not defined, as with test subjects of one class."""
    return "" if value != value else f"{value:.{digits}f}"


def score_texts(row: Row, *names: str, digits: int = 2) -> list[str]:
    """Accuracy, its interval and its mean over folds in percent, then the named scores."""
    means = [accuracy(row, digits=digits), span(row["ci95_low"], row["ci95_high"]), f"{row['fold_mean']:.{digits}f}"]
    return [*means, *(score(row[name]) for name in names)]


def _published(cell: Cell) -> tuple[str, str]:
    """The paper's number, and our fold mean minus it."""
    if cell.published is None:
        return "", ""
    mean, std = cell.published
    return f"{mean:.2f} ± {std:.2f}", f"{cell.row['fold_mean'] - mean:+.2f}"


# ------------------------------------------------------------------ a cohort and split


class BlockSheets(NamedTuple):
    """All tables of one cohort and split; the terminal, Markdown and LaTeX print those that they need."""

    title: str
    cells: Sequence[Cell]
    overview: Sheet  # the layout of the paper's Table 1
    scores: Sequence[Sheet]
    published: Sequence[Sheet]
    sites: Sequence[Sheet]
    clinical: Sequence[Sheet]
    pairs: Sequence[Sheet]


def blocks(report: BenchmarkReport) -> list[BlockSheets]:
    """The tables of each cohort and split of a report."""
    names = list(dict.fromkeys(c.label for c in report.cells if not c.is_baseline and not c.averaged))
    found = []
    for (cohort, split), block in report.blocks().items():
        title, cells = f"{cohort}, {split}", [cell for section in block.values() for cell in section]
        compared = {place: own for place, own in report.comparisons.items() if place in block}
        found.append(BlockSheets(
            title, cells, _table1(title, block, cells, names), scores(block, ranks(cells)), with_published(block),
            sites(_named(block, averaged=False)), clinical(_named(block)),
            [comparisons(own, f"{place.title}: pairs of methods") for place, own in compared.items()],
        ))  # fmt: skip
    return found


def ranks(cells: Sequence[Cell]) -> dict[int, Mark]:
    """Indices of the most accurate cell and the second; ties share a mark. Averaged seeds are not ranked."""
    values = {i: round(cell.row["accuracy"], 2) for i, cell in enumerate(cells) if not cell.averaged}
    order = sorted(set(values.values()), reverse=True)
    names: tuple[Mark, ...] = ("best", "second")
    marks = dict(zip(order[:-1], names, strict=False))  # the lowest has no mark
    return {i: marks[value] for i, value in values.items() if value in marks}


def scores(block: Block, marks: Mapping[int, Mark]) -> list[Sheet]:
    """One table for the baselines and one for each network section; best and second are of the whole block."""
    sheets, start = [], 0
    columns = ["method", "accuracy", "95 %", "fold mean", "balanced", "AUROC", "seeds"]
    for place, cells in block.items():
        rows = [
            [cell.row_name, *score_texts(cell.row, "balanced_accuracy", "auroc"), str(cell.row["seeds"])]
            for cell in cells
        ]
        here = {(i, 1): marks[start + i] for i in range(len(cells)) if start + i in marks}
        sheets.append(Sheet(place.title, columns, rows, here, after=_changes(cells)))
        start += len(cells)
    return sheets


def _changes(cells: Sequence[Cell]) -> list[str]:
    """Settings that differ from recipe and budget, and the number of sub-bag pairs."""
    changed: dict[str, list[str]] = {}
    for cell in cells:
        settings = [f"{key}={value}" for key, value in cell.changed.items()]
        if cell.row["subbag_pairs"] is not None and "stage1.subbag_pairs" not in cell.changed:
            settings.append(f"subbag_pairs {cell.row['subbag_pairs']:.0f}, as in the budget")
        if settings and not cell.averaged:
            changed.setdefault(", ".join(settings), []).append(cell.label)
    adjusted = [f"{cell.label}: {cell.results.adjustment}" for cell in cells if cell.results.adjustment]
    return [f"{', '.join(labels)}: {settings}" for settings, labels in changed.items()] + adjusted


def with_published(block: Block) -> list[Sheet]:
    """Our numbers, the paper's and the difference: one table for each section that has numbers of the paper."""
    columns = ["method", "ours (fold mean)", "paper", "ours - paper"]
    rows = {
        place.title: [[c.label, accuracy(c.row, "fold_mean"), *_published(c)] for c in cells if c.published]
        for place, cells in block.items()
    }
    return [Sheet(f"{title}, and the paper's", columns, own) for title, own in rows.items() if own]


def _table1(title: str, block: Block, cells: Sequence[Cell], names: Sequence[str]) -> Sheet:
    """Networks by backbone and method: accuracies, intervals, and where there are any the paper's numbers."""
    rows, marks = list[list[str]](), dict[tuple[int, int], Mark]()
    for place, section in block.items():
        single = [cell for cell in section if not cell.averaged]
        if not place.backbone:
            continue
        marks |= {(len(rows), 1 + names.index(single[i].label)): mark for i, mark in ranks(single).items()}
        shown: dict[str, Callable[[Cell], str]] = {
            place.title: lambda cell: accuracy(cell.row),
            "95 %": lambda cell: span(cell.row["ci95_low"], cell.row["ci95_high"]),
        }
        if any(cell.published for cell in single):
            shown["fold mean"] = lambda cell: accuracy(cell.row, "fold_mean")
            shown["paper"] = lambda cell: _published(cell)[0]
            shown["ours - paper"] = lambda cell: _published(cell)[1]
        by_name = {cell.label: cell for cell in single}
        rows += [[row, *(text(by_name[n]) if n in by_name else "" for n in names)] for row, text in shown.items()]
    baselines = ", ".join(f"{cell.label} {accuracy(cell.row)}" for cell in cells if cell.is_baseline)
    after = [*([f"Baselines: {baselines}."] if baselines else []), facts(cells), INTERVAL, *caveats(cells)]
    return Sheet(title, ["backbone", *names], rows, marks, after)


def _named(block: Block, averaged: bool = True) -> list[tuple[str, Results]]:
    """Labels and results of a cohort and split; labels name the section where there are several backbones."""
    several = sum(bool(place.backbone) for place in block) > 1
    return [
        (f"{cell.label}, {place.title}" if several and place.backbone else cell.label, cell.results)
        for place, cells in block.items()
        for cell in cells
        if averaged or not cell.averaged
    ]


def facts(cells: Sequence[Cell]) -> str:
    """Number of subjects and chance level of a cohort and split."""
    row = max((cell.row for cell in cells), key=lambda row: row["n_subjects"])
    fewer = [(cell.label, n) for cell in cells if (n := cell.row["n_subjects"]) < row["n_subjects"]]
    return macro(TEXTS, "facts")(row, fewer)


def caveats(cells: Sequence[Cell]) -> list[str]:
    """Differences from the paper's setting, where its numbers are shown."""
    published = [cell for cell in cells if cell.published]
    reasons = sorted({reason for cell in published for reason in cell.caveats})
    return [macro(TEXTS, "caveats")(reasons)] if published else []


# ------------------------------------------------------------------ tables of results on one cohort and split


def sites(several: Sequence[tuple[str, Results]]) -> list[Sheet]:
    """Results of each group that was left out, and how scores follow the covariates that were adjusted for."""
    found = []
    for label, results in several:
        rows = [
            [str(row["group"]), str(row["n"]), interval(row, "accuracy", 100, 0),
             *(interval(row, name) for name in GROUP_SCORES)]
            for row in results.groups.to_dict("records")
        ]  # fmt: skip
        if rows:
            column = results.split.get("groups", "group")
            title = f"{label}: each {column} tested by models of the others"
            columns = [f"{column} left out", "n", "accuracy % (95 %)", "balanced (95 %)", "AUROC (95 %)"]
            found.append(Sheet(title, columns, rows, after=[results.adjustment] if results.adjustment else []))
    for label, results in several:  # with the unadjusted method, if it is among the results
        plain = results.settings.unadjusted
        table = results.covariates(next((other for _, other in several if other.settings == plain), None))
        titles = {"before": "score, unadjusted (95 %)", "score": "score, adjusted (95 %)"}
        titles = {name: title for name, title in titles.items() if name in table}
        rows = [
            [str(row["covariate"]), score(row["diagnosis"], 2), *(interval(row, name) for name in titles)]
            for row in table.to_dict("records")
        ]
        if rows:
            columns = ["covariate", "diagnosis", *titles.values()]
            found.append(Sheet(f"{label}: how scores follow the covariates", columns, rows, after=[DIAGNOSIS]))
    return found


def tuning(result: Results) -> Sheet:
    """The settings that each fold chose, and those with the lowest Brier score within its training subjects."""

    def text(changes: Mapping[str, Any]) -> str:
        return ", ".join(f"{key}={value}" for key, value in changes.items())

    rows = [
        [" ".join(filter(None, (row.get("member"), f"seed {row['seed']}, fold {row['fold']}"))), text(row["chosen"]),
         f"{row['brier']:.3f}", text(row["lowest"]), f"{row['lowest_brier']:.3f} ± {row['se']:.3f}"]
        for row in result.tuning
    ]  # fmt: skip
    title = f"{result.name}: settings chosen within the training subjects of each fold"
    return Sheet(title, ["fold", "chosen", "Brier", "lowest", "Brier ± SE"], rows, after=[TUNED])


def comparisons(compared: Sequence[Comparison], title: str) -> Sheet:
    """One row per pair of methods of one family."""
    rows = [
        [
            f"{c.one} - {c.other}", points(c.difference), f"{points(c.low)} to {points(c.high)}", f"{c.p:.3f}",
            f"{c.p_holm:.3f}", str(c.splits),
            "n.s." if not c.significant else "higher" if c.difference > 0 else "lower",
        ]
        for c in compared
    ]  # fmt: skip
    return Sheet(title, ["pair", "points", "95 %", "p", "p, Holm", "splits", "verdict"], rows)


def clinical(results: Sequence[tuple[str, Results]]) -> list[Sheet]:
    """Sensitivity, specificity and predictive values with intervals, in percent.

    ``results`` are labels and results on one cohort and split, with the same clinical options.
    """
    found = [(label, one.clinical) for label, one in results]
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
    after = [f"{each[0][1].method} {INTERVALS}"]
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
