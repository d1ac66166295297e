"""The page of one subject: warnings, the prediction, and which windows, electrodes and bands it depends on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridgemil.cohort.signal import CLINICAL_BANDS, Signal, band_name, evenly, some_bands
from bridgemil.models import ModelFacts
from bridgemil.report import templating
from bridgemil.report.explanation import Explanation, Ranking
from bridgemil.report.held_out import BandShares, band_shares, reference_of
from bridgemil.report.pages import eeg
from bridgemil.report.scalp import MapRow, power_maps, scalp_maps

TOP = 12  # windows that are marked and listed
MOST_WINDOWS = 300  # that the subject's own band power is computed from


DEFAULTS: dict[str, Any] = {
    "sentence": "",  # which subjects the model was trained on, or where it comes from
    "warnings": (),  # reliability warnings about this recording or subject, shown first
    "cautions": (),  # that hold for every prediction of the model, shown apart from the warnings
    "calibration": (),  # sentences on held-out predictions of similar probability
    "provenance": {},  # further entries: file, run, hash
    "audit_warnings": (),  # of the training cohort; in a box above everything else
    "withheld": False,  # whether no class is predicted; the reason is among the warnings
}


def subject_page(
    explanation: Explanation,
    facts: ModelFacts,
    *,
    probabilities: Mapping[str, float] | None = None,
    bands: BandShares | None = None,
    template: str = "subject.html.j2",
    **more: Any,
) -> str:
    """The page of one subject, as text; ``facts`` are of the model (of the first, if there are several).

    ``probabilities`` are calibrated ones by class; without them the page shows the model's own, and calls them not
    calibrated. ``more`` are those of ``DEFAULTS``, and what another ``template`` that extends this one needs.
    """
    classes = list(explanation.classes)
    predicted = classes[explanation.predicted]
    maps, unknown = scalp_maps(explanation.electrodes, predicted) if len(explanation.electrodes) else ([], [])
    shown = probabilities or dict(zip(classes, map(float, explanation.probabilities), strict=True))
    values = {
        "heading": explanation.person.name,
        "explanation": explanation,
        "facts": facts,
        "reference": reference_of(facts.settings),
        "predicted": predicted,
        "probabilities": {name: shown[name] for name in classes if name in shown},
        "calibrated": probabilities is not None,
        # the group pattern of relative band power next to the subject's own
        "maps": [_own_power(explanation, facts), *sorted(maps, key=lambda row: row.quantity != "power")],
        "unknown": unknown,
        "bands": bands,
        "strips": _strips(bands, classes) if bands else [],
        "data": _data(explanation, facts.signal),
    }
    return templating.page(template, scripts=("page.js", "subject.js"), **DEFAULTS | values | more)


def _data(explanation: Explanation, signal: Signal) -> dict[str, Any]:
    """What the page's script reads."""
    person, seconds, rankings = explanation.person, signal.n_times / signal.sfreq, explanation.rankings
    places, recordings = eeg.positions(person, seconds)
    singled_out = rankings and rankings[-1].singles_out
    top = rankings[-1].order[: 4 * TOP] if singled_out else evenly(len(places), 4 * TOP)
    return {
        "places": [round(float(place), 3) for place in places],
        "window": seconds,
        "recordings": recordings,
        "predicted": explanation.classes[explanation.predicted],
        "rankings": [_ranking(ranking) for ranking in rankings],
        "eeg": eeg.pack(person, signal, places, [int(i) for i in top]),
    }


def _ranking(ranking: Ranking) -> dict[str, Any]:
    listed = [int(i) for i in ranking.order] if ranking.singles_out else []
    signed = ranking.name == "contribution"
    return {
        "name": ranking.name,
        "values": [float(f"{value:.4g}") for value in ranking.values],
        "signed": signed,
        "top": listed[:TOP],
        "against": [i for i in reversed(listed[-TOP // 2 :]) if signed and ranking.values[i] < 0],
    }


def _own_power(explanation: Explanation, facts: ModelFacts) -> MapRow:
    """Maps of the subject's relative band power, in the bands of the patterns if there are any."""
    import pandas as pd

    signal, shown = facts.signal, explanation.electrodes.get("band", ())
    edges = {name: re.search(r"([\d.]+)-([\d.]+) Hz", str(name)) for name in dict.fromkeys(shown)}
    bands = {str(name): (float(found[1]), float(found[2])) for name, found in edges.items() if found}
    if not bands:
        bands = {f"{name} {band_name(band)}": band for name, band in some_bands(CLINICAL_BANDS, signal)[0].items()}
    how = (signal.sfreq, bands.values(), reference_of(facts.settings), MOST_WINDOWS)
    shares = band_shares(explanation.person.bag, *how)
    return power_maps(pd.DataFrame(shares, index=list(signal.channels), columns=list(bands)))


def _strips(bands: BandShares, classes: Sequence[str]) -> list[dict[str, Any]]:
    """For each band the subject's share and each class's subjects (or percentiles), in percent of the power."""
    tables = bands.by_class or bands.quantiles
    widest = 1.05 * np.concatenate([*tables.values(), bands.subject[None]]).max(axis=0)
    return [
        {
            "band": band, "share": float(bands.subject[b]), "widest": float(widest[b]),
            "classes": {name: tables[name][:, b].tolist() for name in classes if name in tables},
            "medians": {name: float(np.median(table[:, b])) for name, table in tables.items()},
        }
        for b, band in enumerate(bands.bands)
    ]  # fmt: skip
