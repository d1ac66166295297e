"""``adapt``: move a model to another site with recordings of the site's healthy subjects.

The mean and the standard deviation of every feature are mapped from those of the new site's controls to those of the
training controls; so are the features of the out-of-distribution test. The log-odds are shifted, so that controls of
the new site are predicted as the training controls were by the folds that held them out; with patients of the site as
well, so that the probabilities are calibrated. What changed is reported by leave-one-out: each subject is predicted by
a model that was adapted with the others. (The shift that judges a subject is fitted on predictions of the others by
models that were adapted with it: leaving two out would predict every pair.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.bundle.bundle import Bundle, by_population, control_class, population_name, refuse_taken
from bridgemil.bundle.novelty import NOVELTY, TrainingSignals
from bridgemil.bundle.prediction import LEAST_CONTROLS, Assessment, assess, features_of, read_recordings
from bridgemil.cohort.new_recording import NewRecording
from bridgemil.errors import BadData, BadUse, Problem
from bridgemil.evaluation.calibration import Calibration, Shift, fit_shift, log_odds
from bridgemil.evaluation.diagnostic_accuracy import Proportion
from bridgemil.models.features import LazyBag
from bridgemil.models.harmonisation import location_scale

Floats = NDArray[np.float64]
Paths = Sequence[str | Path]
CONTROLS, PATIENTS, UNLABELLED = "controls", "patients", "unlabelled"
CERTAIN = 0.999  # probabilities beyond are clipped where log-odds are averaged


@dataclass(frozen=True)
class Adapted:
    """The adapted bundle as written, and what changed for each recording.

    The rows are ``file``, ``group`` (controls, patients or unlabelled), ``before`` and ``after``, each with
    ``probabilities``, ``predicted`` (None: withheld) and ``percentile``.
    """

    bundle: Bundle
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class _Subject:
    """What is kept of a recording: features, but no windows."""

    name: str
    group: str
    bag: LazyBag
    means: dict[str, Floats]  # mean features by population
    before: Assessment


def adapt(
    bundle: Bundle,
    controls: Paths,
    out: str | Path,
    *,
    patients: Paths = (),
    unlabelled: bool = False,
    name: str | None = None,
    overwrite: bool = False,
    **reading: Any,
) -> Adapted:
    """Adapt a model to another site and write it as a new bundle.

    Parameters
    ----------
    bundle : Bundle
        From ``bridgemil.bundle.load``. Every member must work on fixed features: ``bandpower``, ``tangent``, a network
        on ``covariance``.
    controls : sequence of str or Path
        Recordings of 10 or more healthy subjects of the site, one per subject: files, BIDS folders, other folders.
    out : str or Path
        The new bundle's folder.
    patients : sequence of str or Path, optional
        Recordings of 10 or more patients of the site, for a model of two classes: probabilities are calibrated again.
    unlabelled : bool, default False
        The recordings are of subjects whose class is not known, in the class proportions of the training subjects.
    name : str, optional
        Of the new model; the folder's name by default.
    overwrite : bool, default False
        Replace another bundle in ``out``.
    **reading : Any
        How the recordings are read, as for ``bridgemil.bundle.predict``: ``bad_channels``, ``recorded_reference``,
        ``clean``, ``montage``.

    Returns
    -------
    Adapted
        The new bundle, and what changed for these subjects.
    """
    out, control = Path(out), _check(bundle, patients, unlabelled)
    refuse_taken(out, overwrite)
    groups = {UNLABELLED if unlabelled else CONTROLS: controls, PATIENTS: patients}
    subjects, signals = _read(_predicting(bundle), groups, reading)
    site = [subject for subject in subjects if subject.group != PATIENTS]
    found = []
    for subject in subjects:
        others = _moved(bundle, [one for one in site if one is not subject], unlabelled)
        found.append(assess(others, others.model.predict(subject.bag), subject.before.features))
    p, groups_of = np.stack([one.prediction.probabilities for one in found]), np.array([s.group for s in subjects])
    everyone = np.arange(len(subjects))
    held_out = [_shift(bundle, p[rest], groups_of[rest], control) for rest in (everyone != i for i in everyone)]
    adapted = replace(_moved(bundle, site, unlabelled), calibration=_shift(bundle, p, groups_of, control))
    if not unlabelled:
        raw = np.stack([shift.raw(own) for shift, own in zip(held_out, p, strict=True)])
        members = {c: groups_of == (CONTROLS if c == control else PATIENTS) for c in bundle.classes}
        scores = {c: np.sort(raw[own, k]) for k, (c, own) in enumerate(members.items()) if own.any()}
        adapted = replace(adapted, sets=replace(bundle.sets, scores={**bundle.sets.scores, **scores}))
    after = [replace(one, probabilities=shift(own)) for one, shift, own in zip(found, held_out, p, strict=True)]
    rows = [
        {"file": s.name, "group": s.group, "before": _row(s.before), "after": _row(own)}
        for s, own in zip(subjects, after, strict=True)
    ]
    metadata = _metadata(adapted, rows, control, name or out.name)
    adapted = replace(adapted, metadata=metadata, signals=signals)
    return Adapted(adapted.save(out, overwrite=overwrite), rows)


def _check(bundle: Bundle, patients: Paths, unlabelled: bool) -> str:
    """Refuse what cannot be adapted before a recording is read; the class of the controls."""
    if bundle.not_adaptable:
        raise BadUse(f"{bundle.name} cannot be adapted: {bundle.not_adaptable}")
    if patients and unlabelled:
        raise BadUse("--patients are labelled; leave --unlabelled out")
    if (patients or unlabelled) and len(bundle.classes) != 2:
        option = "--patients" if patients else "--unlabelled"
        raise BadUse(f"{option} is for models of two classes; {bundle.name} has {', '.join(bundle.classes)}")
    clinical = bundle.metadata["performance"]["clinical"]
    control = control_class(bundle.classes, clinical.get("positive"))
    if control is None:
        raise BadUse(f"none of the classes of {bundle.name} ({', '.join(bundle.classes)}) is named as healthy controls")
    return control


def _predicting(bundle: Bundle) -> Bundle:
    """The bundle that predicts before adaptation; one that needs a known site predicts from unadjusted features."""
    if not bundle.model.sites or "" in bundle.model.sites:
        return bundle
    return replace(bundle, model=bundle.model.moved(lambda _: (np.zeros(1), np.ones(1))))


def _read(bundle: Bundle, groups: dict[str, Paths], how: dict[str, Any]) -> tuple[list[_Subject], TrainingSignals]:
    """Features of every recording, and hashes of all signals that the model will know; all problems at once."""
    subjects, problems, signals, whose = [], list[Problem](), bundle.signals, Counter[Path]()
    for group, paths in groups.items():
        for found in read_recordings(bundle, paths, **how):
            if not isinstance(found, Problem) and bundle.signals.holds(found.windows, bundle.signal):
                found = Problem(f"was used to train or adapt {bundle.name}", file=found.name)
            if isinstance(found, Problem):
                problems.append(found)
                continue
            subjects.append(_subject(bundle, found, group))
            signals |= TrainingSignals.of([found.windows], bundle.signal)
            whose[_owner(found.path)] += 1
    if problems:
        raise BadData("recordings that cannot be used; leave them out", problems)
    if twice := [str(who) for who, n in whose.items() if n > 1]:
        raise BadData(f"several recordings of one subject ({', '.join(twice)}); give one recording per subject")
    for group, paths in groups.items():
        n = sum(subject.group == group for subject in subjects)
        if n < LEAST_CONTROLS and (group != PATIENTS or paths):
            raise BadData(f"{n} recordings of {group}; at least {LEAST_CONTROLS} are needed, one per subject")
    return subjects, signals


def _subject(bundle: Bundle, recording: NewRecording, group: str) -> _Subject:
    bag = LazyBag.of(recording.windows)  # holds every member's features once it is predicted
    before = assess(bundle, bundle.model.predict(bag), features_of(bundle, recording.windows))
    means = {NOVELTY: before.features.vector}
    for name, leaf in by_population(bundle.model).items():
        assert leaf.features is not None
        means[name] = leaf.features.mean(bag.features(leaf.features))
    return _Subject(recording.name, group, replace(bag, read=_unread), means, before)


def _unread() -> NDArray[np.float32]:
    raise RuntimeError("features of every member were computed before")


def _owner(path: Path) -> Path:
    """The folder of the subject (``sub-…``) that a recording lies in, or else the file."""
    return next((parent for parent in path.absolute().parents if parent.name.startswith("sub-")), path.absolute())


def _moved(bundle: Bundle, site: Iterable[_Subject], unlabelled: bool) -> Bundle:
    """The bundle with the maps of a site that is known by these subjects."""
    means, training = [subject.means for subject in site], bundle.reference.populations
    features = {name: np.stack([own[name] for own in means]) for name in means[0]}
    to = slice(2, 4) if unlabelled else slice(0, 2)  # mean and deviation of all training subjects, or of the controls
    scales = {name: location_scale(own, *training[name][to]) for name, own in features.items()}
    model = bundle.model.moved(lambda leaf: scales[population_name(leaf)])
    return replace(bundle, model=model, reference=replace(bundle.reference, site=scales[NOVELTY]))


def _shift(bundle: Bundle, p: Floats, groups: NDArray[np.str_], control: str) -> Shift:
    """The shift of the log-odds that belongs to mapped features, from probabilities (n x K) of the site's subjects.

    With patients it calibrates the probabilities, in the training's class proportions. Otherwise the mean log-odds of
    the site's controls become those of the training controls, each predicted by the fold that held it out. Without this
    the mapped controls would be where the training controls are for a model that has learned from them: their
    probabilities would be too good, and those of patients too.
    """
    first: Calibration = bundle.calibration
    first, of = first.first if isinstance(first, Shift) else first, bundle.classes.index(control)
    if PATIENTS in groups:
        counts = {row["class"]: row["n"] for row in bundle.metadata["provenance"]["people"]}
        shares = [counts[name] / sum(counts.values()) for name in bundle.classes]
        return fit_shift(p, np.where(groups == PATIENTS, 1 - of, of), shares, of, first)
    target = bundle.sets.scores[control]
    if UNLABELLED in groups:
        target = np.concatenate([target, 1 - bundle.sets.scores[bundle.classes[1 - of]]])
    value = _log_odds(target).mean() - _log_odds(p[:, of]).mean()
    return Shift(round(float(value), 6), of, first)


def _log_odds(p: Floats) -> Floats:
    """One subject should not decide the mean."""
    return log_odds(np.clip(p, 1 - CERTAIN, CERTAIN))


def _row(found: Assessment) -> dict[str, Any]:
    return {"probabilities": found.by_class(), "predicted": found.predicted, "percentile": found.percentile}


def _summary(rows: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        found[group] = {"n": len(own)}
        for when in ("before", "after"):
            counts = Counter(row[when]["predicted"] for row in own)
            shares = {name: Proportion.of(counts[name], len(own)).to_dict() for name in (*classes, None)}
            median = float(np.median([row[when]["percentile"] for row in own]))
            found[group][when] = {"withheld": shares.pop(None), "predicted": shares, "median_percentile": median}
    return found


def _metadata(adapted: Bundle, rows: Sequence[dict[str, Any]], control: str, name: str) -> dict[str, Any]:
    """The content of bundle.json: that of the model, and what it was adapted with."""
    old, summary = adapted.metadata, _summary(rows, adapted.classes)
    n = {group: found["n"] for group, found in summary.items()}
    patients = f" and {n[PATIENTS]} patients" if PATIENTS in n else "; its sensitivity there was not measured"
    caution = "adapted to another site by " + (
        f"{n[UNLABELLED]} recordings without labels, in which the class proportions of the training were assumed; an "
        "evaluation on the same subjects is transductive"
        if UNLABELLED in n
        else f"recordings of {n[CONTROLS]} healthy subjects{patients}. Performance and calibration above are of the "
        "training site"
    )
    today = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        **old,
        "name": name,
        "created": today,
        "cautions": [*old["cautions"], caution],
        "calibration": {**old["calibration"], "sentence": adapted.calibration.sentence},
        "provenance": {**old["provenance"], "identity": ""},  # another training may not replace it unasked
        "adapted": {"model": old["name"], "checksum": adapted.checksum, "date": today, "control": control,
                    "recordings": n, "summary": summary},
    }  # fmt: skip
