"""Charts of the pages: what is drawn, in data coordinates. The macro ``chart`` of ``parts.html.j2`` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgemil.evaluation.clinical import TwoClassMetrics
from bridgemil.evaluation.metrics import wilson
from bridgemil.methods import colour
from bridgemil.plots import quartiles
from bridgemil.registry import class_colour

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.cohort.cohort import Cohort

WIDTH, HEIGHT = 300, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 290, 10, 186  # of the plotting area
BINS = 5  # of a calibration curve; each holds the same number of predictions
FEW = 2  # of more methods no confidence bands are drawn: they would hide each other
UNIT = {0.0: "0", 0.5: "0.5", 1.0: "1"}
Points = Sequence[tuple[float, float]]


class Mark(NamedTuple):
    """Something drawn; ``style`` is its CSS class (``spot``: a circle at the first point, ``note`` its tooltip)."""

    style: str
    points: Points
    colour: str = "var(--ink)"
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart; the first and last tick of an axis are its limits, and what is outside is cut off."""

    title: str
    axes: tuple[str, str]  # titles of the horizontal and the vertical one
    x: Mapping[float, str]  # ticks in ascending order and their labels
    y: Mapping[float, str]
    marks: Sequence[Mark]  # in the order of drawing
    legend: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name to colour and further text

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Data to SVG coordinates."""
        across = np.interp(x, (min(self.x), max(self.x)), (LEFT, RIGHT))
        down = np.interp(y, (min(self.y), max(self.y)), (BOTTOM, TOP))
        return round(float(across), 1), round(float(down), 1)

    def path(self, mark: Mark) -> str:
        """The ``d`` of an SVG path; empty without finite points."""
        low = min(self.y) if mark.style in ("curve", "reference") else -np.inf
        kept = [self.at(x, y) for x, y in mark.points if np.isfinite(y) and y >= low]
        return f"M{'L'.join(f'{x:g} {y:g}' for x, y in kept)}" if kept else ""


def _pairs(x: Any, y: Any) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]


def _outline(x: Any, low: Any, high: Any) -> list[tuple[float, float]]:
    return [*_pairs(x, high), *_pairs(x[::-1], low[::-1])]


def _ticks(values: Any, form: str = "g") -> dict[float, str]:
    return {float(value): f"{value:{form}}" for value in values}


def calibration_chart(predictions: pd.DataFrame, classes: Sequence[str], hue: str) -> Chart:
    """Predicted probability against observed frequency in bins of equal size, with 95 % intervals and the diagonal.

    With two classes, of the second one's held-out probabilities; with more, of all, each class against the rest. Seeds
    predict the same subjects, so an interval counts each subject once.
    """
    shown = classes[1:] if len(classes) == 2 else classes
    predicted = np.concatenate([predictions[f"p_{name}"].to_numpy(dtype=float) for name in shown])
    true = np.concatenate([(predictions["label"] == name).to_numpy(dtype=float) for name in shown])
    seeds, order = int(predictions["seed"].nunique()), np.argsort(predicted, kind="stable")
    bins = np.array_split(order, min(BINS, len(order)))
    spots = [(float(predicted[part].mean()), float(true[part].mean())) for part in bins]
    marks = [Mark("axis", [(0, 0), (1, 1)]), Mark("curve", spots, hue)]
    for (p, share), n in zip(spots, map(len, bins), strict=True):
        low, high = wilson(share, max(1.0, n / seeds))
        marks.append(Mark("whisker", [(p, low), (p, high)], hue))
        marks.append(Mark("spot", [(p, share)], hue, f"predicted {p:.0%}, observed {share:.0%} ({n} predictions)"))
    return Chart("Calibration", ("predicted probability", "observed frequency"), UNIT, UNIT, marks)


def training_chart(title: str, curves: pd.DataFrame, hue: str) -> Chart:
    """Loss over epochs: a thin line for each fold and seed, a thick one for their mean; dashed: validation loss."""
    validated = "validation_loss" in curves and bool(curves["validation_loss"].notna().any())
    columns = {"loss": ""} | ({"validation_loss": " dashed"} if validated else {})
    values = curves[list(columns)].to_numpy(dtype=float)
    low, high = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
    marks = []
    for column, style in columns.items():
        for _, run in curves.groupby(["seed", "fold"]):
            marks.append(Mark(f"curve thin{style}", _pairs(run["epoch"], run[column]), hue))
        mean = curves.groupby("epoch")[column].mean()
        marks.append(Mark(f"curve{style}", _pairs(mean.index, mean), hue))
    last = max(1, int(curves["epoch"].max()))
    limits = (low, high if high > low else low + 1)
    return Chart(title, ("epoch", "loss"), {0: "1", last: str(last + 1)}, _ticks(limits, ".3g"), marks)


def clinical_charts(found: Mapping[str, TwoClassMetrics]) -> list[Chart]:
    """ROC, precision-recall and decision curves of methods on the same subjects, by label; none for one class."""
    found = {name: one for name, one in found.items() if one.has_curves}
    if not found:
        return []
    first = next(iter(found.values()))
    share, prevalence = float(first.y.mean()), first.decision.prevalence
    roc, pr = [Mark("reference", [(0, 0), (1, 1)])], [Mark("reference", [(0, share), (1, share)])]
    decision = [
        Mark("reference", _pairs(first.decision.threshold, first.decision.treat_all)),
        Mark("reference", [(0, 0), (1, 0)]),
    ]
    legends: list[dict[str, tuple[str, str]]] = [{}, {}, {}]
    for name, one in found.items():
        hue, net = colour(name), one.decision
        sensitivity, specificity, ppv = (one.measures[key] for key in ("sensitivity", "specificity", "ppv"))
        roc += [Mark("curve", _pairs(one.roc.x, one.roc.y), hue)]
        roc += [Mark("spot", [(1 - specificity.value, sensitivity.value)], hue)]
        pr += [Mark("curve", _pairs(one.pr.x, one.pr.y), hue)]
        pr += [Mark("spot", [(sensitivity.value, ppv.value)], hue)] if ppv.n else []
        decision += [Mark("band", _outline(net.threshold, net.low, net.high), hue)] if len(found) <= FEW else []
        decision += [Mark("curve", _pairs(net.threshold, net.net_benefit), hue)]
        texts = f"AUROC {one.roc.area:.3f}", f"average precision {one.pr.area:.3f}", ""
        for legend, text in zip(legends, texts, strict=True):
            legend[name] = (hue, text)
    high = max(prevalence, *(float(one.decision.net_benefit.max()) for one in found.values()), 0.0)
    benefit = {value: f"{value:.2g}" for value in (-0.25 * high, 0.0, 1.1 * high)}
    title = f"Decision curve at a prevalence of {100 * prevalence:.0f} %"
    return [
        Chart("ROC", ("1 - specificity", "sensitivity"), UNIT, UNIT, roc, legends[0]),
        Chart("Precision-recall", ("recall (sensitivity)", "precision (PPV)"), UNIT, UNIT, pr, legends[1]),
        Chart(title, ("threshold probability", "net benefit"), UNIT, benefit, decision, legends[2]),
    ]


def spectrum_chart(cohort: Cohort) -> Chart:
    """Power spectra by class: median and quartiles over subjects, in decibels."""
    marks, legend = [], {}
    (frequency, density), labels = cohort.spectra(), np.array(cohort.labels)
    values = np.stack([quartiles(density[labels == name]) for name in cohort.classes])
    for k, (name, (low, median, high)) in enumerate(zip(cohort.classes, values, strict=True)):
        marks.append(Mark("band", _outline(frequency, low, high), class_colour(k)))
        marks.append(Mark("curve", _pairs(frequency, median), class_colour(k)))
        legend[name] = (class_colour(k), f"({cohort.labels.count(name)})")
    ticks = np.arange(10 * np.floor(values.min() / 10), 10 * np.ceil(values.max() / 10) + 1, 10)
    edges = np.linspace(0, 5 * np.ceil(frequency[-1] / 5), 4)
    axes = "frequency (Hz)", "power (dB re 1 µV²/Hz)"
    return Chart("Power spectra", axes, _ticks(edges), _ticks(ticks), marks, legend)


def weights_chart(subject: str, starts: Any, truth: Any, weights: Mapping[str, Any]) -> Chart:
    """Attention weights (n,) of one subject by method, and where the evidence is: ``truth`` by window."""
    width = float(np.median(np.diff(starts))) if len(starts) > 1 else 1.0
    top = max(float(np.max(own)) for own in weights.values())
    boxes = [[(t, 0), (t, top), (t + width, top), (t + width, 0)] for t in map(float, starts[truth])]
    marks = [Mark("band", box) for box in boxes]
    marks += [Mark("curve", _pairs(starts + width / 2, own), colour(name)) for name, own in weights.items()]
    legend = {name: (colour(name), "") for name in weights} | {"true evidence": ("var(--ink-2)", "")}
    x = _ticks(np.linspace(starts[0], starts[-1] + width, 4), ".0f")
    y = UNIT if top > 0.5 else _ticks((0.0, top / 2, top), ".2g")
    return Chart(f"Attention weights of {subject}", ("seconds", "attention weight"), x, y, marks, legend)
