"""Predictions for new recordings: refusals with a reason, reliability warnings, then probabilities and windows.

Beyond the 99th out-of-distribution percentile the prediction is withheld.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.bundle.bundle import NOTICE, Bundle, not_better_than_chance
from bridgemil.bundle.novelty import OUTSIDE, WITHHELD, Reference, WindowFeatures, window_features
from bridgemil.cohort import channels
from bridgemil.cohort.cleaning import Cleaner
from bridgemil.cohort.new_recording import MIN_WINDOWS, NewRecording, find, read, settings_for
from bridgemil.errors import BadData, BadUse, Problem, plain
from bridgemil.models import Prediction
from bridgemil.models.harmonisation import unknown_site
from bridgemil.report.explanation import Person, Ranking, rank_windows, top_windows

GAIN_WARNED, GAIN_REFUSED = 10.0, 100.0  # times the training subjects' amplitudes
LEAST_CONTROLS = 10  # recordings of a site's healthy subjects that ``adapt`` needs


@dataclass(frozen=True)
class Refused:
    """A recording without a prediction, and why."""

    name: str
    why: str
    bundle: Bundle

    def to_dict(self) -> dict[str, Any]:
        """As ``predict --json`` prints it."""
        absent = ("probabilities", "predicted", "prediction_set", "uncalibrated", "out_of_distribution", "windows",
                  "top_windows", "windows_dropped", "seconds", "sha256")  # fmt: skip
        given = {"file": self.name, "windows_used": 0, "warnings": [], "error": self.why}
        return given | {"model": describe(self.bundle)} | dict.fromkeys(absent)


@dataclass(frozen=True)
class Assessment:
    """What a bundle computes of one subject's windows; K classes."""

    bundle: Bundle
    prediction: Prediction  # before calibration, with attention weights and contributions where the model has them
    probabilities: NDArray[np.float64]  # K, calibrated
    features: WindowFeatures  # what the percentile was computed from
    percentile: float  # out-of-distribution percentile among training recordings of the same length
    prediction_set: tuple[str, ...]  # classes that conformal prediction does not exclude; all if it is withheld

    def by_class(self, calibrated: bool = True) -> dict[str, float]:
        """The probabilities by the names of the classes."""
        p = self.probabilities if calibrated else self.prediction.probabilities
        return dict(zip(self.bundle.classes, p.tolist(), strict=True))

    @property
    def most_probable(self) -> str:
        """The most probable class."""
        return self.bundle.classes[int(self.probabilities.argmax())]

    @property
    def withheld(self) -> bool:
        """Whether no class is predicted, because the recording is out of distribution."""
        return self.percentile > WITHHELD

    @property
    def predicted(self) -> str | None:
        """The most probable class; None where the prediction is withheld."""
        return None if self.withheld else self.most_probable


@dataclass(frozen=True)
class RecordingPrediction(Assessment):
    """The prediction for one recording, and everything that its page needs."""

    recording: NewRecording  # the windows and their times
    warnings: tuple[str, ...]  # about this recording, the most serious first; those of the model: see ``describe``
    rankings: list[Ranking]  # windows by attention weight, contribution or probability, with the removal test

    @property
    def name(self) -> str:
        """The file, as the user named it."""
        return self.recording.name

    @property
    def set_sentence(self) -> str:
        """The prediction set, for readers."""
        title = f"prediction set ({100 * self.bundle.sets.coverage:g} % coverage)"
        if self.withheld:
            return f"{title}: no class is excluded, because the prediction is withheld"
        if not self.prediction_set:
            every = "both" if len(self.bundle.classes) == 2 else "all"
            return f"{title}: empty, the recording is unlike {every} classes"
        undecided = " (undecided)" if len(self.prediction_set) > 1 else ""
        return f"{title}: {' or '.join(self.prediction_set)}{undecided}"

    @property
    def person(self) -> Person:
        """The recording as ``bridgemil.report.explanation`` takes it."""
        return Person(self.recording.path.name, self.recording.windows, self.recording.starts)

    def to_dict(self) -> dict[str, Any]:
        """As ``predict --json`` prints it."""
        return {
            "file": self.name,
            "probabilities": self.by_class(),
            "predicted": self.predicted,
            "prediction_set": list(self.prediction_set),
            "coverage": self.bundle.sets.coverage,
            "out_of_distribution": {"percentile": self.percentile, "withheld": self.withheld},
            "windows_used": len(self.recording.starts),
            "warnings": list(self.warnings),
            "model": describe(self.bundle),
            "uncalibrated": self.by_class(calibrated=False),
            "windows": {ranking.name: ranking.to_dict() for ranking in self.rankings},
            "top_windows": {ranking.name: top_windows(self.person, ranking) for ranking in self.rankings},
            "windows_dropped": dict(self.recording.dropped),
            "seconds": self.recording.seconds,
            "sha256": self.recording.sha256,
        }


def describe(bundle: Bundle) -> dict[str, Any]:
    """Name and checksum of a bundle, its cautions and audit warnings: what holds for every prediction of this model.

    A recording's own warnings are kept apart from these, so that they are not overlooked.
    """
    performance, provenance = bundle.metadata["performance"], bundle.metadata["provenance"]
    cautions = [NOTICE, not_better_than_chance(performance), f"trained on {provenance['n_subjects']} subjects"]
    if (usual := provenance["recordings_per_person"]) > 1:
        one_by_one = bundle.model.facts.settings.each[0].bags == "recording"
        how = "pooled; each new recording is predicted alone" if not one_by_one else (
            "one by one; performance and calibration are of their mean, and one recording alone is less certain"
        )  # fmt: skip
        cautions.append(f"trained on {usual:g} recordings per subject (median), {how}")
    cautions = [*filter(None, cautions), *bundle.metadata["cautions"]]
    return {"name": bundle.name, "checksum": bundle.checksum, "cautions": cautions, "audit_warnings": bundle.warnings}


def predict(
    bundle: Bundle,
    paths: Sequence[str | Path],
    *,
    bad_channels: str | None = None,
    recorded_reference: str | None = None,
    clean: str | Sequence[str] = (),
    montage: str | None = None,
    coverage: float | None = None,
) -> Iterator[RecordingPrediction | Refused]:
    """Predict recordings one by one; a refused recording does not stop the others.

    Parameters
    ----------
    bundle : Bundle
        From ``bridgemil.bundle.load``.
    paths : sequence of str or Path
        Files, BIDS folders, or other folders with recordings.
    bad_channels : {"stop", "interpolate"}, optional
        What to do with flat or bad electrodes; by default as for the training recordings.
    recorded_reference : str, optional
        The electrode that the recordings were made against, ``Cz``: if it is absent or flat it is added as zeros, from
        which the average reference recovers it. By default as their BIDS sidecars state it (``EEGReference``).
    clean : str or sequence of str, optional
        Addresses of the functions that the training recordings were cleaned by (``prepare``); a bundle has no code.
    montage : str, optional
        The recordings' cap if its electrodes have names of its own (``GSN-HydroCel-128``, a table); by default that of
        the training recordings.
    coverage : float, optional
        Of the prediction sets, above 0 and below 1; by default .9.

    Yields
    ------
    RecordingPrediction or Refused
        One per recording.
    """
    bundle = bundle if coverage is None else replace(bundle, sets=bundle.sets.at(coverage))
    if (known := bundle.model.sites) and "" not in known:
        raise BadUse(unknown_site(known))
    how = {"bad_channels": bad_channels, "recorded_reference": recorded_reference, "montage": montage}
    for found in read_recordings(bundle, paths, clean, **how):
        if isinstance(found, Problem):
            yield Refused(str(found.file), found.what, bundle)
            continue
        try:
            yield _predict(bundle, found)
        except BadData as error:
            yield Refused(found.name, _problem(error, found.name).what, bundle)


def read_recordings(
    bundle: Bundle, paths: Sequence[str | Path], clean: str | Sequence[str] = (), **how: str | None
) -> Iterator[NewRecording | Problem]:
    """Read recordings one by one as the model takes them; arguments as for ``predict``."""
    settings = settings_for(bundle.signal, bundle.model.facts.preparation, **how)
    cleaner = Cleaner.again(settings.clean, clean)
    fewest = min(MIN_WINDOWS, int(bundle.reference.windows[0]))
    for path in paths:
        try:
            found = find([path])
        except BadData as error:  # a folder that cannot be searched, or holds nothing
            found = [_problem(error, plain(str(path)))]
        for one in found:
            if isinstance(one, Problem):
                yield one
                continue
            try:
                yield read(one, settings, fewest, bundle.reference.highest, cleaner)
            except BadData as error:
                yield _problem(error, one.name)


def _problem(error: BadData, name: str) -> Problem:
    return Problem(str(error).removeprefix(f"{name}: "), file=name)


def assess(bundle: Bundle, prediction: Prediction, features: WindowFeatures) -> Assessment:
    """Calibrated probabilities, out-of-distribution percentile and prediction set of one subject.

    ``prediction`` is of the bundle's model; ``features`` are of the subject's windows (``features_of``).
    """
    percentile, p = bundle.reference.percentile(features), prediction.probabilities
    found = bundle.classes if percentile > WITHHELD else bundle.sets(bundle.calibration.raw(p))
    return Assessment(bundle, prediction, bundle.calibration(p), features, percentile, tuple(found))


def features_of(bundle: Bundle, bag: NDArray[np.float32]) -> WindowFeatures:
    """Features of a subject's windows for the out-of-distribution test."""
    reference = bundle.reference
    return window_features(bag, bundle.signal.sfreq, reference.bands, reference.reference)


def _predict(bundle: Bundle, recording: NewRecording) -> RecordingPrediction:
    bag = recording.windows
    features = features_of(bundle, bag)
    gain = _gain(features, bundle.reference, recording.name)
    found = assess(bundle, bundle.model.predict(bag), features)
    warnings = [*_known(bundle, bag), *_out_of_distribution(found), *_referred(bundle, recording), *gain]
    warnings += [*_length(len(bag), bundle.reference), *recording.notes]
    rankings = rank_windows(bundle.model, bag, int(found.probabilities.argmax()), bundle.calibration)
    return RecordingPrediction(**vars(found), recording=recording, warnings=tuple(warnings), rankings=rankings)


def _known(bundle: Bundle, bag: NDArray[np.float32]) -> list[str]:
    """Warn if the signal is, by its hashes, one that the model was trained on."""
    if not bundle.signals.holds(bag, bundle.signal):
        return []
    how = "train or adapt" if "adapted" in bundle.metadata else "train"
    return [f"this recording was used to {how} the model; its probability is not held out"]


def _out_of_distribution(found: Assessment) -> list[str]:
    """That the recording is out of distribution; if no class is predicted, why, and what would help."""
    bundle = found.bundle
    if found.percentile <= OUTSIDE:
        return []
    unusual = bundle.reference.unusual(found.features, bundle.signal.channels)
    most = f"; most unusual: {', '.join(unusual)}" if unusual else ""
    outside = (
        f"out of distribution: percentile {found.percentile:.0f} among training recordings of the same length (warned "
        f"above {OUTSIDE:.0f}{most}); the probabilities may not be valid for it"
    )
    if not found.withheld:
        return [outside]
    cannot = bundle.not_adaptable
    remedy = f"the model cannot be adapted to another site ({cannot})" if cannot else (
        "if other recordings of this site are out of distribution too, `bridgemil adapt MODEL RECORDING… --out MODEL2` "
        f"with recordings of {LEAST_CONTROLS} or more healthy subjects, made by the same amplifier and montage, moves "
        "the model to the site"
    )  # fmt: skip
    withheld = f"prediction withheld: the out-of-distribution percentile is above {WITHHELD:.0f}; {remedy}"
    return [withheld, outside]


def _gain(features: WindowFeatures, reference: Reference, name: str) -> list[str]:
    """Refuse amplitudes that only a wrong unit explains; warn of those that the gain may explain."""
    lowest, _, highest = reference.spreads
    times = features.spread / float(np.clip(features.spread, lowest, highest))  # 1 inside of their range
    factor = max(times, 1 / times) if times else math.inf
    seen = (
        f"its electrodes have a standard deviation of {features.spread:.3g} µV, training recordings {lowest:.3g} to "
        f"{highest:.3g} µV"
    )
    if factor > GAIN_REFUSED:
        raise BadData(f"{name}: {seen}: the unit in the file is probably wrong (volts, millivolts, microvolts)")
    return [f"{seen}: check the unit and the amplifier's gain"] if factor > GAIN_WARNED else []


def _referred(bundle: Bundle, recording: NewRecording) -> list[str]:
    """Warn if another reference than that of the training recordings is stated, and the model depends on it."""
    facts, trained, stated = bundle.model.facts, bundle.metadata.get("recorded_reference"), recording.stated_reference
    reference_free = facts.settings.reference_free and bundle.signal.n_channels > 1
    if reference_free or facts.preparation.get("reference") or not trained or not stated:
        return []
    if channels.reference_name(stated) in (None, channels.reference_name(trained)):
        return []
    return [
        f"reference: {stated} (by option, sidecar or channel names), the training recordings were recorded against "
        f"{trained}; another reference changes every electrode's signal, and the probabilities may not be valid for it"
    ]


def _length(n: int, reference: Reference) -> list[str]:
    fewest, most = int(reference.windows[0]), int(reference.windows[2])
    if 2 * n < fewest:
        return [f"short: {n} windows, training recordings had {fewest} or more"]
    return [f"long: {n} windows, training recordings had {most} or fewer"] if n > 2 * most else []
