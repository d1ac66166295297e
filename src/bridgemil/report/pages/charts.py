"""Charts of the pages: what is drawn, in data coordinates. The macro ``chart`` of ``parts.html.j2`` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgemil.evaluation.clinical import TwoClassMetrics
from bridgemil.evaluation.metrics import wilson
from bridgemil.methods import colour
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
    """A chart; the first and last tick of an axis are its limits, and what is outside is cut off.

    Parameters
    ----------
    title : str
        Of the chart.
    axes : tuple of str
        Titles of the horizontal and the vertical axis.
    x, y : mapping of float to str
        Ticks in ascending order and their labels.
    marks : sequence of Mark
        In the order of drawing.
    legend : mapping of str to (str, str)
        Name to colour and further text.
    """

    title: str
    axes: tuple[str, str]
    x: Mapping[float, str]
    y: Mapping[float, str]
    marks: Sequence[Mark]
    legend: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Data to SVG coordinates."""
        across, up = _share(x, list(self.x)), _share(y, list(self.y))
        return round(LEFT + across * (RIGHT - LEFT), 1), round(BOTTOM - up * (BOTTOM - TOP), 1)

    def path(self, mark: Mark) -> str:
        """The ``d`` of an SVG path; empty without finite points."""
        low = min(self.y) if mark.style in ("curve", "reference") else -np.inf
        kept = [self.at(x, y) for x, y in mark.points if np.isfinite(y) and y >= low]
        return f"M{'L'.join(f'{x:g} {y:g}' for x, y in kept)}" if kept else ""


def _share(value: float, ticks: Sequence[float]) -> float:
    return float(np.clip((value - ticks[0]) / (ticks[-1] - ticks[0]), 0, 1))


def _pairs(x: Any, y: Any) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]


class Bin(NamedTuple):
    """Predictions of similar probability: their mean, the observed frequency with its 95 % interval, how many."""

    predicted: float
    observed: float
    low: float
    high: float
    n: int


def calibration_bins(predictions: pd.DataFrame, classes: Sequence[str]) -> list[Bin]:
    """Bins of equal size of held-out probabilities.

    With two classes, of the second one's probabilities; with more, of all, each class against the rest. Seeds predict
    the same subjects, so an interval counts each subject once.

    Parameters
    ----------
    predictions : DataFrame
        seed, subject, label, p_<class>….
    classes : sequence of str
        K names.
    """
    shown = classes[1:] if len(classes) == 2 else classes
    predicted = np.concatenate([predictions[f"p_{name}"].to_numpy(dtype=float) for name in shown])
    true = np.concatenate([(predictions["label"] == name).to_numpy(dtype=float) for name in shown])
    seeds, order = int(predictions["seed"].nunique()), np.argsort(predicted, kind="stable")
    bins = []
    for part in np.array_split(order, min(BINS, len(order))):
        share, n = float(true[part].mean()), len(part)
        bins.append(Bin(float(predicted[part].mean()), share, *wilson(share, max(1.0, n / seeds)), n))
    return bins


def calibration_chart(bins: Sequence[Bin], hue: str) -> Chart:
    """Predicted probability against observed frequency, with the diagonal."""
    marks = [Mark("axis", [(0, 0), (1, 1)]), Mark("curve", [(b.predicted, b.observed) for b in bins], hue)]
    for b in bins:
        note = f"predicted {b.predicted:.0%}, observed {b.observed:.0%} ({b.n} predictions)"
        marks.append(Mark("whisker", [(b.predicted, b.low), (b.predicted, b.high)], hue))
        marks.append(Mark("spot", [(b.predicted, b.observed)], hue, note))
    return Chart("Calibration", ("predicted probability", "observed frequency"), UNIT, UNIT, marks)


def training_chart(title: str, curves: pd.DataFrame, hue: str) -> Chart:
    """Loss over epochs: a thin line for each fold and seed, a thick one for their mean; dashed: validation loss.

    Parameters
    ----------
    title : str
        Of the chart.
    curves : DataFrame
        seed, fold, epoch, loss, and validation_loss where there was validation.
    hue : str
        Colour of all lines.
    """
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
    return Chart(title, ("epoch", "loss"), {0: "1", last: str(last + 1)}, {v: f"{v:.3g}" for v in limits}, marks)


def clinical_charts(found: Mapping[str, TwoClassMetrics]) -> list[Chart]:
    """ROC, precision-recall and decision curves of methods on the same subjects; none without methods.

    Parameters
    ----------
    found : mapping of str to TwoClassMetrics
        By the method's label.
    """
    if not found:
        return []
    hue, first = {name: colour(name) for name in found}, next(iter(found.values()))
    share, prevalence = float(first.y.mean()), first.decision.prevalence
    roc, pr = [Mark("reference", [(0, 0), (1, 1)])], [Mark("reference", [(0, share), (1, share)])]
    decision = [
        Mark("reference", _pairs(first.decision.threshold, first.decision.treat_all)),
        Mark("reference", [(0, 0), (1, 0)]),
    ]
    for name, one in found.items():
        sensitivity, specificity, ppv = (one.measures[key] for key in ("sensitivity", "specificity", "ppv"))
        roc += [Mark("curve", _pairs(one.roc.x, one.roc.y), hue[name])]
        roc += [Mark("spot", [(1 - specificity.value, sensitivity.value)], hue[name])]
        pr += [Mark("curve", _pairs(one.pr.x, one.pr.y), hue[name])]
        pr += [Mark("spot", [(sensitivity.value, ppv.value)], hue[name])] if ppv.n else []
        net = one.decision
        outline = [*_pairs(net.threshold, net.high), *_pairs(net.threshold[::-1], net.low[::-1])]
        decision += [Mark("band", outline, hue[name])] if len(found) <= FEW else []
        decision += [Mark("curve", _pairs(net.threshold, net.net_benefit), hue[name])]
    high = max(prevalence, *(float(one.decision.net_benefit.max()) for one in found.values()), 0.0)
    benefit = {value: f"{value:.2g}" for value in (-0.25 * high, 0.0, 1.1 * high)}
    title = f"Decision curve at a prevalence of {100 * prevalence:.0f} %"
    areas = {name: (hue[name], f"AUROC {one.roc.area:.3f}") for name, one in found.items()}
    precision = {name: (hue[name], f"average precision {one.pr.area:.3f}") for name, one in found.items()}
    return [
        Chart("ROC", ("1 - specificity", "sensitivity"), UNIT, UNIT, roc, areas),
        Chart("Precision-recall", ("recall (sensitivity)", "precision (PPV)"), UNIT, UNIT, pr, precision),
        Chart(title, ("threshold probability", "net benefit"), UNIT, benefit, decision,
              {name: (hue[name], "") for name in found}),
    ]  # fmt: skip


def spectrum_chart(cohort: Cohort) -> Chart:
    """Power spectra by class: median and quartiles over subjects, in decibels.

    Parameters
    ----------
    cohort : Cohort
        Its windows are read.
    """
    from bridgemil.report.figures import subject_spectrum

    spectra = 10 * np.log10(np.stack([subject_spectrum(cohort, subject) for subject in cohort.subjects]) + 1e-12)
    frequency = np.fft.rfftfreq(cohort.n_times, 1 / cohort.sfreq)
    inside = (frequency > 0) & (frequency <= (cohort.metadata["settings"].get("high") or cohort.sfreq / 2))
    marks, legend, x = [], {}, frequency[inside]
    for k, name in enumerate(cohort.classes):
        own = spectra[np.array(cohort.labels) == name][:, inside]
        low, median, high = np.percentile(own, [25, 50, 75], axis=0)
        marks.append(Mark("band", [*_pairs(x, low), *_pairs(x[::-1], high[::-1])], class_colour(k)))
        marks.append(Mark("curve", _pairs(x, median), class_colour(k)))
        legend[name] = (class_colour(k), f"({len(own)})")
    values = [y for mark in marks for _, y in mark.points]
    ticks = np.arange(10 * np.floor(min(values) / 10), 10 * np.ceil(max(values) / 10) + 1, 10)
    edges = [float(value) for value in np.linspace(0, 5 * np.ceil(x[-1] / 5), 4)]
    return Chart("Power spectra", ("frequency (Hz)", "power (dB re 1 µV²/Hz)"), {v: f"{v:g}" for v in edges},
                 {float(v): f"{v:g}" for v in ticks}, marks, legend)  # fmt: skip


def weights_chart(subject: str, starts: Any, truth: Any, weights: Mapping[str, Any]) -> Chart:
    """Attention weights of one subject over time, of several methods, and where the true evidence is.

    Parameters
    ----------
    subject : str
        Who it is.
    starts : ndarray of shape (n,)
        Start of each window in seconds.
    truth : ndarray of bool, shape (n,)
        Windows that hold evidence.
    weights : mapping of str to ndarray of shape (n,)
        By method.
    """
    width = float(np.median(np.diff(starts))) if len(starts) > 1 else 1.0
    top = max(float(np.max(own)) for own in weights.values())
    boxes = [[(t, 0), (t, top), (t + width, top), (t + width, 0)] for t in map(float, starts[truth])]
    marks = [Mark("band", box) for box in boxes]
    marks += [Mark("curve", _pairs(starts + width / 2, own), colour(name)) for name, own in weights.items()]
    legend = {name: (colour(name), "") for name in weights} | {"true evidence": ("var(--ink-2)", "")}
    edges = [float(value) for value in np.linspace(starts[0], starts[-1] + width, 4)]
    return Chart(f"Attention weights of {subject}", ("seconds", "attention weight"), {v: f"{v:.0f}" for v in edges},
                 UNIT if top > 0.5 else {v: f"{v:.2g}" for v in (0.0, top / 2, top)}, marks, legend)  # fmt: skip
