"""Clinical metrics as tables of words: for the terminal, Markdown, the report's page and the checklist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bridgemil.errors import BadUse
from bridgemil.evaluation.clinical import INTERVALS, TITLES, ClinicalOptions, PerClassMetrics, TwoClassMetrics
from bridgemil.evaluation.results import Results
from bridgemil.report.benchmark_sheets import Sheet
from bridgemil.report.benchmark_table import BenchmarkReport, Cell, Place

Named = Sequence[tuple[str, Results]]  # what a method is called, and its results


def with_clinical_options(report: BenchmarkReport, options: ClinicalOptions) -> None:
    """Apply the user's options to every experiment of a report.

    Cohorts of more than two classes have no options; a cohort without the named positive class keeps its default, and
    a remark says so. Where no cohort takes the options they are refused.

    Parameters
    ----------
    report
        Its cells are replaced.
    options
        Positive class, operating point and prevalence.
    """
    if options == ClinicalOptions():
        return
    chosen: dict[str, ClinicalOptions] = {}
    for cell in report.cells:
        classes = cell.results.classes
        if len(classes) == 2:
            there = options.positive is None or options.positive in classes
            chosen[cell.cohort] = options if there else replace(options, positive=None)
            if not there:
                report.remarks.append(f"{cell.cohort} has no class {options.positive}: its default positive class")
    if not chosen or all(used.positive != options.positive for used in chosen.values()):
        every = sorted({name for cell in report.cells for name in cell.results.classes})
        raise BadUse(
            "--positive, --operating-point and --prevalence are for two classes, one of them the positive one; the "
            f"classes of these runs are {', '.join(every)}"
        )
    report.remarks[:] = dict.fromkeys(report.remarks)
    report.cells[:] = [
        replace(cell, results=replace(cell.results, clinical_options=chosen[cell.cohort]))
        if cell.cohort in chosen
        else cell
        for cell in report.cells
    ]


def block_sheets(block: Mapping[Place, Sequence[Cell]]) -> list[Sheet]:
    """The clinical metrics of a cohort and split; networks of several backbones are told apart by their section."""
    several = sum(bool(place.backbone) for place in block) > 1
    return clinical_sheets(
        [
            (f"{cell.label}, {place.title}" if several and place.backbone else cell.label, cell.results)
            for place, cells in block.items()
            for cell in cells
        ]
    )


def clinical_sheets(named: Named) -> list[Sheet]:
    """Sensitivity, specificity and predictive values with intervals, in percent.

    Parameters
    ----------
    named
        Methods on one cohort and split, with the same clinical options.
    """
    two = [(label, found) for label, results in named if isinstance(found := results.clinical, TwoClassMetrics)]
    if two:
        return _two_classes(two)
    each = [(label, found) for label, results in named if isinstance(found := results.clinical, PerClassMetrics)]
    names = list(each[0][1].classes)
    rows = [
        [f"{label}, {measure}", *(str(found.classes[name][measure]) for name in names)]
        for label, found in each
        for measure in ("sensitivity", "specificity")
    ]
    after = [" ".join([*each[0][1].sentences, INTERVALS])]
    return [Sheet("Sensitivity and specificity of each class, % (95 %)", ["method", *names], rows, after=after)]


def _two_classes(two: Sequence[tuple[str, TwoClassMetrics]]) -> list[Sheet]:
    first = two[0][1]
    columns = ["method", *TITLES.values()]
    rows = [[label, *map(str, found.measures.values())] for label, found in two]
    lines = [*first.sentences, INTERVALS]
    if not first.thresholds.empty:
        ranges = "; ".join(f"{label.strip()} {found.threshold_range}" for label, found in two)
        lines.insert(1, f"Thresholds of the folds, as probabilities of {first.positive}: {ranges}.")
    after = [" ".join(lines), *(f"WARNING: {label}: {found.unreached}." for label, found in two if found.unreached)]
    title = f"Sensitivity, specificity and predictive values, positive class {first.positive}, % (95 %)"
    sheets = [Sheet(title, columns, rows, after=after)]
    if first.options.prevalence is not None:
        rows = [[label, *map(str, found.at_prevalence.values())] for label, found in two]
        title = f"Predictive values at a prevalence of {100 * first.options.prevalence:g} %, % (95 %)"
        note = "By Bayes' rule from sensitivity and specificity, whose intervals are combined (MOVER)."
        sheets.append(Sheet(title, ["method", "PPV", "NPV"], rows, after=[note]))
    return sheets
