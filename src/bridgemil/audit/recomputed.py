"""Did anything of a run see its test subjects? What computing it again says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.audit.permutation import said_of
from bridgemil.audit.provenance import fold_of
from bridgemil.cohort.subset import subset
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.methods import Settings
from bridgemil.models import BaselineModel, Model, NetworkModel, fit
from bridgemil.models.fitting import FitCache
from bridgemil.runs import RESULTS_VERSION, read_features

NAME = "recomputed"
CLOSE = 1e-4  # of probabilities and scales: another machine rounds otherwise
MOST_PEOPLE = 2  # of each run, whose features and predictions are computed again


def check(inputs: AuditInput) -> list[Finding]:
    """Scale, features, predictions and, of baselines, the whole fit of a few runs drawn at random."""
    if not inputs.runs:
        return []
    rng = np.random.default_rng(inputs.options.seed)
    names = sorted(name for name, about in inputs.runs.items() if about.get("results_version") == RESULTS_VERSION)
    networks = [name for name in names if inputs.runs[name]["settings"].get("stage2")]
    baselines = [name for name in names if name not in networks]
    half = max(1, inputs.options.sample // 2)
    drawn = _drawn(rng, networks, inputs.options.sample - min(half, len(baselines)))
    drawn += _drawn(rng, baselines, inputs.options.sample - len(drawn))
    wrong, done = [], dict.fromkeys(("scale", "features", "predictions", "fit"), 0)
    notes, cache = _left_out(len(inputs.runs) - len(names)), _StoredFeatures(inputs)
    for identity in drawn:
        try:
            wrong += [f"run {identity}: {line}" for line in _run(inputs, identity, cache, done)]
        except BadUse as error:  # such as a user's own code, which a folder never makes run
            notes.append(f"run {identity}: could not be computed again ({str(error).splitlines()[0]})")
        except (BridgeMILError, OSError, ValueError, KeyError) as error:
            wrong.append(f"run {identity}: is damaged ({str(error).splitlines()[0]})")
    counted = ", ".join(f"{n} {what}" for what, n in done.items() if n)
    how = f"{len(drawn)} of {len(inputs.runs)} runs drawn at random; compared: {counted or 'nothing'}"
    numbers = {"drawn": drawn, "runs": len(inputs.runs), **done}
    if wrong:
        message = f"Computed again, runs are not what they should be ({how})."
        fix = "delete these runs (and RUNS/features if features differ) and run the same command again"
        return [Finding(NAME, "FAIL", message, shortened(wrong + notes), fix, numbers)]
    if not counted:
        return [Finding(NAME, "SKIP", f"Nothing could be computed again ({how}).", shortened(notes))]
    message = f"Computed again from training subjects alone, nothing differs ({how})."
    return [Finding(NAME, "PASS", message, shortened(notes), numbers=numbers)]


def _left_out(n_earlier: int) -> list[str]:
    return [f"{n_earlier} of an earlier results version: not computed again"] if n_earlier else []


def _drawn(rng: np.random.Generator, names: list[str], most: int) -> list[str]:
    return sorted(rng.permutation(names)[: max(0, most)].tolist()) if names else []


def _run(inputs: AuditInput, identity: str, cache: FitCache, done: dict[str, int]) -> list[str]:
    """What is wrong with one run."""
    assert inputs.store is not None
    about, model = inputs.runs[identity], inputs.store.model(identity)
    wrong = []
    if isinstance(model, NetworkModel) and model.scale is not None:
        done["scale"] += 1
        wrong += _scale(inputs, about, model)
    wrong += _features(inputs, about, model, done)
    wrong += _predictions(inputs, identity, about, model, done)
    if isinstance(model, BaselineModel) and _is_quick(inputs, about, model):
        done["fit"] += 1
        wrong += _fit(inputs, identity, about, cache)
    return wrong


def _scale(inputs: AuditInput, about: Mapping[str, Any], model: NetworkModel) -> list[str]:
    """The stored normalisation is that of the training subjects."""
    assert model.scale is not None
    subjects = fold_of(about)
    used = subset(inputs.cohort, subjects.kept)
    if _alike(model.scale, used.normalisation(sorted(subjects.train))):
        return []
    everybody = [*subjects.train, *subjects.validation, *subjects.test]
    if _alike(model.scale, used.normalisation(sorted(everybody))):
        return ["its normalisation is that of everybody, test subjects among them"]
    return ["its normalisation is not that of its training subjects"]


def _alike(one: tuple[Any, Any], two: tuple[Any, Any]) -> bool:
    return all(np.allclose(a, b, rtol=CLOSE, atol=1e-6) for a, b in zip(one, two, strict=True))


def _features(inputs: AuditInput, about: Mapping[str, Any], model: Model, done: dict[str, int]) -> list[str]:
    """The features kept of a person are those of that person's windows alone."""
    assert inputs.store is not None
    if model.features is None:
        return []
    wrong = []
    for subject in list(about["test"])[:MOST_PEOPLE]:
        folder = _feature_folder(inputs, model.features.key, subject)
        if not folder.is_dir() or about.get("kept"):
            continue
        done["features"] += 1
        kept = read_features(folder)
        anew = model.features.compute(inputs.cohort.windows(subject))
        if kept.shape != anew.shape or not np.allclose(kept, anew, rtol=1e-3, atol=1e-3):
            wrong.append(f"the features kept of {subject} are not those of that person's windows")
    return wrong


def _feature_folder(inputs: AuditInput, key: str, subject: str) -> Path:
    assert inputs.store is not None
    return inputs.store.features(key, inputs.cohort.records[subject].signal_hash)


def _predictions(
    inputs: AuditInput, identity: str, about: Mapping[str, Any], model: Model, done: dict[str, int]
) -> list[str]:
    """What the stored model says of test subjects is what the run says it said."""
    assert inputs.store is not None
    table = inputs.store.predictions(identity).set_index("subject")
    used, wrong = subset(inputs.cohort, fold_of(about).kept), []
    for subject in list(about["test"])[:MOST_PEOPLE]:
        done["predictions"] += 1
        said = model.predict(used.windows(subject)).probabilities
        noted = table.loc[subject, [f"p_{name}" for name in inputs.cohort.classes]].to_numpy(dtype=float)
        if not np.allclose(said, noted, atol=10 * CLOSE):
            wrong.append(f"its model says {_p(said)} of {subject}, its predictions {_p(noted)}")
    return wrong


def _p(values: Any) -> str:
    return "/".join(f"{value:.3f}" for value in values)


def _is_quick(inputs: AuditInput, about: Mapping[str, Any], model: BaselineModel) -> bool:
    """Whether the fit can be done again in a moment: features that take long are there."""
    key = model.features.key
    people = [*about["train"], *about["test"]]
    stored = not about.get("kept") and all(_feature_folder(inputs, key, subject).is_dir() for subject in people)
    return stored or bool(model.facts.settings.method == "bandpower")


class _StoredFeatures(FitCache):
    """Features that runs keep, where they do; nothing is written."""

    def __init__(self, inputs: AuditInput) -> None:
        super().__init__()
        assert inputs.store is not None
        self.store = inputs.store

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Those on disk, else computed and kept in memory."""
        folder = self.store.features(key, signal_hash)
        if folder.is_dir():
            return read_features(folder)
        return super().features(key, signal_hash, compute)


def _fit(inputs: AuditInput, identity: str, about: Mapping[str, Any], cache: FitCache) -> list[str]:
    """A baseline fitted anew on the training subjects says the same of the test subjects."""
    assert inputs.store is not None
    subjects = fold_of(about)
    used = subset(inputs.cohort, subjects.kept)
    settings = Settings.model_validate(about["settings"])
    fitted = fit(used, subjects.train, subjects.validation, settings, int(about["seed"]), cache=cache)
    table = inputs.store.predictions(identity).set_index("subject")
    noted = table.loc[list(subjects.test), [f"p_{name}" for name in inputs.cohort.classes]].to_numpy(dtype=float)
    said = np.stack([said_of(fitted.model, used, subject, cache) for subject in subjects.test])
    if np.allclose(said, noted, atol=100 * CLOSE):
        return []
    return ["fitted again on its training subjects alone, it says something else of its test subjects"]
