"""Did a run see its test subjects, by computing it again?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding, first_line
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.views import subset
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.models import BaselineModel, NetworkModel, fit, predict_subject
from bridgemil.models.features import FitCache
from bridgemil.runs import RESULTS_VERSION, RunStore, fitted_settings, fold_of, read_features

NAME = "recomputed"
CLOSE = 1e-4  # tolerance of probabilities and scales: other machines round differently
MOST_SUBJECTS = 2  # of each run, whose features and predictions are recomputed
PARTS = ("scale", "features", "predictions", "fit")


def check(inputs: AuditInput) -> list[Finding]:
    """Scale, features, predictions and, of baselines, the whole fit of a few randomly chosen runs."""
    if not inputs.runs:
        return []
    assert inputs.store is not None
    rng, sample = np.random.default_rng(inputs.options.seed), inputs.options.sample
    names = sorted(name for name, run in inputs.runs.items() if run.get("results_version") == RESULTS_VERSION)
    networks = [name for name in names if inputs.runs[name]["settings"].get("stage2")]
    baselines = [name for name in names if name not in networks]
    drawn = _drawn(rng, networks, sample - min(max(1, sample // 2), len(baselines)))
    drawn += _drawn(rng, baselines, sample - len(drawn))
    problems, notes, done, cache = [], list[str](), dict.fromkeys(PARTS, 0), _StoredFeatures(inputs.store)
    for identity in drawn:
        try:
            for part, found in _compare(inputs.cohort, inputs.store, identity, inputs.runs[identity], cache):
                done[part] += 1
                problems += [f"run {identity}: {found}"] if found else []
        except BadUse as error:  # such as a user's own code, which a folder never runs
            notes.append(f"run {identity}: could not be recomputed ({first_line(error)})")
        except (BridgeMILError, OSError, ValueError, KeyError) as error:
            problems.append(f"run {identity}: is damaged ({first_line(error)})")
    counted = ", ".join(f"{n} {part}" for part, n in done.items() if n)
    how = f"{len(drawn)} of {len(inputs.runs)} runs drawn at random; compared: {counted or 'nothing'}"
    numbers = {"drawn": drawn, "runs": len(inputs.runs), **done}
    if problems:
        fix = "delete these runs (and RUNS/features if features differ) and run the same command again"
        message = f"Recomputed, runs differ from what is stored ({how})."
        return [Finding(NAME, "FAIL", message, problems + notes, fix, numbers)]
    if not counted:
        return [Finding(NAME, "SKIP", f"Nothing could be recomputed ({how}).", notes)]
    message = f"Recomputed from training subjects alone, nothing differs ({how})."
    return [Finding(NAME, "PASS", message, notes, numbers=numbers)]


def _drawn(rng: np.random.Generator, names: list[str], most: int) -> list[str]:
    return sorted(rng.permutation(names)[: max(0, most)].tolist()) if names else []


class _StoredFeatures(FitCache):
    """Features on disk where runs keep them, else in memory; nothing is written."""

    def __init__(self, store: RunStore) -> None:
        super().__init__()
        self.store = store

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Read, or compute once."""
        folder = self.store.features(key, signal_hash)
        return read_features(folder) if folder.is_dir() else super().features(key, signal_hash, compute)


def _compare(
    cohort: Cohort, store: RunStore, identity: str, metadata: Mapping[str, Any], cache: FitCache
) -> Iterator[tuple[str, str]]:
    """What of a run was compared (of ``PARTS``), and the difference; empty where there is none."""
    fold, model = fold_of(metadata), store.model(identity)
    used, some = subset(cohort, fold.kept), fold.test[:MOST_SUBJECTS]
    columns = [f"p_{name}" for name in cohort.classes]
    stored = store.predictions(identity).set_index("subject")[columns].astype(float)
    if isinstance(model, NetworkModel) and model.scale is not None:
        yield "scale", _scale(used, fold, model.scale)
    features, on_disk = model.features, dict[str, Path]()
    if features is not None and not fold.kept:
        everyone = (*fold.train, *fold.test)
        on_disk = {who: store.features(features.key, cohort.records[who].signal_hash) for who in everyone}
        on_disk = {who: folder for who, folder in on_disk.items() if folder.is_dir()}
        for subject in filter(on_disk.__contains__, some):
            before, again = read_features(on_disk[subject]), features.compute(cohort.windows(subject))
            same = before.shape == again.shape and np.allclose(before, again, rtol=1e-3, atol=1e-3)
            yield "features", "" if same else f"the stored features of {subject} are not those of its windows"
    for subject in some:
        bound = model.for_subject(fold.rows.get(subject, {}))
        p = predict_subject(bound, used, subject, FitCache()).probabilities
        expected = stored.loc[subject].to_numpy()
        same = np.allclose(p, expected, atol=10 * CLOSE)
        yield "predictions", "" if same else f"its model gives {_p(p)} for {subject}, its predictions {_p(expected)}"
    # A fit is fast if its features are stored, or quickly computed.
    is_fast = len(on_disk) == len(fold.train) + len(fold.test)
    if isinstance(model, BaselineModel) and (is_fast or model.baseline.front_end is None):
        settings, seed = fitted_settings(metadata), int(metadata["seed"])
        sides = fold.train, fold.validation
        refitted = fit(used, *sides, settings, seed, cache=cache, sites=fold.sites, rows=fold.rows).model
        refits = {subject: refitted.for_subject(fold.rows.get(subject, {})) for subject in fold.test}
        p = np.stack([predict_subject(one, used, subject, cache).probabilities for subject, one in refits.items()])
        same = np.allclose(p, stored.loc[list(fold.test)].to_numpy(), atol=100 * CLOSE)
        yield "fit", "" if same else "fitted again on its training subjects alone, it predicts something else"


def _scale(cohort: Cohort, fold: Fold, scale: tuple[Any, Any]) -> str:
    """The stored normalisation is that of the training subjects."""

    everyone = (*fold.train, *fold.validation, *fold.test)
    of = {"": fold.train, "its normalisation is that of all subjects, including test subjects": everyone}
    for difference, subjects in of.items():
        found = cohort.normalisation(sorted(subjects))
        if all(np.allclose(a, b, rtol=CLOSE, atol=1e-6) for a, b in zip(scale, found, strict=True)):
            return difference
    return "its normalisation is not that of its training subjects"


def _p(values: Any) -> str:
    return "/".join(f"{value:.3f}" for value in values)
