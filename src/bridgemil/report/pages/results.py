"""The page of a folder of runs: results, calibration, who is always wrong, curves, settings and a methods section."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bridgemil.evaluation.metrics import calibration_summary
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS
from bridgemil.methods import colour
from bridgemil.report import templating
from bridgemil.report.benchmark import BenchmarkReport, Cell, Place
from bridgemil.report.pages.charts import calibration_bins, calibration_chart, curves_chart
from bridgemil.report.pages.clinical_part import clinical_part
from bridgemil.report.pages.methods import methods_text
from bridgemil.report.tables import caveats
from bridgemil.runs import RunStore


def report_page(report: BenchmarkReport, store: RunStore) -> str:
    """The page of a folder of runs, as text.

    Parameters
    ----------
    report : BenchmarkReport
        From ``bridgemil.report.benchmark.build``.
    store : RunStore
        The folder of its runs.
    """
    groups = [_group(number, key, cells, report, store) for number, (key, cells) in enumerate(report.groups().items())]
    return templating.page(
        "report.html.j2",
        heading=f"Results of {store.root.name}",
        audit_warnings=report.warnings,
        groups=groups,
        remarks=report.remarks,
        score_intervals=SCORE_INTERVALS,
        compared=COMPARED,
    )


def _group(
    number: int, place: Place, cells: Sequence[Cell], report: BenchmarkReport, store: RunStore
) -> dict[str, Any]:
    first = cells[0].results.summary.iloc[0].to_dict()
    return {
        "id": f"group-{number + 1}",
        "title": f"{place.cohort}, {place.split}, {place.title}",
        "rows": [cell.results.summary.iloc[0].to_dict() | {"label": cell.label} for cell in cells],
        "first": first,
        "split": cells[0].split.title,
        "classes": cells[0].results.classes,
        "caveats": caveats(cells),
        "comparisons": [comparison.corrected_sentence for comparison in report.comparisons.get(place, [])],
        "clinical": clinical_part(cells),
        "confusions": [_confusion(cell) for cell in cells],
        "calibrations": [_calibration(cell) for cell in cells],
        "outcomes": _outcomes(cells),
        "curves": [chart for cell in cells for chart in _curves(cell)],
        "settings": [_settings(cell) for cell in cells],
        "methods": methods_text(cells, store),
    }


def _confusion(cell: Cell) -> dict[str, Any]:
    rows = []
    for name, counts in cell.results.confusion.iterrows():
        total = float(counts.sum()) or 1.0
        values = [
            {"text": f"{value:g}" if value == int(value) else f"{value:.1f}", "share": float(value) / total,
             "right": str(said) == str(name)}
            for said, value in counts.items()
        ]  # fmt: skip
        rows.append({"name": str(name), "values": values})
    return {"label": cell.label, "rows": rows}


def _calibration(cell: Cell) -> dict[str, Any]:
    held_out = cell.results.predictions, cell.results.classes
    chart = calibration_chart(calibration_bins(*held_out), colour(cell.label))
    return {"label": cell.label, "chart": chart, "error": calibration_summary(*held_out)}


def _outcomes(cells: Sequence[Cell]) -> dict[str, Any]:
    """A row a person: how often each method was right over its seeds; those who are always wrong come first."""
    right = {}
    for cell in cells:
        predictions = cell.results.predictions
        correct = (predictions["label"] == predictions["predicted"]).astype(float)
        right[cell.label] = correct.groupby(predictions["subject"]).mean()
    labels = cells[0].results.predictions.drop_duplicates("subject").set_index("subject")["label"]
    rows = []
    for subject, label in zip(map(str, labels.index), labels, strict=True):
        shares = [float(right[cell.label][subject]) for cell in cells]
        rows.append(
            {"subject": subject, "label": str(label), "shares": shares, "mean": sum(shares) / len(shares),
             "always_wrong": max(shares) == 0}
        )  # fmt: skip
    rows.sort(key=lambda row: (row["mean"], row["subject"]))
    names = [row["subject"] for row in rows if row["always_wrong"]]
    return {"rows": rows, "names": [cell.label for cell in cells], "n_wrong": len(names), "wrong": names}


def _curves(cell: Cell) -> list[dict[str, Any]]:
    """A chart for each phase of training; none of a baseline."""
    curves = cell.results.curves
    if curves.empty:
        return []
    found = []
    by = ["phase"] + (["member"] if "member" in curves else [])
    for names, rows in curves.groupby(by, sort=False):
        validated = "validation_loss" in rows and bool(rows["validation_loss"].notna().any())
        columns = {"loss": ""} | ({"validation_loss": "dashed"} if validated else {})
        chart = curves_chart(rows, columns, colour(cell.label))
        phase = {"bags": "training on people", "windows": "training on windows"}.get(str(names[0]), str(names[0]))
        title = ", ".join([cell.label, *map(str, names[1:]), phase])
        found.append({"title": title, "chart": chart, "validated": validated})
    return found


def _settings(cell: Cell) -> dict[str, Any]:
    content = cell.results.settings.model_dump(mode="json", exclude_none=True)
    return {
        "label": cell.label,
        "text": json.dumps(content, indent=1, ensure_ascii=False),
        "hash": cell.results.settings.hash[:12],
        "changed": "; ".join(f"{key} = {value}" for key, value in cell.changed.items()),
    }
