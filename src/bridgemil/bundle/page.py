"""The page of a new recording: what a bundle says of it, what speaks against believing that, and what it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.bundle.prediction import RecordingSaid
from bridgemil.bundle.store import NOTICE, Bundle
from bridgemil.models import ModelFacts

if TYPE_CHECKING:
    from bridgemil.report.explanation import Explanation
    from bridgemil.report.held_out import BandShares


def explain_recording(bundle: Bundle, said: RecordingSaid) -> Explanation:
    """What a bundle's prediction rests on: seconds, electrodes, bands, and whether that explains anything.

    Parameters
    ----------
    bundle
        The model.
    said
        From ``bridgemil.bundle.predict``.
    """
    from bridgemil.report.explanation import Person, explain

    recording, rows = said.recording, bundle.reference.covariance_rows
    person = Person(recording.path.name, recording.windows, recording.starts)
    background = np.concatenate([rows, -rows]).astype(np.float64) if len(rows) else None  # their mean must be zero
    n = bundle.about["provenance"]["n_subjects"]
    return explain(
        bundle.model, person, background, f"the mean features of the {n} training people",
        predicted=int(said.probabilities.argmax()), calibrate=bundle.calibration,
    )  # fmt: skip


def write_page(path: str | Path, bundle: Bundle, said: RecordingSaid, explanation: Explanation | None = None) -> None:
    """Write the page of one recording.

    Parameters
    ----------
    path
        The HTML file.
    bundle
        The model.
    said
        What it said.
    explanation
        From ``explain_recording``, if it was made already.
    """
    from bridgemil.report.pages.subject_page import write_subject_page

    write_subject_page(
        path,
        explanation or explain_recording(bundle, said),
        bundle.model.facts,
        sentence=_sentence(bundle),
        probabilities=dict(zip(said.classes, map(float, said.probabilities), strict=True)),
        warnings=said.warnings,
        calibration=calibration_context(bundle, said),
        bands=_bands(bundle, said),
        provenance=_provenance(bundle, said),
    )


def calibration_context(bundle: Bundle, said: RecordingSaid) -> list[str]:
    """How often the folds' models were right about people they had not seen, when they were as sure as this.

    Parameters
    ----------
    bundle
        The model.
    said
        What it said.
    """
    about, sure = bundle.about["calibration"], float(said.probabilities.max())
    error = about["error"]["after"]
    nearest = min(error["bins"], key=lambda part: abs(part["confidence"] - sure))
    low, high = error["ci95"]
    lines = [
        f"Of the {nearest['n']} held-out training people about whom the model was most nearly as sure as this (on "
        f"average {nearest['confidence']:.0%}), it was right about {nearest['accuracy']:.0%}.",
        f"Calibration: {about['sentence']}. Calibration error on held-out people {error['value']:.3f} (95 % {low:.3f} "
        f"to {high:.3f}); probabilities that are exactly right would show {error['expected_if_calibrated']:.3f} on so "
        "few people.",
    ]
    shares = ", ".join(f"{row['n']} {row['class']}" for row in bundle.about["provenance"]["people"])
    return [*lines, f"The probabilities can hold only where the classes are as frequent as in training ({shares})."]


def _sentence(bundle: Bundle) -> str:
    found, n = bundle.about["performance"], bundle.about["provenance"]["n_subjects"]
    score = found["balanced_accuracy"]
    return (
        f"A new recording, judged by {bundle.name}, which learnt from {n} people. On held-out people of them its "
        f"balanced accuracy was {score['value']:.2f} (95 % {score['ci95'][0]:.2f} to {score['ci95'][1]:.2f}). {NOTICE}"
    )


def _bands(bundle: Bundle, said: RecordingSaid) -> BandShares | None:
    from bridgemil.report.held_out import BandShares

    reference = said.reference
    if not reference.bands:
        return None
    names = [f"{name} {low}-{high} Hz" for name, (low, high) in reference.bands.items()]
    counts = {row["class"]: int(row["n"]) for row in bundle.about["provenance"]["people"]}
    quantiles = dict(zip(said.classes, reference.class_shares, strict=True))
    return BandShares(names, said.features.shares, {}, quantiles, counts)


def _provenance(bundle: Bundle, said: RecordingSaid) -> dict[str, Any]:
    recording, facts = said.recording, bundle.model.facts
    left = ", ".join(f"{count} {why}" for why, count in recording.dropped.items() if count) or "none"
    return {
        "File": recording.name,
        "SHA-256": recording.sha256,
        "Recorded": f"{recording.seconds:.0f} s at {recording.native_sfreq:g} Hz",
        "Windows left out": left,
        "Unlike the training people": f"farther than {said.percentile:.0f} % of them are from each other",
        "Before calibration": _shares(facts, said),
        "Model": f"{bundle.title}, made {str(bundle.about['created'])[:10]}; {bundle.about['trained']}",
        "Training cohort": f"{bundle.about['provenance']['source']} "
        f"({str(bundle.about['provenance']['cohort_hash'])[:12]})",
    }


def _shares(facts: ModelFacts, said: RecordingSaid) -> str:
    return ", ".join(f"{name} {p:.1%}" for name, p in zip(facts.classes, said.prediction.probabilities, strict=True))
