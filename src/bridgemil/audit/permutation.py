"""Is the honest protocol at chance once the labels are shuffled?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.audit.findings import Finding
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import fold_plan
from bridgemil.methods import Settings
from bridgemil.models import Model, fit
from bridgemil.models.fitting import FitCache

NAME = "permutation"
BACKBONE, BUDGET = "eegnet", "demo"  # of a network, the cheapest
ERRORS = 2.0  # standard errors that a mean may lie above chance


def check(inputs: AuditInput) -> list[Finding]:
    """Cross-validate a method with shuffled labels, again and again; what is above chance then has leaked.

    A mean above chance is confirmed by as many further shuffles before it is called a leak: one in forty honest
    protocols would be called so by the first alone.
    """
    options, cohort = inputs.options, inputs.cohort
    if options.permute is None:
        message = "Not asked for: --permute bandpower runs a method with shuffled labels."
        return [Finding(NAME, "SKIP", message)]
    settings = methods.for_cohort(cohort, options.permute, BACKBONE, BUDGET)
    plan_folds = min(cohort.folds, 5)
    try:
        fold_plan(cohort, plan_folds)
    except (BadData, BadUse) as error:
        return [Finding(NAME, "SKIP", f"The cohort cannot be dealt into folds: {error}.")]
    rng, cache = np.random.default_rng(options.seed), FitCache()

    def batch() -> NDArray[np.float64]:
        return np.array([_shuffled(cohort, settings, plan_folds, rng, cache) for _ in range(options.permutations)])

    reached = batch()
    findings = judge(reached, len(cohort.classes), options.permute)
    if findings.status == "FAIL":
        again = judge(batch(), len(cohort.classes), options.permute)
        if again.status != "FAIL":
            message = f"{findings.message} As many further shuffles were at chance: {again.message}"
            return [replace(again, status="WARN", message=message)]
        return [replace(again, evidence=(*findings.evidence, *again.evidence))]
    return [findings]


def judge(reached: Sequence[float] | NDArray[np.float64], n_classes: int, method: str) -> Finding:
    """What the balanced accuracies of shuffled labels say.

    Parameters
    ----------
    reached
        A balanced accuracy for each shuffle.
    n_classes
        K; chance is 1/K.
    method
        Its name.
    """
    values = np.asarray(reached, dtype=np.float64)
    mean, error, guess = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), 1 / n_classes
    line = (
        f"{method}, {len(values)} shuffles: balanced accuracy {mean:.3f} ± {error:.3f} (standard error), chance "
        f"{guess:.3f}"
    )
    numbers = {"mean": mean, "standard_error": error, "chance": guess, "shuffles": len(values), "method": method}
    if mean > guess + ERRORS * error:
        message = "With shuffled labels the protocol is above chance: labels of test subjects reach the training."
        fix = (
            "do not report results of this method; if its code is yours, fit everything on training subjects only; if "
            "it is ours, open an issue with the cohort's shape"
        )
        return Finding(NAME, "FAIL", message, (line,), fix, numbers)
    if mean < guess - ERRORS * error:
        message = "With shuffled labels the protocol is a little below chance, as stratified folds of few people are."
        return Finding(NAME, "PASS", message, (line,), "", numbers)
    return Finding(NAME, "PASS", f"With shuffled labels the protocol is at chance ({line}).", (), "", numbers)


def _shuffled(cohort: Cohort, settings: Settings, folds: int, rng: np.random.Generator, cache: FitCache) -> float:
    """Balanced accuracy of one cross-validation with shuffled labels."""
    dealt = rng.permutation(cohort.labels).tolist()
    records = [replace(record, label=label) for record, label in zip(cohort.records.values(), dealt, strict=True)]
    mixed = Cohort(records, cohort.metadata, {}, cohort.path, cohort._arrays)
    seed, true, said = int(rng.integers(2**31)), [], []
    plan = fold_plan(mixed, folds, split_seed=seed)
    for several in zip(*(plan.cv_folds(member.selects) for member in settings.each), strict=True):
        models = [
            fit(mixed, r.train, r.validation, member, seed, cache=cache).model
            for r, member in zip(several, settings.each, strict=True)
        ]
        for subject in several[0].test:
            p = [said_of(model, mixed, subject, cache) for model in models]
            said.append(int(np.mean(p, axis=0).argmax()))
            true.append(mixed.classes.index(mixed.records[subject].label))
    right = np.array(said) == np.array(true)
    return float(np.mean([right[np.array(true) == k].mean() for k in range(len(mixed.classes))]))


def said_of(model: Model, cohort: Cohort, subject: str, cache: FitCache) -> NDArray[np.float64]:
    """A model's probabilities for one subject, with the cached features.

    Parameters
    ----------
    model, cohort, subject
        What says it, and of whom.
    cache
        Keeps features of people.
    """
    signal_hash = cohort.records[subject].signal_hash
    return model.predict(
        cohort.windows(subject), lambda key, compute: cache.features(key, signal_hash, compute)
    ).probabilities
