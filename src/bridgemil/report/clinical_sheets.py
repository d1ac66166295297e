"""Clinical metrics as tables of words: for the terminal, Markdown, the report's page and the checklist."""

from __future__ import annotations

from collections.abc import Sequence

from bridgemil.evaluation.clinical import INTERVALS, PerClassMetrics, TwoClassMetrics
from bridgemil.evaluation.results import Results
from bridgemil.report.benchmark_sheets import Sheet

Named = Sequence[tuple[str, Results]]  # what a method is called, and its results


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
    after = [*each[0][1].sentences, INTERVALS]
    return [Sheet("Sensitivity and specificity of each class, % (95 %)", ["method", *names], rows, after=after)]


def _two_classes(two: Sequence[tuple[str, TwoClassMetrics]]) -> list[Sheet]:
    first = two[0][1]
    columns = ["method", "sensitivity", "specificity", "PPV", "NPV"]
    rows = [[label, *map(str, found.measures.values())] for label, found in two]
    after = [*first.sentences, INTERVALS]
    if not first.thresholds.empty:
        ranges = "; ".join(f"{label.strip()} {found.threshold_range}" for label, found in two)
        after.insert(1, f"Thresholds of the folds, as probabilities of {first.positive}: {ranges}.")
    after += [f"WARNING: {label}: {found.unreached}." for label, found in two if found.unreached]
    sheets = [Sheet(f"Clinical metrics, positive class {first.positive}, % (95 %)", columns, rows, after=after)]
    if first.options.prevalence is not None:
        rows = [[label, *map(str, found.at_prevalence.values())] for label, found in two]
        title = f"At a prevalence of {100 * first.options.prevalence:g} %, % (95 %)"
        note = "By Bayes' rule from sensitivity and specificity, on whose intervals the intervals rest (MOVER)."
        sheets.append(Sheet(title, ["method", "PPV", "NPV"], rows, after=[note]))
    return sheets
