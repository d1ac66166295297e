"""``train``: cross-validate, take the models of the folds (or fit one on everyone), calibrate, and write a bundle."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.baselines import Baseline
from bridgemil.bundle import store
from bridgemil.bundle.card import people, write_card
from bridgemil.bundle.performance import HeldOut, as_said, judge_calibration, measure
from bridgemil.bundle.reference import make_reference
from bridgemil.bundle.store import Bundle
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BridgeMILError
from bridgemil.evaluation.estimate import torch_threads
from bridgemil.evaluation.protocol import fold_plan
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.run import device_of
from bridgemil.methods import Settings, digest
from bridgemil.models import (
    BaselineModel,
    EnsembleModel,
    Model,
    ModelFacts,
    NetworkModel,
    features_of,
    fit_whole,
    front_end_arrays,
    roles,
)
from bridgemil.models.model import baseline_key
from bridgemil.report.window_values import leaves
from bridgemil.runs import RunCache, RunStore, open_store, run_identity, stage1_identity

if TYPE_CHECKING:
    import torch

    from bridgemil.engine.evaluate import Announce

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """A bundle, and the evaluation that stands behind it."""

    bundle: Bundle
    results: Results
    runs: Path


def train(
    cohort: Cohort | str | Path,
    out: str | Path,
    method: str = methods.METHOD,
    backbone: str = methods.BACKBONE,
    *,
    recipe: str | None = None,
    budget: str = methods.BUDGET,
    seed: int = 0,
    single: bool = False,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
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
    announce: Announce | None = None,
    settings: dict[str, Any] | None = None,
    accept_risk: Sequence[str] = (),
    positive: str | None = None,
    prevalence: float | None = None,
) -> Trained:
    """Train a model for new recordings on a whole cohort, and write it with its card.

    Parameters
    ----------
    cohort
        A cohort or its folder.
    out
        The bundle's folder.
    method, backbone, recipe, budget, settings, folds, split, groups, split_seed, device, threads, jobs, baselines, \
    announce, accept_risk, positive, prevalence
        As for ``bridgemil.evaluate``, which comes first.
    seed
        Of weights, sampling and dropout.
    single
        One model fitted on everyone; where an epoch is selected (recipe ``paper``), on all but the first fold, which
        selects it. By default the models of all folds are averaged.
    runs
        Folder for the runs of the evaluation, which is how an interrupted call goes on; ``OUT.runs`` by default.
    name
        What the model is called; the folder's name by default.
    cautions
        Sentences about the training people and their recordings that every prediction is to carry as a warning.
    recorded_reference
        Electrodes that the training recordings were made against, ``A1-A2``: a recording whose sidecar or channels'
        names say another gets a warning.
    overwrite
        Replace another bundle in ``out``.
    progress
        Show progress on standard error.
    """
    cohort = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    out = Path(out)
    plan = fold_plan(cohort, folds, split, groups, split_seed)
    chosen = methods.for_cohort(cohort, method, backbone, budget, settings, recipe=recipe)
    identity = digest([chosen.changed, cohort.hash, plan.hash, seed, single])
    store.refuse_taken(out, overwrite or _is_the_same(out, identity))
    kept = Path(runs) if runs is not None else out.with_name(out.name + ".runs")
    results = evaluate(
        cohort, method, backbone, [seed], budget, kept, recipe=recipe, split=plan, device=device, threads=threads,
        jobs=jobs, baselines=baselines, progress=progress, announce=announce, settings=settings,
        accept_risk=accept_risk, positive=positive, prevalence=prevalence,
    )  # fmt: skip
    runs_store = open_store(kept)
    if single:
        with torch_threads(threads):
            model = _single(cohort, plan, chosen, seed, device_of(device), runs_store)
    else:
        model = _of_folds(cohort, results, chosen, seed, runs_store)
    about = _about(cohort, results, name or out.name, identity, single)
    about |= {"cautions": list(cautions), "recorded_reference": recorded_reference}
    card = write_card(about, model.facts.for_json())
    decision = about.pop("decision")
    reference = make_reference(cohort, _mean_features(model, cohort, runs_store))
    bundle = Bundle(model, decision, reference, about, card)
    return Trained(bundle.save(out, overwrite=True), results, kept)


def _mean_features(model: Model, cohort: Cohort, runs: RunStore) -> Floats | None:
    """Of each person the mean of the features that have names, people x F; a baseline's if there is one."""
    cache = RunCache(runs, "", None, {})
    for leaf in sorted(leaves(model), key=lambda leaf: isinstance(leaf, NetworkModel)):
        if isinstance(leaf, BaselineModel) and _has_names(leaf.baseline):
            key = baseline_key(leaf.facts.settings, leaf.baseline)
            return np.stack([features_of(cache, key, cohort, who, leaf.baseline.features) for who in cohort.subjects])
        arrays = front_end_arrays(leaf.network.encoder, cohort, cache) if isinstance(leaf, NetworkModel) else None
        if arrays is not None:
            return np.stack([arrays(who).mean(axis=0, dtype=np.float64) for who in cohort.subjects])
    return None


def _has_names(baseline: Baseline) -> bool:
    return getattr(baseline, "front_end", None) is not None or baseline.name == "bandpower"


def _is_the_same(out: Path, identity: str) -> bool:
    """Whether a bundle of this very training is there: the same call may be made again."""
    try:
        content: Mapping[str, Any] = store.open_bundle(out).json(store.ABOUT)["provenance"]
    except BridgeMILError:
        return False
    return content.get("identity") == identity


def _facts(cohort: Cohort, settings: Settings, seed: int) -> ModelFacts:
    return ModelFacts(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed)


def _of_folds(cohort: Cohort, results: Results, settings: Settings, seed: int, runs: RunStore) -> Model:
    """The models of all folds, and of all members where the method is an ensemble, averaged."""
    members: dict[str, Model] = {}
    for part in results.members.values() or [results]:
        for fold, identity in enumerate(part.runs, 1):
            suffix = f"-{part.name}" if results.members else ""
            code = part.settings.backbone if part.settings.code is not None else None
            members[f"fold-{fold:02d}{suffix}"] = runs.model(identity, backbone=code)
    return EnsembleModel(_facts(cohort, settings, seed), dict(sorted(members.items())))


def _single(
    cohort: Cohort, plan: FoldPlan, settings: Settings, seed: int, device: torch.device, runs: RunStore
) -> Model:
    """One model on everyone; the first fold selects the epoch, if any. It goes on from its checkpoint like a run."""
    train = tuple(subject for fold in plan.folds[1:] for subject in fold)
    identities = []

    def cache(member: Settings) -> RunCache:
        subjects = Fold(0, *roles(member, train, plan.folds[0]), ())
        identity = run_identity(member, cohort.hash, subjects, seed)
        identities.append(identity)
        note: dict[str, Any] = {"seed": seed, "cohort": cohort.hash, "train": sorted(subjects.train)}
        if member.stage1 is not None:
            note |= {"settings": member.stage1.model_dump(mode="json"), "backbone": member.backbone}
        return RunCache(runs, identity, stage1_identity(member, cohort.hash, subjects, seed), note)

    model = fit_whole(cohort, train, plan.folds[0], settings, seed, device=device, cache=cache)
    for identity in identities:
        runs.checkpoint(identity).unlink(missing_ok=True)
    return model


def _trained(results: Results, single: bool) -> str:
    """Who the model learnt from, in a sentence."""
    k, selects = results.folds, results.settings.selects
    if single:
        return f"One model, fitted on all but the first of {k} folds, which selected its epoch." if selects else (
            "One model, fitted on everyone."
        )  # fmt: skip
    selected = "; another fold selected its epoch" if selects else ""
    return f"The mean of the models of {k} folds, each fitted without the fold that tested it{selected}."


def _about(cohort: Cohort, results: Results, name: str, identity: str, single: bool) -> dict[str, Any]:
    """What bundle.json says beside the model's own facts; ``decision`` is the calibration itself."""
    decision, error = judge_calibration(HeldOut.of(results))
    files = cohort.about["files"]
    return {
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "ensemble": "single" if single else "folds",
        "trained": _trained(results, single),
        "warnings": results.warnings,
        "performance": measure(as_said(results)),
        "calibration": decision.for_json() | {"sentence": decision.calibration.sentence, "error": error},
        "provenance": {
            "identity": identity,
            "cohort_hash": cohort.hash,
            "source": str(cohort.about["source"]),
            "n_subjects": len(cohort),
            "n_windows": cohort.n_windows,
            "people": people(cohort),
            "recordings_per_person": float(np.median([len(r.recording_windows) for r in cohort.records.values()])),
            "native_sfreq": sorted({float(file.get("native_sfreq", file["sfreq"])) for file in files}),
            "prepared_with": dict(cohort.about.get("versions", {})),
            "python": platform.python_version(),
            "runs": list(results.runs),
        },
        "decision": decision.calibration,
    }
