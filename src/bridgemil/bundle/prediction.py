"""What a bundle says of new recordings: refusals that explain, warnings first, then probabilities and the windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.bundle.performance import no_better_than_guessing
from bridgemil.bundle.reference import UNUSUAL, PersonFeatures, Reference, person_features
from bridgemil.bundle.store import NOTICE, Bundle
from bridgemil.cohort.listing import Recording
from bridgemil.cohort.new_recording import MIN_WINDOWS, NewRecording, find, read, settings_for
from bridgemil.errors import BadData, Problem, plain
from bridgemil.models import Prediction

SHOWN = 5  # windows named for and against
GAIN_WARNED, GAIN_REFUSED = 10.0, 100.0  # times the training people's amplitudes
FLAT = 0.1  # gates whose 5th and 95th percentile differ by less than this share of their mean tell nothing


@dataclass(frozen=True)
class WindowsSaid:
    """Which windows spoke for the predicted class, and which against.

    Parameters
    ----------
    by
        ``contribution`` (to the predicted class's logit, less the mean of the other classes), ``probability`` (of the
        predicted class, window by window) or ``gate`` (how far a window was let in: not for what).
    values : shape (n_windows,)
        Of each window.
    flat
        Gates that hardly differ, and so explain nothing.
    opposed : shape (n_windows,)
        Which windows speak for another class; None where that cannot be said (gates).
    """

    by: str
    values: NDArray[np.float64]
    flat: bool = False
    opposed: NDArray[np.bool_] | None = None

    def most(self, n: int = SHOWN) -> list[int]:
        """The windows with the highest values."""
        return [int(i) for i in np.argsort(-self.values, kind="stable")[:n]]

    def least(self, n: int = SHOWN) -> list[int]:
        """The windows with the lowest."""
        return [int(i) for i in np.argsort(self.values, kind="stable")[:n]]

    def against(self, n: int = SHOWN) -> list[int]:
        """Those of the lowest that speak for another class; there may be none."""
        return [] if self.opposed is None else [i for i in self.least(n) if self.opposed[i]]


@dataclass(frozen=True)
class Refused:
    """A recording that cannot be judged, and why."""

    name: str
    why: str
    model: str

    def for_machines(self) -> dict[str, Any]:
        """As ``predict --json`` prints it."""
        empty: dict[str, Any] = {"file": self.name, "probabilities": None, "predicted": None, "windows_used": 0}
        unknown = ("uncalibrated", "unlike_training_percentile", "windows", "windows_dropped", "seconds", "sha256")
        said = {"warnings": [], "error": self.why, "model": self.model, "notice": NOTICE}
        return empty | said | dict.fromkeys(unknown)


@dataclass(frozen=True)
class RecordingSaid:
    """Everything that is known after a prediction; what a page about this person needs.

    Parameters
    ----------
    recording
        The windows and their times.
    prediction
        What the model says, not calibrated, with gates and contributions where it has them.
    probabilities
        Calibrated, K.
    classes
        K names.
    warnings
        Sentences, the most serious first.
    percentile
        The share of training people, in percent, who are nearer to the others than this person is.
    features
        What that was judged by.
    reference
        The training people.
    windows
        Which windows spoke; None where the method does not look at windows one by one.
    model
        Name and hash of the bundle.
    calibration
        In words.
    """

    recording: NewRecording
    prediction: Prediction
    probabilities: NDArray[np.float64]
    classes: tuple[str, ...]
    warnings: tuple[str, ...]
    percentile: float
    features: PersonFeatures
    reference: Reference
    windows: WindowsSaid | None
    model: str
    calibration: str

    @property
    def name(self) -> str:
        """The file, as it was named."""
        return self.recording.name

    @property
    def predicted(self) -> str:
        """The likeliest class."""
        return self.classes[int(self.probabilities.argmax())]

    def for_machines(self) -> dict[str, Any]:
        """As ``predict --json`` prints it."""
        starts, said = self.recording.starts, self.windows
        spoke: dict[str, Any] | None = None
        if said is not None:
            lists = {"most": said.most(), "least": said.least()}
            spoke = {"by": said.by, "flat": said.flat} | {
                key: [{"second": float(starts[i]), "value": float(said.values[i])} for i in rows]
                for key, rows in lists.items()
            }
        return {
            "file": self.name,
            "probabilities": dict(zip(self.classes, self.probabilities.tolist(), strict=True)),
            "predicted": self.predicted,
            "windows_used": len(starts),
            "warnings": list(self.warnings),
            "model": self.model,
            "uncalibrated": dict(zip(self.classes, self.prediction.probabilities.tolist(), strict=True)),
            "unlike_training_percentile": self.percentile,
            "windows": spoke,
            "windows_dropped": dict(self.recording.dropped),
            "seconds": self.recording.seconds,
            "sha256": self.recording.sha256,
            "notice": NOTICE,
        }


def predict(
    bundle: Bundle, paths: Sequence[str | Path], *, bad_channels: str | None = None
) -> Iterator[RecordingSaid | Refused]:
    """Ask a bundle about recordings, one after the other; one that cannot be judged does not stop the rest.

    Parameters
    ----------
    bundle
        From ``bridgemil.bundle.load``.
    paths
        Files, BIDS folders, or other folders with recordings.
    bad_channels
        ``interpolate`` rebuilds electrodes that are flat or marked bad, ``stop`` refuses them; by default what was done
        with the training recordings.
    """
    settings = settings_for(bundle.signal, bundle.model.facts.preparation, bad_channels)
    fewest = min(MIN_WINDOWS, int(bundle.reference.windows[0]))
    highest = max((end for _, end in bundle.reference.bands.values()), default=0.0)
    for recording in (recording for path in paths for recording in _found(path)):
        if isinstance(recording, Problem):
            yield Refused(recording.file or "", recording.what, bundle.title)
            continue
        try:
            yield judge_windows(bundle, read(recording, bundle.signal, settings, fewest, highest))
        except BadData as error:
            yield Refused(recording.name, str(error).removeprefix(f"{recording.name}: "), bundle.title)


def _found(path: str | Path) -> list[Recording | Problem]:
    """What a file or folder holds; a folder that cannot be searched, or holds nothing, is one problem."""
    try:
        return find([path])
    except BadData as error:
        name = plain(str(path))
        return [Problem(str(error).removeprefix(f"{name}: "), file=name)]


def judge_windows(bundle: Bundle, recording: NewRecording) -> RecordingSaid:
    """What a bundle says of one recording that was cut already.

    Parameters
    ----------
    bundle
        The model.
    recording
        From ``bridgemil.cohort.new_recording.read``.
    """
    features = person_features(recording.windows, bundle.signal.sfreq, bundle.reference.bands)
    gain = _gain(features, bundle.reference, recording.name)
    said = bundle.model.predict(recording.windows)
    probabilities = bundle.calibration(said.probabilities)
    percentile = bundle.reference.percentile(features)
    doubt = no_better_than_guessing(bundle.about["performance"])
    warnings = [
        *_unlike(bundle, features, percentile),
        *([doubt] if doubt else []),
        *_referred(bundle, recording),
        *gain,
    ]
    warnings += [*_length(recording, bundle.reference), *_alone(bundle), *recording.notes]
    warnings += bundle.about.get("cautions", ())
    return RecordingSaid(
        recording, said, probabilities, bundle.classes, tuple(warnings), percentile, features, bundle.reference,
        _windows(said, int(probabilities.argmax())), bundle.title, bundle.calibration.sentence,
    )  # fmt: skip


def _gain(features: PersonFeatures, reference: Reference, name: str) -> list[str]:
    """Refuse amplitudes that only a wrong unit explains; a word about those that a gain may."""
    lowest, _, highest = reference.spreads
    times = features.spread / float(np.clip(features.spread, lowest, highest))  # 1 inside of their range
    range_ = f"{lowest:.3g} to {highest:.3g}"
    seen = f"its electrodes vary by {features.spread:.3g} µV, those of the training people by {range_}"
    if times > GAIN_REFUSED or times < 1 / GAIN_REFUSED:
        raise BadData(f"{name}: {seen} µV: the unit in the file is probably wrong (volts, millivolts, microvolts)")
    if times > GAIN_WARNED or times < 1 / GAIN_WARNED:
        return [f"{seen} µV: check the unit and the amplifier's gain"]
    return []


def _referred(bundle: Bundle, recording: NewRecording) -> list[str]:
    """A word if a sidecar, or the channels' names, say another reference than the training recordings had."""
    trained, stated = bundle.about.get("recorded_reference"), recording.stated_reference
    if not trained or not stated or bundle.model.facts.preparation.get("reference"):
        return []
    if set(re.findall(r"[A-Z]+[0-9]*", trained.upper())) <= set(re.findall(r"[A-Z]+[0-9]*", stated.upper())):
        return []
    return [
        f"its sidecar or its channels' names say that it was recorded against {stated}, the training recordings were "
        f"against {trained}: another reference changes every electrode, and the probabilities may mean nothing here"
    ]


def _unlike(bundle: Bundle, features: PersonFeatures, percentile: float) -> list[str]:
    if percentile <= UNUSUAL:
        return []
    standing = bundle.reference.unusual(features, bundle.signal.channels)
    most = f"; most unusual: {', '.join(standing)}" if standing else ""
    return [
        f"unlike the training people: farther from them than {percentile:.0f} % of them are from each other "
        f"(warned above {UNUSUAL:.0f} %{most}); the probabilities may mean nothing here"
    ]


def _length(recording: NewRecording, reference: Reference) -> list[str]:
    n, fewest, most = len(recording.windows), int(reference.windows[0]), int(reference.windows[2])
    if 2 * n < fewest:
        return [f"short: {n} windows, the training people had {fewest} or more"]
    return [f"long: {n} windows, the training people had {most} or fewer"] if n > 2 * most else []


def _alone(bundle: Bundle) -> list[str]:
    """A word if the training people had several recordings each, which were taken together."""
    usual = bundle.about["provenance"].get("recordings_per_person", 1)  # earlier bundles do not say
    if usual <= 1:
        return []
    return [f"judged alone: the training people had {usual:g} recordings each (median), which were taken together"]


def _windows(said: Prediction, predicted: int) -> WindowsSaid | None:
    if said.contributions is not None:
        rest = np.delete(said.contributions, predicted, axis=1).mean(axis=1)
        values = np.asarray(said.contributions[:, predicted] - rest, dtype=np.float64)
        return WindowsSaid("contribution", values, opposed=values < 0)
    if said.window_probabilities is not None:
        p = np.asarray(said.window_probabilities, dtype=np.float64)
        return WindowsSaid("probability", p[:, predicted], opposed=p.argmax(axis=1) != predicted)
    if said.gates is None:
        return None
    gates = np.asarray(said.gates, dtype=np.float64)
    low, high = np.quantile(gates, [0.05, 0.95])
    return WindowsSaid("gate", gates, bool(high - low < FLAT * gates.mean()))
