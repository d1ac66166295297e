"""Clinical metrics on the report's page: their tables, and ROC, precision-recall and decision curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridgemil.evaluation.clinical import TwoClassMetrics
from bridgemil.methods import colour
from bridgemil.report.benchmark import Cell
from bridgemil.report.pages.charts import Line, lines_chart
from bridgemil.report.tables import clinical

FEW = 2  # of more methods no bands are drawn: they would hide each other
Found = Sequence[tuple[str, TwoClassMetrics]]


def clinical_part(cells: Sequence[Cell]) -> dict[str, Any]:
    """What the template shows of cells of one cohort and split; no charts of more than two classes."""
    sheets = clinical([(cell.label, cell.results) for cell in cells])
    two = [(cell.label, found) for cell in cells if isinstance(found := cell.results.clinical, TwoClassMetrics)]
    if not two:
        return {"sheets": sheets, "charts": [], "notes": []}
    prevalence = two[0][1].decision.prevalence
    benefit = (
        "Decision curve: net benefit (true positives per subject, false positives weighed by the odds of the threshold "
        f"probability) at a prevalence of {100 * prevalence:.0f} %, beside treating everyone (dashed, falling) and "
        "nobody (dashed, 0). It presumes calibrated probabilities."
    )
    if len(two) <= FEW:
        benefit += " Shaded: pointwise 95 % intervals."
    points = (
        "Dot: the operating point; where thresholds differ between folds it need not lie on the curve. Dashed: chance. "
        "Several seeds: mean over seeds at each number of false positives (ROC) and of patients found "
        "(precision-recall)."
    )
    return {"sheets": sheets, "charts": [_roc(two), _pr(two), _decision(two)], "notes": [points, benefit]}


def _pairs(x: Any, y: Any) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]


def _roc(two: Found) -> dict[str, Any]:
    lines = []
    for label, found in two:
        here = found.measures
        spot = 1 - here["specificity"].value, here["sensitivity"].value
        lines.append(Line(_pairs(found.roc.x, found.roc.y), colour(label), label, spot))
    chart = lines_chart(lines, ("1 - specificity", "sensitivity", "ROC curve"), reference=[[(0, 0), (1, 1)]])
    return {"title": "ROC", "chart": chart, "legend": [(label, f"AUROC {f.roc.area:.3f}") for label, f in two]}


def _pr(two: Found) -> dict[str, Any]:
    share = float(two[0][1].y.mean())
    lines = []
    for label, found in two:
        here = found.measures
        spot = (here["sensitivity"].value, here["ppv"].value) if here["ppv"].n else None
        lines.append(Line(_pairs(found.pr.x, found.pr.y), colour(label), label, spot))
    names = ("recall (sensitivity)", "precision (PPV)", "Precision-recall curve")
    chart = lines_chart(lines, names, reference=[[(0, share), (1, share)]])
    legend = [(label, f"average precision {found.pr.area:.3f}") for label, found in two]
    return {"title": "Precision-recall", "chart": chart, "legend": legend}


def _decision(two: Found) -> dict[str, Any]:
    lines, high = [], 0.0
    for label, found in two:
        curve = found.decision
        high = max(high, curve.prevalence, float(curve.net_benefit.max()))
        outline = [*_pairs(curve.threshold, curve.high), *_pairs(curve.threshold[::-1], curve.low[::-1])]
        points = _pairs(curve.threshold, curve.net_benefit)
        lines.append(Line(points, colour(label), label, band=outline if len(two) <= FEW else ()))
    first = two[0][1].decision
    reference = [_pairs(first.threshold, first.treat_all), [(0.0, 0.0), (1.0, 0.0)]]
    names = ("threshold probability", "net benefit", "Decision curve")
    chart = lines_chart(lines, names, low=-0.25 * high, high=1.1 * high, reference=reference)
    return {"title": f"Decision curve at a prevalence of {100 * first.prevalence:.0f} %", "chart": chart,
            "legend": [(label, "") for label, _ in two]}  # fmt: skip
