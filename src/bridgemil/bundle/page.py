"""The pages of a new recording (prediction, reliability warnings, explanation) and of an external validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.bundle.bundle import NOTICE, Bundle
from bridgemil.bundle.prediction import RecordingPrediction
from bridgemil.cohort.signal import band_name

if TYPE_CHECKING:
    from bridgemil.bundle.validation import Validation
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import BandShares


def explain_recording(bundle: Bundle, found: RecordingPrediction) -> Explanation:
    """Explain a bundle's prediction: windows, electrodes and bands.

    Parameters
    ----------
    bundle : Bundle
        The model.
    found : RecordingPrediction
        From ``bridgemil.bundle.predict``.
    """
    from bridgemil.report.explanation import explain

    n = bundle.metadata["provenance"]["n_subjects"]
    return explain(
        bundle.model, found.person, bundle.background, f"the mean features of the {n} training subjects",
        predicted=int(found.probabilities.argmax()), calibrate=bundle.calibration,
    )  # fmt: skip


def write_page(
    path: str | Path, bundle: Bundle, found: RecordingPrediction, explanation: Explanation | None = None
) -> None:
    """Write the page of one recording.

    Parameters
    ----------
    path : path-like
        The HTML file.
    bundle : Bundle
        The model.
    found : RecordingPrediction
        The prediction.
    explanation : Explanation, optional
        From ``explain_recording``, if it was made already.
    """
    from bridgemil.report.pages.subject import subject_page
    from bridgemil.report.templating import write

    error, highest = bundle.metadata["calibration"]["error"]["after"], float(found.probabilities.max())
    counts = {row["class"]: int(row["n"]) for row in bundle.metadata["provenance"]["people"]}
    text = subject_page(
        explanation or explain_recording(bundle, found),
        bundle.model.facts,
        probabilities=dict(zip(found.classes, map(float, found.probabilities), strict=True)),
        warnings=found.warnings,
        cautions=found.model["cautions"],
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
    write(path, text)


def write_validation(path: str | Path, found: Validation) -> None:
    """Write the page of an external validation.

    Parameters
    ----------
    path : path-like
        The HTML file.
    found : Validation
        From ``bridgemil.bundle.validate``.
    """
    from bridgemil.bundle.prediction import describe
    from bridgemil.methods import colour
    from bridgemil.report import templating
    from bridgemil.report.pages.charts import calibration_bins, calibration_chart, clinical_charts

    bundle, shown = found.bundle, []
    name = bundle.model.facts.settings.method
    if found.two_classes is not None:
        positive = found.two_classes.positive
        order = [*(c for c in bundle.classes if c != positive), positive]
        shown = clinical_charts({name: found.two_classes})
        shown.append(calibration_chart(calibration_bins(found.predictions, order), colour(name)))
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

    reference = found.reference
    if not reference.bands:
        return None
    names = [f"{name} {band_name(band)}" for name, band in reference.bands.items()]
    quantiles = dict(zip(found.classes, reference.class_shares, strict=True))
    return BandShares(names, found.features.shares, {}, quantiles, counts)
