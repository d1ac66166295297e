"""Spaces that windows lie in (raw, a front end's, an encoder's), and how far classes and people stand apart in them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort

A_SUBJECT, IN_ALL = 200, 3000  # windows of one person, and of all: t-SNE and silhouettes cost their square
NEIGHBOURS = 5
DEALS = 999  # of diagnoses to people, to see what chance gives
PERPLEXITY = 30.0
BEFORE = 50  # principal components that t-SNE is given of a space with more dimensions

Values = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Windows that stand for some people: of each as many, evenly over the recordings.

    Parameters
    ----------
    cohort
        Whose windows they are.
    rows
        By subject, the places of the windows among the subject's.
    """

    cohort: Cohort
    rows: Mapping[str, NDArray[np.int64]]

    @classmethod
    def draw(cls, cohort: Cohort, subjects: Sequence[str]) -> Sample:
        """At most ``A_SUBJECT`` windows of each and ``IN_ALL`` of all; nothing in it is random."""
        most = max(1, min(A_SUBJECT, IN_ALL // len(subjects)))
        rows = {}
        for subject in subjects:
            n = cohort.records[subject].n_windows
            rows[subject] = np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))
        return cls(cohort, rows)

    def __len__(self) -> int:
        """Windows of all people."""
        return sum(map(len, self.rows.values()))

    @property
    def subjects(self) -> Values:
        """Whose each window is, n."""
        return np.repeat(list(self.rows), [len(rows) for rows in self.rows.values()])

    @property
    def labels(self) -> Values:
        """The class of each window's person, n."""
        return np.array([self.cohort.records[str(subject)].label for subject in self.subjects])

    @property
    def numbers(self) -> Values:
        """Which of its person's windows each is, n."""
        return np.concatenate([self.cohort.window_numbers(subject)[rows] for subject, rows in self.rows.items()])

    def take(self, arrays: Callable[[str], Values]) -> NDArray[np.float32]:
        """The rows of these windows, n x …; ``arrays(subject)`` has a row for each of the subject's windows."""
        return np.concatenate([np.asarray(arrays(s)[rows], dtype=np.float32) for s, rows in self.rows.items()])


def is_point(features: Values) -> bool:
    """Whether all windows lie in one place (n x d): an encoder that collapsed."""
    size = float(np.abs(features).max(initial=0))
    return float(np.ptp(features, axis=0).max()) <= 1e-6 * size


def scores(features: Values, sample: Sample) -> dict[str, float | None]:
    """Silhouettes by class and by subject, and Davies-Bouldin by class; None where there is nothing to tell apart.

    Parameters
    ----------
    features
        n x d, a row for each window of the sample.
    sample
        Whose windows they are.
    """
    from sklearn.metrics import davies_bouldin_score, silhouette_score

    even = _even(features)

    def score(function: Callable[..., float], groups: Values) -> float | None:
        n_groups = len(set(groups.tolist()))
        return None if is_point(features) or not 1 < n_groups < len(groups) else float(function(even, groups))

    return {
        "silhouette_by_class": score(silhouette_score, sample.labels),
        "davies_bouldin": score(davies_bouldin_score, sample.labels),
        "silhouette_by_subject": score(silhouette_score, sample.subjects),
    }


def by_chance(features: Values, sample: Sample) -> float | None:
    """How often diagnoses dealt at random to the same people give a silhouette by class as large (0 to 1).

    Windows of a person lie together whatever the person has, so that few people seem to separate any classes; this
    asks whether the true ones stand out. None where there is nothing to tell apart.

    Parameters
    ----------
    features
        n x d, a row for each window of the sample.
    sample
        Whose windows they are.
    """
    labels = np.array([sample.cohort.records[subject].label for subject in sample.rows])
    if is_point(features) or len(set(labels.tolist())) < 2 or len(sample) <= len(labels):
        return None
    far, sizes = _to_people(features, sample), np.array([len(rows) for rows in sample.rows.values()])
    rng = np.random.default_rng(0)
    true = _silhouette(far, sizes, labels)
    dealt = [_silhouette(far, sizes, rng.permutation(labels)) for _ in range(DEALS)]
    return float((1 + np.sum(np.array(dealt) >= true - 1e-12)) / (1 + DEALS))


def different_deals(sample: Sample) -> int:
    """How many deals of the diagnoses to the people differ in who is with whom; the names of classes do not matter."""
    people = Counter(sample.cohort.records[subject].label for subject in sample.rows)
    deals = math.factorial(len(sample.rows)) // math.prod(math.factorial(n) for n in people.values())
    return deals // math.prod(math.factorial(times) for times in Counter(people.values()).values())


def _to_people(features: Values, sample: Sample) -> Values:
    """The sum of each window's distances to every person's windows, n x people."""
    from sklearn.metrics import pairwise_distances_chunked

    ends = np.cumsum([len(rows) for rows in sample.rows.values()])
    starts = np.append(0, ends[:-1])
    blocks = pairwise_distances_chunked(_even(features))
    far: Values = np.concatenate([np.add.reduceat(block, starts, axis=1) for block in blocks])
    return far


def _silhouette(far: Values, sizes: Values, labels: Values) -> float:
    """scikit-learn's silhouette by class, from distances to people (n x p), their windows (p) and classes (p)."""
    members = labels[:, None] == np.unique(labels)[None]  # p x K
    own = np.repeat(members, sizes, axis=0)  # n x K
    sums, counts = far @ members, sizes @ members
    inside = sums[own] / np.maximum(counts[own.argmax(axis=1)] - 1, 1)
    outside = np.where(own, np.inf, sums / counts).min(axis=1)
    values = (outside - inside) / np.maximum(np.maximum(inside, outside), np.finfo(float).tiny)
    return float(np.where(counts[own.argmax(axis=1)] > 1, values, 0).mean())


def across_people(known: Values, known_labels: Values, features: Values, labels: Values) -> float:
    """Balanced accuracy of windows (0 to 1) whose nearest windows of other people vote.

    Parameters
    ----------
    known, known_labels
        m x d and m: windows of the training people, who vote.
    features, labels
        n x d and n: windows of the test people, none of whom is among the others.
    """
    from sklearn.neighbors import KNeighborsClassifier

    said = KNeighborsClassifier(min(NEIGHBOURS, len(known))).fit(known, known_labels).predict(features)
    return float(np.mean([(said[labels == name] == name).mean() for name in sorted(set(labels.tolist()))]))


def map_of(features: Values) -> Values:
    """t-SNE's picture of a space (n x d): n x 2, without a unit. The same numbers every time."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    n, d = features.shape
    if n < 4 or is_point(features):
        return np.zeros((n, 2))
    even = _even(features)
    if d < 2:
        even = np.hstack([even, np.zeros((n, 1))])
    with threadpool_limits(1):  # threads add up in another order
        if min(n, d) > BEFORE:
            even = PCA(BEFORE, random_state=0).fit_transform(even)
        places: Values = TSNE(
            2, perplexity=min(PERPLEXITY, (n - 1) / 3), init="pca", learning_rate="auto", random_state=0
        ).fit_transform(even)
    return places


def _even(features: Values) -> Values:
    """About zero and of size one in all: no score depends on it, but limits in their code do."""
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    size = float(np.sqrt((centred**2).mean()))
    even: Values = centred / size if size else centred
    return even
