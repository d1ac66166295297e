"""The model card of a bundle, and the pages of a new recording and of an external validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.bundle.bundle import NOTICE, Bundle, not_better_than_chance
from bridgemil.bundle.prediction import RecordingPrediction, describe
from bridgemil.cohort.signal import band_name
from bridgemil.evaluation.clinical import TITLES
from bridgemil.report import templating
from bridgemil.report.tables import Sheet

if TYPE_CHECKING:
    from bridgemil.bundle.validation import Validation
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import BandShares

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


def explain_recording(bundle: Bundle, found: RecordingPrediction) -> Explanation:
    """Explain a bundle's prediction, from ``predict``: windows, electrodes and bands."""
    from bridgemil.report.explanation import explain

    n = bundle.metadata["provenance"]["n_subjects"]
    return explain(
        bundle.model, found.person, bundle.background, f"the mean features of the {n} training subjects",
        predicted=int(found.probabilities.argmax()), calibrate=bundle.calibration,
    )  # fmt: skip


def write_page(
    path: str | Path, bundle: Bundle, found: RecordingPrediction, explanation: Explanation | None = None
) -> None:
    """Write the HTML page of one recording; ``explanation`` is from ``explain_recording``, if it was made already."""
    from bridgemil.report.pages.subject import subject_page

    error, highest = bundle.metadata["calibration"]["error"]["after"], float(found.probabilities.max())
    counts = {row["class"]: int(row["n"]) for row in bundle.metadata["provenance"]["people"]}
    text = subject_page(
        explanation or explain_recording(bundle, found),
        bundle.model.facts,
        probabilities=found.by_class(),
        warnings=found.warnings,
        cautions=describe(bundle)["cautions"],
        withheld=found.withheld,
        bands=_bands(found, counts),
        audit_warnings=bundle.warnings,
        template="recording.html.j2",
        bundle=bundle,
        found=found,
        error=error,
        nearest=min(error["bins"], key=lambda part: abs(part["confidence"] - highest)),
        counts=counts,
        notice=NOTICE,
    )
    templating.write(path, text)


def write_validation(path: str | Path, found: Validation) -> None:
    """Write the HTML page of an external validation."""
    from bridgemil.methods import colour
    from bridgemil.report.pages.charts import calibration_chart, clinical_charts

    bundle, shown = found.bundle, []
    name = bundle.model.facts.settings.method
    if found.two_classes is not None:
        positive = found.two_classes.positive
        order = [*(c for c in bundle.classes if c != positive), positive]
        shown = clinical_charts({name: found.two_classes})
        shown.append(calibration_chart(found.predictions, order, colour(name)))
    text = templating.page(
        "validation.html.j2",
        heading=f"External validation of {bundle.name}",
        audit_warnings=bundle.warnings,
        found=found,
        charts=shown,
        rows=found.predictions.sort_values("subject").to_dict("records"),
        cautions=describe(bundle)["cautions"],
        notice=NOTICE,
    )
    templating.write(path, text)


def _bands(found: RecordingPrediction, counts: dict[str, int]) -> BandShares | None:
    from bridgemil.report.held_out import BandShares

    reference = found.bundle.reference
    if not reference.bands:
        return None
    names = [f"{name} {band_name(band)}" for name, band in reference.bands.items()]
    quantiles = dict(zip(found.bundle.classes, reference.class_shares, strict=True))
    return BandShares(names, found.features.shares.mean(axis=0), {}, quantiles, counts)
