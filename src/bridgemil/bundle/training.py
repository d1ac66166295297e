"""``train``: cross-validate, average the folds' models (or fit one on all subjects), calibrate, write a bundle."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.baselines.pipeline import NOT_STORED
from bridgemil.bundle.bundle import METADATA, Bundle, by_population, control_class, open_bundle, refuse_taken
from bridgemil.bundle.conformal import PredictionSets, cross_coverage
from bridgemil.bundle.novelty import Reference, TrainingSignals, make_reference, population
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.cohort.sources.bids import derivative_sentence
from bridgemil.cohort.views import Unlabelled
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse, BridgeMILError, BridgeMILWarning
from bridgemil.evaluation import calibration
from bridgemil.evaluation.clinical import TwoClassMetrics
from bridgemil.evaluation.metrics import labelled, score_intervals
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import Results
from bridgemil.methods import Settings
from bridgemil.models import (
    BaselineModel,
    EnsembleModel,
    Model,
    ModelFacts,
    NetworkModel,
    features_of,
    fit_whole,
    roles,
)
from bridgemil.parallel import device_of, torch_threads
from bridgemil.report.characteristics import class_rows
from bridgemil.report.window_values import leaves
from bridgemil.runs import RunCache, RunStore, open_store
from bridgemil.storage.artifact import digest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PER_SITE = (
    "features are adjusted per site: at a new site the model needs `bridgemil adapt` with recordings of healthy "
    "subjects before it can predict"
)
PERMUTATIONS = 2000  # of the diagnoses, for the p-value of the balanced accuracy


@dataclass(frozen=True)
class Trained:
    """A bundle, the results of its evaluation, and the folder of their runs."""

    bundle: Bundle
    results: Results
    runs: Path


def train(
    cohort: Cohort | str | Path,
    out: str | Path,
    method: str = methods.METHOD,
    backbone: str = methods.BACKBONE,
    *,
    seed: int = 0,
    single: bool = False,
    runs: str | Path | None = None,
    name: str | None = None,
    cautions: Sequence[str] = (),
    recorded_reference: str | None = None,
    device: str = "auto",
    threads: int = 1,
    jobs: int | None = None,
    baselines: bool = True,
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> Trained:
    """Train a model for new recordings on a whole cohort, and write it with its card.

    Parameters
    ----------
    cohort : Cohort, str or Path
        A cohort or its folder.
    out : str or Path
        The bundle's folder.
    method, backbone, device : str, optional
        As for ``bridgemil.evaluate``, which comes first.
    threads, jobs : int, optional
        As for ``bridgemil.evaluate``.
    baselines, progress : bool, default True
        As for ``bridgemil.evaluate``.
    **options : Any
        As for ``bridgemil.evaluate``: the other fields of ``Protocol``.
    seed : int, default 0
        Of weights, sampling and dropout.
    single : bool, default False
        One model fitted on all subjects; where an epoch is selected (recipe ``paper``), on all but the first fold,
        which selects it. By default the models of all folds are averaged.
    runs : str or Path, optional
        Folder for the runs of the evaluation, from which an interrupted call resumes; ``OUT.runs`` by default.
    name : str, optional
        Of the model; the folder's name by default.
    cautions : sequence of str, optional
        Sentences on the training subjects and their recordings that accompany every prediction.
    recorded_reference : str, optional
        The reference of the training recordings, ``A1-A2``: a recording whose sidecar or channel names state another
        gets a warning.
    overwrite : bool, default False
        Replace another bundle in ``out``.

    Returns
    -------
    Trained
        The bundle, the results of the evaluation and the folder of its runs.
    """
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    out = Path(out)
    protocol = Protocol(method, backbone, seeds=[seed], **options)
    plan, chosen = protocol.fold_plan(cohort), protocol.method_settings(cohort)
    _check(protocol, plan, chosen, single)
    second = protocol.second(cohort)
    unlabelled = None if second is None else Unlabelled.beside(cohort, second)
    identity = digest([chosen.changed, cohort.hash, plan.hash, seed, single])
    earlier = _same_training(out, identity)
    refuse_taken(out, overwrite or earlier is not None)
    if any(member.site_adjust != "none" for member in chosen.each):
        cautions = [*cautions, PER_SITE]
        warnings.warn(PER_SITE, BridgeMILWarning, stacklevel=2)
    kept = Path(runs) if runs is not None else out.with_name(out.name + ".runs")
    results = evaluate(
        cohort, method, backbone, [seed], out=kept, device=device, threads=threads, jobs=jobs, baselines=baselines,
        progress=progress, **options,
    )  # fmt: skip
    runs_store = open_store(kept)
    if single:
        with torch_threads(threads):
            model = _single(cohort, plan, chosen, seed, device, runs_store, unlabelled)
    else:
        model = _of_folds(cohort, results, chosen, seed, runs_store)
    metadata, calibrated = _metadata(cohort, results, name or out.name, identity, single)
    if unlabelled is not None:
        metadata["trained"] += f" {unlabelled.sentence}"
        metadata["provenance"]["pretrain_on"] = unlabelled.for_json()
    if cleaned := derivative_sentence(cohort.metadata.get("provenance") or {}):
        cautions = [*cautions, f"trained on the BIDS {cleaned}: a new recording must have been cleaned in the same way"]
    metadata |= {"cautions": list(cautions), "recorded_reference": recorded_reference}
    if earlier is not None:
        metadata["created"] = earlier["created"]
    control = control_class(cohort.classes, protocol.positive)
    reference = _reference(model, cohort, RunCache(runs_store), control)
    sets = PredictionSets.fit(*held_out(results)[:2], results.classes)
    signals = TrainingSignals.of(map(cohort.windows, cohort.subjects), cohort.signal)
    if unlabelled is not None:  # everybody that the model has seen
        signals |= TrainingSignals.of(map(unlabelled.cohort.windows, unlabelled.subjects), cohort.signal)
    bundle = Bundle(model, calibrated, sets, reference, signals, metadata)
    return Trained(bundle.save(out, overwrite=True), results, kept)


def _check(protocol: Protocol, plan: FoldPlan, chosen: Settings, single: bool) -> None:
    """Refuse what can be evaluated, but does not make a model for new recordings."""
    if len(plan.numbers) < 2:
        raise BadUse("train with a split that tests one fold has too few held-out predictions; leave --split out")
    if protocol.tune:
        raise BadUse("train chooses no settings: choose them with evaluate --tune, then train with --set")
    for member in chosen.each:
        if member.address is not None:
            raise BadUse(NOT_STORED.format(name=member.address))
        if member.adjust:
            columns = f"columns ({', '.join(member.adjust)}) that its features could be adjusted for"
            raise BadUse(f"a new recording has no {columns}: leave --adjust out of train")
        if single and member.site_adjust != "none":
            raise BadUse("--single fits no maps of the sites: leave it out where site_adjust is set, or leave that out")


def _reference(model: Model, cohort: Cohort, cache: RunCache, control: str | None) -> Reference:
    """Statistics of the subjects: of their windows, of named features, and of all features after harmonisation."""

    def means(leaf: Model) -> list[Floats]:
        assert leaf.features is not None
        return [leaf.features.mean(features_of(cache, leaf.features, cohort, who)) for who in cohort.subjects]

    rows, controls = {row["subject"]: row for row in cohort.rows()}, np.array(cohort.labels) == control
    populations = {}
    for name, leaf in by_population(model).items():
        pairs = zip(cohort.subjects, means(leaf), strict=True)
        values = np.stack([leaf.for_subject(rows[who]).adjusted(own) for who, own in pairs])
        populations[name] = population(values, controls)
    # Of a baseline if there is one; the features of a frozen encoder have no names.
    first: list[Model] = [one for one in leaves(model) if isinstance(one, BaselineModel) and one.baseline.feature_names]
    first += [one for one in leaves(model) if isinstance(one, NetworkModel) and one.features and one.frozen is None]
    named = np.stack(means(first[0])) if first else None
    windows = "average" if model.facts.settings.reference_free else "recorded"
    return make_reference(cohort, named, windows, control, populations)


def _same_training(out: Path, identity: str) -> Mapping[str, Any] | None:
    """The metadata of a bundle of this very training: the same call may be repeated, and changes nothing."""
    with suppress(BridgeMILError):
        metadata = open_bundle(out).json(METADATA)
        return metadata if metadata["provenance"].get("identity") == identity else None
    return None


def _of_folds(cohort: Cohort, results: Results, settings: Settings, seed: int, runs: RunStore) -> Model:
    """The models of all folds, and of all members where the method is an ensemble, averaged."""
    members: dict[str, Model] = {}
    for part in results.members.values() or [results]:
        for fold, identity in enumerate(part.runs, 1):
            suffix = f"-{part.name}" if results.members else ""
            code = part.settings.backbone if part.settings.code is not None else None
            members[f"fold-{fold:02d}{suffix}"] = runs.model(identity, backbone=code)
    return EnsembleModel(ModelFacts.of(cohort, settings, seed), dict(sorted(members.items())))


def _single(
    cohort: Cohort,
    plan: FoldPlan,
    settings: Settings,
    seed: int,
    device: str,
    runs: RunStore,
    unlabelled: Unlabelled | None,
) -> Model:
    """One model on all subjects; the first fold selects the epoch, if any. It resumes like a run."""
    train = tuple(subject for fold in plan.folds[1:] for subject in fold)

    def cache(member: Settings) -> RunCache:
        subjects = Fold(0, *roles(member, train, plan.folds[0]), ())
        return RunCache.of_run(runs, member, cohort.hash, subjects, seed)

    how: dict[str, Any] = {"device": device_of(device), "cache": cache, "unlabelled": unlabelled}
    model = fit_whole(cohort, train, plan.folds[0], settings, seed, **how)
    for member in settings.each:
        cache(member).checkpoint().unlink(missing_ok=True)
    return model


def _trained(results: Results, single: bool) -> str:
    """The training subjects of the model, as a sentence."""
    selects = results.settings.selects
    if single:
        on = f"but the first of {results.folds} folds, which selected its epoch" if selects else "subjects"
        return f"One model, fitted on all {on}."
    selected = "; another fold selected its epoch" if selects else ""
    return f"The mean of the models of {results.folds} folds, each fitted without the fold that tested it{selected}."


def _metadata(
    cohort: Cohort, results: Results, name: str, identity: str, single: bool
) -> tuple[dict[str, Any], calibration.Calibration]:
    """The content of bundle.json beside the model's own facts, and the calibration that held-out predictions support.

    The calibration error after is of probabilities that were calibrated by the other folds only, decision included.
    """
    p, y, folds = held_out(results)
    (chosen, why), calibrated = calibration.decide(p, y, folds), calibration.cross_calibrated(p, y, folds)
    error = {
        when: calibration.calibration_error(values, y).for_json() | {"log_loss": calibration.log_loss(values, y)}
        for when, values in (("before", p), ("after", calibrated))
    }
    line = {}
    if isinstance(results.clinical, TwoClassMetrics):
        positive = results.classes.index(results.clinical.positive)
        line = calibration.calibration_line(calibrated[:, positive], y == positive)
    content = {
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "ensemble": "single" if single else "folds",
        "trained": _trained(results, single),
        "warnings": results.warnings,
        "performance": measure(results, calibrated),
        "calibration": chosen.for_json() | why | {"sentence": chosen.sentence, "error": error} | line,
        "prediction_sets": {"measured": cross_coverage(p, y, folds, results.classes)},
        "provenance": {
            "identity": identity,
            "cohort_hash": cohort.hash,
            "source": str(cohort.metadata["source"]),
            "n_subjects": len(cohort),
            "n_windows": cohort.n_windows,
            "people": class_rows(cohort),
            "recordings_per_person": float(np.median([len(r.recording_windows) for r in cohort.records.values()])),
            "native_sfreq": sorted({float(file["native_sfreq"]) for file in cohort.metadata["files"]}),
            "prepared_with": dict(cohort.metadata.get("versions", {})),
            "python": platform.python_version(),
            "runs": list(results.runs),
        },
    }
    return content, chosen


def held_out(results: Results) -> tuple[Floats, Ints, Ints]:
    """Held-out probabilities (n, K), class numbers (n,) and folds (n,) of the n subjects, from results of one seed."""
    return *labelled(results.predictions, results.classes), results.predictions["fold"].to_numpy(dtype=np.int64)


def measure(results: Results, p: Floats) -> dict[str, Any]:
    """Scores of held-out subjects with 95 % intervals, as ``bundle.json`` holds them.

    Of the classes that a bundle would predict: the most probable ones after calibration by the other folds (``p``, n x
    K). A vote's own prediction, and the most probable class before an isotonic calibration, may be another.
    ``p_guessing``: permutation p-value of the balanced accuracy, diagnoses permuted over subjects.
    """
    predicted, true = np.asarray(results.classes)[p.argmax(axis=1)], results.predictions["label"].to_numpy()
    results = replace(results, predictions=results.predictions.assign(predicted=predicted))
    rng = np.random.default_rng(0)

    def balanced(labels: NDArray[Any]) -> float:
        return float(np.mean([(predicted[labels == name] == name).mean() for name in results.classes]))

    shuffled = np.array([balanced(rng.permutation(true)) for _ in range(PERMUTATIONS)])
    row = results.to_dict()
    intervals = score_intervals(results.predictions, results.classes)
    return {
        "accuracy": {"value": row["accuracy"]["mean"], "ci95": row["ci95"]},
        **{name: {"value": row[name], "ci95": list(intervals[name])} for name in ("balanced_accuracy", "auroc")},
        **{name: row[name] for name in ("macro_f1", "mcc", "chance", "chance95", "confusion", "n_subjects", "folds")},
        "clinical": results.clinical.to_dict(curves=False),
        "p_guessing": float((1 + (shuffled >= balanced(true) - 1e-12).sum()) / (1 + PERMUTATIONS)),
        "split": row["split"],
        "baselines": {name: baseline["accuracy"]["mean"] for name, baseline in row["baselines"].items()},
    }
