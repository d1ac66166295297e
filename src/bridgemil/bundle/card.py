"""The model card in Markdown: intended use, performance, training subjects and limitations (templates/card.md.j2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgemil.bundle.bundle import NOTICE, not_better_than_chance
from bridgemil.evaluation.clinical import TITLES
from bridgemil.report import templating
from bridgemil.report.tables import Sheet

SCORES = ("accuracy", "balanced_accuracy", "auroc")


def write_card(metadata: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The card of a bundle, from the content of its ``bundle.json`` and of its ``model.json``."""
    scores = [
        [title, "not defined" if score["value"] is None else f"{score['value']:.3f}",
         f"{score['ci95'][0]:.3f} to {score['ci95'][1]:.3f}"]
        for title, score in _scores(metadata).items()
    ]  # fmt: skip
    rows = metadata["provenance"]["people"]
    subjects = [[str(row.get(column, "")) for column in rows[0]] for row in rows]
    text = templating.text(
        "card.md.j2", metadata=metadata, model=model, notice=NOTICE,
        caution=not_better_than_chance(metadata["performance"]),
        scores=Sheet("", ["", "held-out subjects", "95 % interval"], scores),
        subjects=Sheet("", list(rows[0]), subjects),
        adaptation=adaptation_sheet(metadata["adapted"]) if "adapted" in metadata else None,
    )  # fmt: skip
    return text + "\n"


def adaptation_sheet(adapted: Mapping[str, Any]) -> Sheet:
    """What adaptation changed for the subjects it was done with, each left out once."""
    rows = []
    for group, found in adapted["summary"].items():
        both = [found["before"], found["after"]]
        shares = {f"predicted {name}": [part["predicted"][name] for part in both] for name in both[0]["predicted"]}
        shares["prediction withheld"] = [part["withheld"] for part in both]
        values = {title: [_percent(share) for share in own] for title, own in shares.items()}
        values["out-of-distribution percentile, median"] = [f"{part['median_percentile']:.0f}" for part in both]
        rows += [[f"{found['n']} {group}: {title}", *own] for title, own in values.items()]
    return Sheet("Subjects of the new site, each left out once (95 % intervals)", ["", "before", "after"], rows)


def _percent(share: Mapping[str, Any]) -> str:
    low, high = share["ci95"]
    return f"{100 * share['value']:.0f} % ({100 * low:.0f} - {100 * high:.0f})"


def _scores(metadata: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Value with interval of every row of the performance table, by its title."""
    found, errors = metadata["performance"], metadata["calibration"]["error"]
    clinical, stated = found["clinical"], found["clinical"].get("at_prevalence", {})
    per_class = clinical.get("per_class", {}).items()
    return {
        **{name.replace("_", " ").replace("auroc", "AUROC"): found[name] for name in SCORES},
        **{title: clinical[name] for name, title in TITLES.items() if name in clinical},
        **{f"{TITLES[measure]}, {name}": value for name, own in per_class for measure, value in own.items()},
        **{
            f"{TITLES[name]} at a prevalence of {100 * stated['prevalence']:g} %": stated[name]
            for name in ("ppv", "npv")
            if stated
        },
        **{f"calibration error {when} calibration": errors[when] for when in ("before", "after")},
    }
