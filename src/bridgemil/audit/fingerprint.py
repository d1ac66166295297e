"""How well do windows give away whose they are, and how large is the leak of a split by window?

People can be told apart by a second of their EEG. A split that deals out windows instead of people lets a classifier
recognise the person and look the diagnosis up. The size of that leak is shown beside the honest number.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import Finding
from bridgemil.audit.inputs import AuditInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAME = "fingerprint"
MOST_WINDOWS = 6000  # of all people together
FEWEST = 4  # windows of a person, to make halves of
FOLDS = 5


def check(inputs: AuditInput) -> list[Finding]:
    """Identify people by their windows, then diagnose with windows dealt out both ways."""
    cohort, people = inputs.cohort, inputs.measures.people
    y, k = cohort.y, len(cohort.classes)
    smallest = int(np.bincount(y, minlength=k).min())
    usable = [i for i, s in enumerate(cohort.subjects) if len(people[s].powers) >= FEWEST]
    if k < 2 or smallest < 2 or len(usable) < len(cohort):
        message = f"Needs two classes of 2 people each, and {FEWEST} windows of everybody."
        return [Finding(NAME, "SKIP", message)]
    most = max(FEWEST, MOST_WINDOWS // len(cohort))
    powers = [_spread(people[s].powers, most).astype(np.float64) for s in cohort.subjects]
    identified, identified_n = _identify(powers)
    n = len(cohort)
    rows = np.concatenate(powers)
    owner = np.repeat(np.arange(n), [len(part) for part in powers])
    rng = np.random.default_rng(inputs.options.seed)
    folds = min(FOLDS, smallest)
    by_window = _accuracies(rows, owner, y, rng.permutation(len(rows)) % folds, k)
    by_person = _accuracies(rows, owner, y, _dealt(y, folds, rng)[owner], k)
    numbers = {
        "identification": identified, "chance": 1 / n, "windows": identified_n,
        "by_window": by_window, "by_subject": by_person, "leak": {m: by_window[m] - by_person[m] for m in by_window},
    }  # fmt: skip
    nearest = (
        f"the label of the most similar subject: {_points(by_window['person'])} and {_points(by_person['person'])}"
    )
    message = (
        f"Subject identification from one window: {100 * identified:.1f} % of windows among {n} subjects (chance "
        f"{100 / n:.1f} %). Split by window, a logistic regression on band power would show "
        f"{_points(by_window['logistic'])} balanced accuracy of windows; split by subject, "
        f"it has {_points(by_person['logistic'])} ({nearest})."
    )
    leak = max(by_window[m] - by_person[m] for m in by_window)
    evidence = (f"the leak of a split by window: up to {100 * leak:.1f} points; bridgemil never splits by window",)
    fix = "compare only with published numbers whose split is known to be by subject" if leak > 0.05 else ""
    return [Finding(NAME, "INFO", message, evidence, fix, numbers)]


def _points(value: float) -> str:
    return f"{100 * value:.1f} %"


def _spread(rows: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    chosen: NDArray[np.float32] = rows[
        np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))
    ]
    return chosen


def _identify(powers: list[Floats]) -> tuple[float, int]:
    """Share of second-half windows that lie nearest to their own person's first half, and their number."""
    halves = [len(part) // 2 for part in powers]
    people = np.arange(len(powers))
    known, known_owner = np.concatenate([p[:h] for p, h in zip(powers, halves, strict=True)]), np.repeat(people, halves)
    asked = np.concatenate([p[h:] for p, h in zip(powers, halves, strict=True)])
    true = np.repeat(people, [len(p) - h for p, h in zip(powers, halves, strict=True)])
    return float((_nearest_person(known, known_owner, asked) == true).mean()), len(true)


def _nearest_person(known: Floats, owner: Ints, asked: Floats) -> Ints:
    """Who of the known people each window is most like.

    Distances to a person's mean are Mahalanobis': measured in the spread of windows within people.
    """
    people, places = np.unique(owner, return_inverse=True)
    member = (places[:, None] == np.arange(len(people))).astype(np.float64)
    centres = member.T @ known / member.sum(axis=0)[:, None]
    within = known - centres[places]
    covariance = within.T @ within / len(within)
    covariance += np.eye(len(covariance)) * (0.05 * np.trace(covariance) / len(covariance) + 1e-9)
    white = np.linalg.cholesky(np.linalg.inv(covariance))
    a, b = asked @ white, centres @ white
    nearest: Ints = people[((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)]
    return nearest


def _dealt(y: Ints, k: int, rng: np.random.Generator) -> Ints:
    """The fold of each person, stratified."""
    folds = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        folds[members] = np.arange(len(members)) % k
    return folds


def _accuracies(rows: Floats, owner: Ints, labels: Ints, folds: Ints, k: int) -> dict[str, float]:
    """Balanced accuracy of windows under these folds: of a logistic regression, and of the most similar person."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    y = labels[owner]
    said = {name: np.empty_like(y) for name in ("logistic", "person")}
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        mean, std = rows[train].mean(axis=0), rows[train].std(axis=0) + 1e-9
        a, b = (rows[train] - mean) / std, (rows[test] - mean) / std
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it has after 100 steps is good enough here
            logistic = LogisticRegression(C=0.1, class_weight="balanced", max_iter=100).fit(a, y[train])
        said["logistic"][test] = logistic.predict(b)
        said["person"][test] = labels[_nearest_person(a, owner[train], b)]
    return {name: float(np.mean([(v[y == c] == c).mean() for c in range(k)])) for name, v in said.items()}
