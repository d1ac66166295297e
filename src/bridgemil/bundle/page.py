"""The page of a new recording: prediction, reliability warnings and explanation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.bundle.bundle import NOTICE, Bundle
from bridgemil.bundle.prediction import RecordingPrediction
from bridgemil.models import ModelFacts

if TYPE_CHECKING:
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import BandShares


def explain_recording(bundle: Bundle, found: RecordingPrediction) -> Explanation:
    """Explain a bundle's prediction: windows, electrodes and bands.

    Parameters
    ----------
    bundle
        The model.
    found
        From ``bridgemil.bundle.predict``.
    """
    from bridgemil.report.explanation import explain

    rows = bundle.reference.covariance_rows
    background = np.concatenate([rows, -rows]).astype(np.float64) if len(rows) else None  # their mean must be zero
    n = bundle.metadata["provenance"]["n_subjects"]
    return explain(
        bundle.model, found.person, background, f"the mean features of the {n} training subjects",
        predicted=int(found.probabilities.argmax()), calibrate=bundle.calibration,
    )  # fmt: skip


def write_page(
    path: str | Path, bundle: Bundle, found: RecordingPrediction, explanation: Explanation | None = None
) -> None:
    """Write the page of one recording.

    Parameters
    ----------
    path
        The HTML file.
    bundle
        The model.
    found
        The prediction.
    explanation
        From ``explain_recording``, if it was made already.
    """
    from bridgemil.report.pages.subject import subject_page
    from bridgemil.report.templating import write

    text = subject_page(
        explanation or explain_recording(bundle, found),
        bundle.model.facts,
        sentence=_sentence(bundle),
        probabilities=dict(zip(found.classes, map(float, found.probabilities), strict=True)),
        warnings=found.warnings,
        cautions=found.model["cautions"],
        calibration=[*calibration_context(bundle, found), _novelty(found)],
        bands=_bands(bundle, found),
        provenance=_provenance(bundle, found),
        audit_warnings=bundle.warnings,
    )
    write(path, text)


def calibration_context(bundle: Bundle, found: RecordingPrediction) -> list[str]:
    """Accuracy of held-out predictions with a similar probability, and the calibration error.

    Parameters
    ----------
    bundle
        The model.
    found
        The prediction.
    """
    about, sure = bundle.metadata["calibration"], float(found.probabilities.max())
    error = about["error"]["after"]
    nearest = min(error["bins"], key=lambda part: abs(part["confidence"] - sure))
    low, high = error["ci95"]
    lines = [
        f"Of the {nearest['n']} held-out training subjects with the most similar predicted probability (mean "
        f"{nearest['confidence']:.0%}), {nearest['accuracy']:.0%} were classified correctly.",
        f"Calibration: {bundle.calibration.sentence}. Expected calibration error on held-out subjects "
        f"{error['value']:.3f} (95 % {low:.3f} to {high:.3f}); under perfect calibration: "
        f"{error['expected_if_calibrated']:.3f}.",
    ]
    shares = ", ".join(f"{row['n']} {row['class']}" for row in bundle.metadata["provenance"]["people"])
    return [*lines, f"The probabilities assume that the classes are as frequent as in training ({shares})."]


def _novelty(found: RecordingPrediction) -> str:
    return f"Out-of-distribution percentile: {found.percentile:.0f}, among training recordings of the same length."


def _sentence(bundle: Bundle) -> str:
    found, n = bundle.metadata["performance"], bundle.metadata["provenance"]["n_subjects"]
    score = found["balanced_accuracy"]
    return (
        f"A new recording, predicted by {bundle.name}, trained on {n} subjects; balanced accuracy on held-out subjects "
        f"{score['value']:.2f} (95 % {score['ci95'][0]:.2f} to {score['ci95'][1]:.2f}). {NOTICE}"
    )


def _bands(bundle: Bundle, found: RecordingPrediction) -> BandShares | None:
    from bridgemil.report.held_out import BandShares

    reference = found.reference
    if not reference.bands:
        return None
    names = [f"{name} {low}-{high} Hz" for name, (low, high) in reference.bands.items()]
    counts = {row["class"]: int(row["n"]) for row in bundle.metadata["provenance"]["people"]}
    quantiles = dict(zip(found.classes, reference.class_shares, strict=True))
    return BandShares(names, found.features.shares, {}, quantiles, counts)


def _provenance(bundle: Bundle, found: RecordingPrediction) -> dict[str, Any]:
    recording, facts = found.recording, bundle.model.facts
    left = ", ".join(f"{count} {why}" for why, count in recording.dropped.items() if count) or "none"
    return {
        "File": recording.name,
        "SHA-256": recording.sha256,
        "Recorded": f"{recording.seconds:.0f} s at {recording.native_sfreq:g} Hz",
        "Windows left out": left,
        "Before calibration": _shares(facts, found),
        "Model": f"{bundle.title}, made {str(bundle.metadata['created'])[:10]}; {bundle.metadata['trained']}",
        "Training cohort": f"{bundle.metadata['provenance']['source']} "
        f"({str(bundle.metadata['provenance']['cohort_hash'])[:12]})",
    }


def _shares(facts: ModelFacts, found: RecordingPrediction) -> str:
    return ", ".join(f"{name} {p:.1%}" for name, p in zip(facts.classes, found.prediction.probabilities, strict=True))
