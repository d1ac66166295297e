"""Is the protocol at chance level if the labels are shuffled?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.views import CohortView
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.methods import Settings
from bridgemil.models import fit, predict_subject
from bridgemil.models.features import FitCache

NAME = "permutation"
BACKBONE, BUDGET = "eegnet", "demo"  # of a network, the fastest
ERRORS = 2.0  # standard errors that a mean may be above chance


def check(inputs: AuditInput) -> list[Finding]:
    """Cross-validate a method with shuffled labels repeatedly; an accuracy above chance is a leak.

    A mean above chance is confirmed by as many further shuffles: by the first alone, one valid protocol in forty would
    be reported.
    """
    options, cohort, method = inputs.options, inputs.cohort, inputs.options.permute
    if method is None:
        return [Finding(NAME, "SKIP", "Not requested: --permute bandpower runs a method with shuffled labels.")]
    settings = methods.for_cohort(cohort, method, BACKBONE, BUDGET)
    folds = min(cohort.folds, 5)
    try:
        Protocol(folds=folds).fold_plan(cohort)
    except (BadData, BadUse) as error:
        return [Finding(NAME, "SKIP", f"The cohort cannot be split into folds: {error}.")]
    rng, cache = np.random.default_rng(options.seed), FitCache()

    def batch() -> Finding:
        scores = [_shuffled(cohort, settings, folds, rng, cache) for _ in range(options.permutations)]
        return judge(scores, len(cohort.classes), method)

    first = batch()
    if first.status != "FAIL":
        return [first]
    again = batch()
    if again.status != "FAIL":
        message = f"{first.message} As many further shuffles were at chance: {again.message}"
        return [replace(again, status="WARN", message=message)]
    return [replace(again, evidence=(*first.evidence, *again.evidence))]


def judge(scores: Sequence[float] | NDArray[np.float64], n_classes: int, method: str) -> Finding:
    """Compare balanced accuracies of a method with shuffled labels (one per shuffle) with chance, 1/K."""
    values = np.asarray(scores, dtype=np.float64)
    mean, error, guess = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), 1 / n_classes
    accuracy = f"balanced accuracy {mean:.3f} ± {error:.3f} (standard error)"
    line = f"{method}, {len(values)} shuffles: {accuracy}, chance {guess:.3f}"
    numbers = {"mean": mean, "standard_error": error, "chance": guess, "shuffles": len(values), "method": method}
    if mean > guess + ERRORS * error:
        message = "With shuffled labels the protocol is above chance: labels of test subjects reach the training."
        fix = (
            "do not report results of this method; if its code is yours, fit everything on training subjects only; if "
            "it is ours, open an issue with the cohort's shape"
        )
        return Finding(NAME, "FAIL", message, (line,), fix, numbers)
    if mean < guess - ERRORS * error:
        message = "With shuffled labels the protocol is slightly below chance, as stratified folds of few subjects are."
        return Finding(NAME, "PASS", message, (line,), "", numbers)
    return Finding(NAME, "PASS", f"With shuffled labels the protocol is at chance ({line}).", (), "", numbers)


def _shuffled(cohort: Cohort, settings: Settings, folds: int, rng: np.random.Generator, cache: FitCache) -> float:
    """Balanced accuracy of one cross-validation with shuffled labels."""
    labels = rng.permutation(cohort.labels).tolist()
    records = [replace(record, label=label) for record, label in zip(cohort.records.values(), labels, strict=True)]
    mixed = CohortView(cohort, records, {subject: (cohort, subject, slice(None)) for subject in cohort.subjects})
    seed, true, predicted = int(rng.integers(2**31)), [], []
    plan = Protocol(folds=folds, split_seed=seed).fold_plan(mixed)
    for several in zip(*(plan.cv_folds(member.selects) for member in settings.each), strict=True):
        models = [
            fit(mixed, fold.train, fold.validation, member, seed, cache=cache).model
            for fold, member in zip(several, settings.each, strict=True)
        ]
        for subject in several[0].test:
            p = [predict_subject(model, mixed, subject, cache).probabilities for model in models]
            predicted.append(int(np.mean(p, axis=0).argmax()))
            true.append(mixed.classes.index(mixed.records[subject].label))
    correct = np.array(predicted) == np.array(true)
    return float(np.mean([correct[np.array(true) == k].mean() for k in range(len(mixed.classes))]))
