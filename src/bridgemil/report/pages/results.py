"""The pages of results: of a folder of runs, of the demo, and of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.audit.findings import Audit
from bridgemil.evaluation.calibration import calibration_summary
from bridgemil.evaluation.clinical import TwoClassMetrics
from bridgemil.evaluation.metrics import correctness
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, corrected
from bridgemil.methods import colour
from bridgemil.report import templating
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.pages import charts
from bridgemil.report.pages.methods import methods_text
from bridgemil.report.tables import caveats, clinical, sites
from bridgemil.report.terminal import recipe
from bridgemil.runs import merged

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results

NOTES: dict[str, Any] = {"score_intervals": SCORE_INTERVALS, "compared": COMPARED}


def report_page(report: BenchmarkReport) -> str:
    """The page of a folder of runs, as text."""
    groups = [
        {
            "id": f"group-{number}",
            "title": f"{place.cohort}, {place.split}, {place.title}",
            "cells": cells,
            "rows": _rows((cell.label, cell.results) for cell in cells),
            "caveats": caveats(cells),
            "comparisons": report.comparisons.get(place, []),
            "adjusted": [f"{cell.label}: {cell.results.adjustment}" for cell in cells if cell.results.adjustment],
            "site_sheets": sites([(cell.label, cell.results) for cell in cells]),
            "clinical_sheets": clinical([(cell.label, cell.results) for cell in cells]),
            "clinical_charts": charts.clinical_charts(
                {cell.label: found for cell in cells if isinstance(found := cell.results.clinical, TwoClassMetrics)}
            ),
            "calibrations": [_calibration(cell) for cell in cells],
            "outcomes": _outcomes(cells),
            "curves": _curves(cells),
            "methods": methods_text(cells, report.store),
        }
        for number, (place, cells) in enumerate(report.groups().items(), 1)
    ]
    return templating.page(
        "report.html.j2", heading=f"Results of {report.store.root.name}", audit_warnings=report.warnings, groups=groups,
        remarks=report.remarks, **NOTES,
    )  # fmt: skip


def demo_page(
    cohort: Cohort,
    results: Sequence[Results],
    found: Mapping[str, Mapping[str, Any]] | None = None,
    example: charts.Chart | None = None,
    held_out: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of the demo, as text: the results of each method on a cohort of real recordings.

    ``found`` is how well attention weights rank the true evidence of simulated patients, by method, ``example`` the
    weights of one of them; ``held_out`` are subjects kept out of training: ``subject, label, predicted, probabilities,
    warnings, page``.
    """
    baselines = [result for result in results if not result.settings.is_network]
    pairs = [result.compare(other) for result in results if result.settings.is_network for other in baselines]
    return templating.page(
        "demo.html.j2",
        heading="bridgemil demo",
        audit_warnings=merged(*(result.warnings for result in results)),
        rows=_rows((result.name, result) for result in results),
        comparisons=corrected(pairs),
        cohort=cohort,
        charts=[charts.spectrum_chart(cohort), *([example] if example else [])],
        found=found or {},
        held_out=held_out,
        recipes=[recipe(result) for result in results],
        **NOTES,
    )


def audit_page(audit: Audit) -> str:
    """The page of an audit, as text: every finding, its evidence and the fix."""
    return templating.page("audit.html.j2", heading=f"Audit of {Path(audit.cohort).name}", audit=audit)


def _rows(named: Iterable[tuple[str, Results]]) -> list[dict[str, Any]]:
    return [dict(results.summary.iloc[0]) | {"label": label} for label, results in named]


def _calibration(cell: Cell) -> dict[str, Any]:
    held_out = cell.results.predictions, cell.results.classes
    chart = charts.calibration_chart(charts.calibration_bins(*held_out), colour(cell.label))
    return {"label": cell.label, "chart": chart, "error": calibration_summary(*held_out)}


def _outcomes(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For each subject the share of seeds in which each method was correct; the least often correct come first."""
    import pandas as pd

    tables = [cell.results.predictions for cell in cells]
    labels: dict[str, str] = dict(tables[0][["subject", "label"]].itertuples(index=False))
    shares = pd.concat([correctness(table) for table in tables], axis=1)
    rows = [
        {"subject": str(subject), "label": labels[str(subject)], "shares": list(row), "mean": float(row.mean())}
        for subject, row in shares.iterrows()
    ]
    return sorted(rows, key=lambda row: (row["mean"], row["subject"]))


def _curves(cells: Sequence[Cell]) -> list[charts.Chart]:
    """A chart for each phase of training; a method that is also a member of an ensemble is shown once."""
    phases = {"bags": "training on bags", "windows": "training on windows"}
    found = {}
    for cell in cells:
        results = cell.results
        for name, one in (results.members or {"": results}).items():
            for phase, rows in one.curves.groupby("phase", sort=False) if len(one.curves) else ():
                title = ", ".join(filter(None, [cell.label, name, phases.get(str(phase), str(phase))]))
                key = one.settings.hash, phase
                if key not in found or not name:  # a method of its own goes before a member of an ensemble
                    found[key] = charts.training_chart(title, rows, colour(name or cell.label))
    return list(found.values())
