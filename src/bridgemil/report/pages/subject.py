"""The page of one person: warnings first, then the prediction, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridgemil.models import ModelFacts
from bridgemil.registry import class_colour
from bridgemil.report import templating
from bridgemil.report.explanation import Explanation, Ranking
from bridgemil.report.held_out import BandShares
from bridgemil.report.pages import eeg
from bridgemil.report.scalp import MapRow, scalp_maps
from bridgemil.runs import AuditWarning

TOP = 12  # windows that are marked and listed
TITLES = {
    "gate": "Attention weight of each window (0 to 1)",
    "contribution": "Contribution of each window to {predicted} (below zero: to another class)",
    "probability": "Probability of {predicted} from each window alone",
}
QUANTITIES = {
    "own": (
        "Log-variance",
        "Red: larger relative variance of the electrode in this band goes with predicting {class_name}; blue: smaller.",
    ),
    "coupling": (
        "Covariance with other electrodes",
        "Brighter: covariance of this electrode with others has more weight in predicting {class_name}. It has no "
        "direction; pairs.csv has the single pairs.",
    ),
    "power": (
        "Relative band power",
        "Red: larger relative band power of the electrode goes with predicting {class_name}; blue: smaller.",
    ),
}


def subject_page(
    explanation: Explanation,
    facts: ModelFacts,
    *,
    sentence: str = "",
    probabilities: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    cautions: Sequence[str] = (),
    calibration: Sequence[str] = (),
    bands: BandShares | None = None,
    provenance: Mapping[str, Any] | None = None,
    audit_warnings: Sequence[AuditWarning] = (),
) -> str:
    """The page of one subject, as text.

    Parameters
    ----------
    explanation
        From ``bridgemil.report.explanation.explain``.
    facts
        Of the model (of the first, if there are several).
    sentence
        What the model has and has not seen, or where it comes from.
    probabilities
        Class to probability as they are to be shown, if they were calibrated; else the model's.
    warnings
        Sentences about this recording or subject, shown first.
    cautions
        Sentences that hold for every prediction of the model, shown apart from the warnings.
    calibration
        Sentences such as "Of 21 other people given between 60% and 80%, 71% had it."
    bands
        Band power beside the training people's, by class.
    provenance
        What else is to be written down: file, run, hash.
    audit_warnings
        Of the cohort that the model learnt from; in a box above everything else.
    """
    person, classes = explanation.person, list(explanation.classes)
    predicted = classes[explanation.predicted]
    shown = probabilities or dict(zip(classes, map(float, explanation.probabilities), strict=True))
    maps, unknown = scalp_maps(explanation.electrodes, predicted) if len(explanation.electrodes) else ([], [])
    return templating.page(
        "subject.html.j2",
        scripts=("page.js", "subject.js"),
        heading=person.name,
        sentence=sentence,
        audit_warnings=audit_warnings,
        warnings=list(warnings),
        cautions=list(cautions),
        label=person.label,
        predicted=predicted,
        probabilities=[
            {"name": name, "p": shown[name], "colour": class_colour(k)}
            for k, name in enumerate(classes)
            if name in shown
        ],
        calibrated=probabilities is not None,
        calibration=list(calibration),
        rankings=explanation.rankings,
        notes=explanation.notes,
        maps=[_map_row(row, predicted) for row in maps],
        unknown=unknown,
        bands=_strips(bands, classes) if bands else None,
        provenance=_provenance(explanation, facts, provenance or {}),
        data=_data(explanation, facts, predicted),
    )


def _data(explanation: Explanation, facts: ModelFacts, predicted: str) -> dict[str, Any]:
    """What the page's script reads."""
    person, signal = explanation.person, facts.signal
    seconds = signal.n_times / signal.sfreq
    places, recordings = eeg.positions(person, seconds)
    listed = bool(explanation.rankings) and explanation.rankings[-1].singles_out
    top = explanation.rankings[-1].order[: 4 * TOP] if listed else _spread(len(places))
    return {
        "places": [round(float(place), 3) for place in places],
        "window": seconds,
        "recordings": recordings,
        "rankings": [_ranking(ranking, predicted) for ranking in explanation.rankings],
        "eeg": eeg.pack(person, signal, places, [int(i) for i in top]),
    }


def _spread(n: int) -> Any:
    return np.unique(np.linspace(0, n - 1, min(n, 4 * TOP)).round().astype(int))


def _ranking(ranking: Ranking, predicted: str) -> dict[str, Any]:
    order = [int(i) for i in ranking.order]
    signed = ranking.name == "contribution"
    listed = order if ranking.singles_out else []
    against = [i for i in reversed(listed[-TOP // 2 :]) if ranking.values[i] < 0] if signed else []
    return {
        "name": ranking.name,
        "label": "attention weight" if ranking.name == "gate" else ranking.name,
        "title": TITLES[ranking.name].format(predicted=predicted),
        "values": [float(f"{value:.4g}") for value in ranking.values],
        "signed": signed,
        "top": listed[:TOP],
        "against": against,
    }


def _map_row(row: MapRow, class_name: str) -> dict[str, Any]:
    title, words = QUANTITIES[row.quantity]
    bars = [_bars(scalp.values, row) if scalp.picture is None else [] for scalp in row.maps]
    return {
        "title": title,
        "about": words.format(class_name=class_name),
        "signed": row.signed,
        "limit": row.limit,
        "maps": [
            {"band": scalp.band, "picture": scalp.picture, "bars": bar, "strongest": _strongest(scalp.values)}
            for scalp, bar in zip(row.maps, bars, strict=True)
        ],
    }


def _strongest(values: Mapping[str, float]) -> str:
    """In words, for who does not see the picture."""
    names = sorted(values, key=lambda name: -abs(values[name]))[:3]
    return ", ".join(f"{name} {values[name]:+.3g}" for name in names)


def _bars(values: Mapping[str, float], row: MapRow) -> list[dict[str, Any]]:
    """A bar an electrode, from the middle (or from the left, without a direction), in percent of the width."""
    middle, half = (50.0, 50.0) if row.signed else (0.0, 100.0)
    found = []
    for name, value in values.items():
        length = half * abs(value) / row.limit
        found.append({"name": name, "value": value, "left": middle - length * (value < 0), "width": length})
    return found


def _strips(bands: BandShares, classes: Sequence[str]) -> dict[str, Any]:
    """Of each band, each class's people and this person, in percent of the width."""
    tables = bands.people or bands.quantiles
    widest = 1.05 * np.concatenate([*tables.values(), bands.person[None]]).max(axis=0)
    rows = []
    for b, band in enumerate(bands.bands):
        strips = [
            _strip(name, class_colour(k), tables[name][:, b], widest[b], bands.counts.get(name))
            for k, name in enumerate(classes)
            if name in tables
        ]
        share = float(bands.person[b])
        rows.append(
            {"band": band, "strips": strips, "who": 100 * share / widest[b], "share": share, "widest": float(widest[b])}
        )
    return {"rows": rows, "dots": bool(bands.people), "highest": bands.bands[-1].rpartition("-")[2]}


def _strip(name: str, colour: str, values: Any, widest: float, count: int | None) -> dict[str, Any]:
    """One class in one band: its people (or, with a count, five percentiles of them) in percent of the width."""
    places = [round(float(100 * value / widest), 2) for value in values]
    median = float(np.median(values))
    return {
        "name": name,
        "colour": colour,
        "n": len(values) if count is None else count,
        "people": places if count is None else [],
        "ranges": [] if count is None else [(places[0], places[4]), (places[1], places[3])],
        "middle": 100 * median / widest,
        "median": median,
    }


def _provenance(explanation: Explanation, facts: ModelFacts, more: Mapping[str, Any]) -> dict[str, str]:
    signal, settings = facts.signal, facts.settings
    native = "" if signal.native_sfreq is None else f", recorded at {signal.native_sfreq:g} Hz or more"
    parts = explanation.person.parts
    found = {
        "Method": settings.title + (f", recipe {settings.recipe}, budget {settings.budget}" if settings.budget else ""),
        "Seed": str(facts.seed),
        "Windows": f"{len(explanation.person.bag)} of {signal.n_times / signal.sfreq:g} s, {signal.n_channels} "
        f"channels at {signal.sfreq:g} Hz{native}",
        "Recordings": ", ".join(f"{name} ({n} windows)" for name, n in parts),
        "Channels": " ".join(signal.channels),
        "Preparation": _preparation(facts.preparation),
    }
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return found | {name: str(value) for name, value in more.items()} | {"Trained with": versions}


def _preparation(settings: Mapping[str, Any]) -> str:
    if not settings:
        return "not known: the windows were given as arrays"
    low, high = settings.get("low"), settings.get("high")
    notch = ", ".join(f"{edge:g}" for edge in settings.get("notch") or ())
    reference = ", ".join(settings.get("reference") or ()) or "as recorded"
    band = f"{low or 0:g} to {f'{high:g} Hz' if high else 'no upper edge'}"
    return f"{band}{f', notch {notch} Hz' if notch else ''}, reference {reference}"
