"""The model card in Markdown: intended use, performance, training subjects and limitations (templates/card.md.j2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridgemil.bundle.bundle import NOTICE, not_better_than_chance
from bridgemil.evaluation.clinical import TITLES
from bridgemil.report import templating
from bridgemil.report.tables import Sheet


def write_card(metadata: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The card of a bundle.

    Parameters
    ----------
    metadata : mapping
        ``name``, ``warnings``, ``performance``, ``calibration``, ``provenance`` and ``trained``, as in ``bundle.json``.
    model : mapping
        As in ``model.json``.
    """
    scores = [
        [title, "not defined" if score["value"] is None else f"{score['value']:.3f}",
         f"{score['ci95'][0]:.3f} to {score['ci95'][1]:.3f}"]
        for title, score in _scores(metadata)
    ]  # fmt: skip
    rows = metadata["provenance"]["people"]
    columns = list(rows[0])
    subjects = [[str(row.get(column, "")) for column in columns] for row in rows]
    text = templating.text(
        "card.md.j2",
        metadata=metadata,
        model=model,
        notice=NOTICE,
        caution=not_better_than_chance(metadata["performance"]),
        scores=Sheet("", ["", "held-out subjects", "95 % interval"], scores),
        subjects=Sheet("", columns, subjects),
        adaptation=adaptation_sheet(metadata["adapted"]) if "adapted" in metadata else None,
    )
    return text + "\n"


def adaptation_sheet(adapted: Mapping[str, Any]) -> Sheet:
    """What adaptation changed for the subjects it was done with, each left out once."""
    rows = []
    for group, found in adapted["summary"].items():
        shares = {f"predicted {name}": ("predicted", name) for name in found["before"]["predicted"]}
        for title, place in {**shares, "prediction withheld": ("withheld",)}.items():
            values = []
            for when in ("before", "after"):
                part: Any = found[when]
                for key in place:
                    part = part[key]
                values.append(
                    f"{100 * part['value']:.0f} % ({100 * part['ci95'][0]:.0f} - {100 * part['ci95'][1]:.0f})"
                )
            rows.append([f"{found['n']} {group}: {title}", *values])
        medians = [f"{found[when]['median_percentile']:.0f}" for when in ("before", "after")]
        rows.append([f"{found['n']} {group}: out-of-distribution percentile, median", *medians])
    return Sheet("Subjects of the new site, each left out once (95 % intervals)", ["", "before", "after"], rows)


def _scores(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Title, and value with interval, of every row of the performance table."""
    found, errors = metadata["performance"], metadata["calibration"]["error"]
    clinical = found["clinical"]
    for name, title in {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}.items():
        yield title, found[name]
    for name, title in TITLES.items():
        if name in clinical:
            yield title, clinical[name]
    for name, own in clinical.get("per_class", {}).items():
        for measure, value in own.items():
            yield f"{TITLES[measure]}, {name}", value
    if stated := clinical.get("at_prevalence"):
        for name in ("ppv", "npv"):
            yield f"{TITLES[name]} at a prevalence of {100 * stated['prevalence']:g} %", stated[name]
    for when in ("before", "after"):
        yield f"calibration error {when} calibration", errors[when]
