"""How well do single windows identify their subject, and how large is the leak of a split by window?

Subjects can be identified from a second of EEG. A split by window instead of by subject lets a classifier recognise the
subject and use its label. The accuracy with that leak is stated beside the valid one.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput, Finding
from bridgemil.audit.shortcuts import stratified_folds
from bridgemil.cohort.signal import evenly

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAME = "fingerprint"
MOST_WINDOWS = 6000  # of all subjects together
FEWEST = 4  # windows of a subject, which are halved
FOLDS = 5


def check(inputs: AuditInput) -> list[Finding]:
    """Identify subjects by their windows, then classify windows under both kinds of splits."""
    cohort, measures = inputs.cohort, inputs.measures
    y, k = cohort.y, len(cohort.classes)
    smallest = int(np.bincount(y, minlength=k).min())
    if smallest < 2 or min(len(measures[s].powers) for s in cohort.subjects) < FEWEST:
        message = f"Needs 2 subjects of each class, and {FEWEST} windows of every subject."
        return [Finding(NAME, "SKIP", message)]
    n, bags = len(cohort), [measures[s].powers for s in cohort.subjects]
    powers = [bag[evenly(len(bag), max(FEWEST, MOST_WINDOWS // n))].astype(np.float64) for bag in bags]
    rows, owner = np.concatenate(powers), np.repeat(np.arange(n), [len(part) for part in powers])
    # Of each second-half window, whether it is nearest to its own subject's first half
    first = np.concatenate([np.arange(len(part)) < len(part) // 2 for part in powers])
    identified = _nearest(rows[first], owner[first], rows[~first]) == owner[~first]
    share = float(identified.mean())
    rng = np.random.default_rng(inputs.options.seed)
    folds = min(FOLDS, smallest)
    by_window = _accuracies(rows, owner, y, rng.permutation(len(rows)) % folds, k)
    by_subject = _accuracies(rows, owner, y, stratified_folds(y, folds, rng, continued=False)[owner], k)
    leaks = {name: by_window[name] - by_subject[name] for name in by_window}
    numbers = {
        "identification": share, "chance": 1 / n, "windows": len(identified),
        "by_window": by_window, "by_subject": by_subject, "leak": leaks,
    }  # fmt: skip
    message = (
        f"Subject identification from one window: {share:.1%} of windows among {n} subjects (chance {1 / n:.1%}). "
        f"Split by window, a logistic regression on band power would show {by_window['logistic']:.1%} balanced "
        f"accuracy of windows; split by subject, it has {by_subject['logistic']:.1%} (the label of the most similar "
        f"subject: {by_window['nearest']:.1%} and {by_subject['nearest']:.1%})."
    ).replace("%", " %")
    leak = max(leaks.values())
    evidence = [f"the leak of a split by window: up to {100 * leak:.1f} points; bridgemil never splits by window"]
    fix = "compare only with published numbers whose split is known to be by subject" if leak > 0.05 else ""
    return [Finding(NAME, "INFO", message, evidence, fix, numbers)]


def _nearest(rows: Floats, owner: Ints, asked: Floats) -> Ints:
    """The owner whose mean each asked window is nearest to, by Mahalanobis distance within subjects."""
    subjects, places = np.unique(owner, return_inverse=True)
    member = (places[:, None] == np.arange(len(subjects))).astype(np.float64)
    centres = member.T @ rows / member.sum(axis=0)[:, None]
    within = rows - centres[places]
    covariance = within.T @ within / len(within)
    covariance += np.eye(len(covariance)) * (0.05 * np.trace(covariance) / len(covariance) + 1e-9)
    white = np.linalg.cholesky(np.linalg.inv(covariance))
    a, b = asked @ white, centres @ white
    return np.asarray(subjects[((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)])


def _accuracies(rows: Floats, owner: Ints, labels: Ints, folds: Ints, k: int) -> dict[str, float]:
    """Balanced accuracy of windows under these folds: of a logistic regression, and of the most similar subject."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    y = labels[owner]
    predicted = {name: np.empty_like(y) for name in ("logistic", "nearest")}
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        mean, std = rows[train].mean(axis=0), rows[train].std(axis=0) + 1e-9
        a, b = (rows[train] - mean) / std, (rows[test] - mean) / std
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 steps are enough here
            logistic = LogisticRegression(C=0.1, class_weight="balanced", max_iter=100).fit(a, y[train])
        predicted["logistic"][test] = logistic.predict(b)
        predicted["nearest"][test] = labels[_nearest(a, owner[train], b)]
    return {name: float(np.mean([(v[y == c] == c).mean() for c in range(k)])) for name, v in predicted.items()}
