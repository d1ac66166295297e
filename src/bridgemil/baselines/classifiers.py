"""Fitted classifiers that are data: arrays that can be stored with the weights of networks and read back, no pickle.

scikit-learn fits them; what it fitted is kept as arrays and evaluated here, one subject at a time, so that a subject's
probabilities do not depend on who else is asked for in the same call, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData, BadUse

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Classifier(ABC):
    """Features of subjects to class probabilities."""

    kind: ClassVar[str]
    n_features: int
    n_classes: int

    def probabilities(self, features: Floats) -> Floats:
        """The probability of each class for each subject.

        Parameters
        ----------
        features
            Subjects x f.

        Returns
        -------
        Subjects x classes; each row sums to 1.
        """
        features = np.asarray(features, dtype=np.float64)
        if features.ndim != 2 or features.shape[1] != self.n_features:
            got = " x ".join(map(str, features.shape))
            raise BadUse(f"the classifier was fitted on {self.n_features} features a subject, got {got}")
        rows = [self._subject(np.array(row)) for row in features]
        return np.stack(rows) if rows else np.zeros((0, self.n_classes))

    @abstractmethod
    def _subject(self, features: Floats) -> Floats:
        """The class probabilities of one subject (f -> classes)."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """All that was fitted, as arrays by name; ``rebuild`` makes the classifier from them again."""

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Classifier:
        """The classifier that ``tensors`` wrote."""


class Logistic(Classifier):
    """Standardised features into a multinomial logistic regression.

    Parameters
    ----------
    mean, scale
        Of each feature (f).
    coefficients, intercept
        Of each class that training had (classes x f, classes).
    classes
        The numbers of those classes.
    n_classes
        How many classes there are in all; the others get probability 0.
    """

    kind = "logistic"

    def __init__(
        self, mean: Array, scale: Array, coefficients: Array, intercept: Array, classes: Array, n_classes: int
    ) -> None:
        self.mean, self.scale = mean, scale
        self.coefficients, self.intercept = np.ascontiguousarray(coefficients), intercept
        self.classes, self.n_classes, self.n_features = classes, n_classes, len(mean)

    def _subject(self, features: Floats) -> Floats:
        # Not a BLAS product: its last bit changes with the layout of what was stored.
        logits = (self.coefficients * ((features - self.mean) / self.scale)).sum(axis=1) + self.intercept
        weights = np.exp(logits - logits.max())
        p = np.zeros(self.n_classes)
        p[self.classes] = weights / weights.sum()
        return p

    def tensors(self) -> dict[str, Array]:
        """What was fitted."""
        return {
            "mean": self.mean,
            "scale": self.scale,
            "coefficients": self.coefficients,
            "intercept": self.intercept,
            "classes": self.classes,
            "n_classes": np.array([self.n_classes]),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Logistic:
        """The classifier that ``tensors`` wrote."""
        names = ("mean", "scale", "coefficients", "intercept", "classes")
        return cls(**{name: tensors[name] for name in names}, n_classes=int(tensors["n_classes"][0]))


class ExtraTrees(Classifier):
    """Standardised features into a forest; all trees' nodes stand in one table, and a leaf's children are itself.

    Parameters
    ----------
    mean, scale
        Of each feature (f).
    roots
        The first node of each tree.
    left, right, feature, threshold
        Of each node: where to go if the feature is at most the threshold, and where if not.
    values
        Class probabilities at each node (nodes x classes).
    """

    kind = "extra_trees"

    def __init__(
        self,
        mean: Array,
        scale: Array,
        roots: Array,
        left: Array,
        right: Array,
        feature: Array,
        threshold: Array,
        values: Array,
    ) -> None:
        self.mean, self.scale, self.roots = mean, scale, roots
        self.left, self.right, self.feature, self.threshold, self.values = left, right, feature, threshold, values
        self.n_features, self.n_classes = len(mean), values.shape[1]

    def _subject(self, features: Floats) -> Floats:
        x = ((features - self.mean) / self.scale).astype(np.float32)  # scikit-learn's trees compare single precision
        nodes = self.roots
        while True:
            lower = x[self.feature[nodes]] <= self.threshold[nodes]
            following = np.where(lower, self.left[nodes], self.right[nodes])
            if np.array_equal(following, nodes):
                p: Floats = self.values[nodes].mean(axis=0)
                return p
            nodes = following

    def tensors(self) -> dict[str, Array]:
        """What was fitted."""
        return {name: getattr(self, name) for name in self._parts}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> ExtraTrees:
        """The classifier that ``tensors`` wrote."""
        return cls(*(tensors[name] for name in cls._parts))

    _parts: ClassVar = ("mean", "scale", "roots", "left", "right", "feature", "threshold", "values")


class Average(Classifier):
    """Several classifiers, each on a slice of the features; their probabilities are averaged.

    Parameters
    ----------
    members
        The classifiers, all of the same classes.
    slices
        The features of each: first, and one past the last.
    n_features
        Features of a subject in all.
    """

    kind = "average"

    def __init__(self, members: Sequence[Classifier], slices: Sequence[tuple[int, int]], n_features: int) -> None:
        self.members, self.slices = list(members), [(int(first), int(last)) for first, last in slices]
        self.n_features, self.n_classes = n_features, self.members[0].n_classes

    def _subject(self, features: Floats) -> Floats:
        parts = zip(self.members, self.slices, strict=True)
        p: Floats = np.mean([member._subject(features[first:last]) for member, (first, last) in parts], axis=0)
        return p

    def tensors(self) -> dict[str, Array]:
        """What was fitted: a member's arrays stand under its number and kind, ``0.logistic.mean``."""
        stored: dict[str, Array] = {"slices": np.array(self.slices), "n_features": np.array([self.n_features])}
        for number, member in enumerate(self.members):
            stored |= {f"{number}.{member.kind}.{name}": array for name, array in member.tensors().items()}
        return stored

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Average:
        """The classifier that ``tensors`` wrote."""
        slices = [(int(first), int(last)) for first, last in tensors["slices"]]
        arrays: list[dict[str, Array]] = [{} for _ in slices]
        kinds = [""] * len(slices)
        for stored_name, array in tensors.items():
            if "." in stored_name:
                number, kind, name = stored_name.split(".", 2)
                arrays[int(number)][name], kinds[int(number)] = array, kind
        members = [rebuild(kind, parts) for kind, parts in zip(kinds, arrays, strict=True)]
        return cls(members, slices, int(tensors["n_features"][0]))


KINDS: dict[str, type[Classifier]] = {cls.kind: cls for cls in (Logistic, ExtraTrees, Average)}


def rebuild(kind: str, tensors: Mapping[str, Array]) -> Classifier:
    """The classifier whose ``tensors`` were stored.

    Parameters
    ----------
    kind
        Its ``kind``.
    tensors
        Arrays by name, as it gave them.
    """
    if kind not in KINDS:
        raise BadData(f"a stored classifier is of kind {kind!r}; this version knows {', '.join(KINDS)}")
    try:
        return KINDS[kind].from_tensors(tensors)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise BadData(f"a stored classifier ({kind}) is not complete: {error!r}; fit it again") from None


def fit_logistic(
    features: Floats,
    y: NDArray[np.int64],
    n_classes: int,
    *,
    C: float,
    class_weight: Literal["balanced"] | None = None,
    by_root: bool = False,
) -> Logistic:
    """Standardise on these subjects and fit a regularised logistic regression.

    Parameters
    ----------
    features
        Subjects x f. A constant feature is left as it is: it tells nothing.
    y
        The class number of each subject.
    n_classes
        Classes in the cohort.
    C
        Inverse strength of the regularisation.
    class_weight
        ``"balanced"`` gives every class the same weight in all.
    by_root
        Also divide by the square root of the number of features, so that the length of a subject's vector, and with it
        the regularisation, does not grow with that number.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    _check_training(features, y)
    scaler = StandardScaler().fit(features)
    root = np.sqrt(features.shape[1]) if by_root else 1.0
    model = LogisticRegression(C=C, max_iter=5000, class_weight=class_weight)
    model.fit(scaler.transform(features) / root, y)
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps the second class only; the first has logit 0
        coefficients, intercept = np.vstack([0 * coefficients, coefficients]), np.append(0.0, intercept)
    classes = model.classes_.astype(np.int64)
    return Logistic(scaler.mean_, scaler.scale_ * root, coefficients, intercept, classes, n_classes)


def fit_extra_trees(
    features: Floats, y: NDArray[np.int64], n_classes: int, *, n_trees: int = 500, seed: int = 0
) -> ExtraTrees:
    """Standardise on these subjects and fit a forest of randomised trees.

    Parameters
    ----------
    features
        Subjects x f.
    y
        The class number of each subject.
    n_classes
        Classes in the cohort.
    n_trees
        Trees in the forest.
    seed
        Decides the forest.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.preprocessing import StandardScaler

    _check_training(features, y)
    scaler = StandardScaler().fit(features)
    model = ExtraTreesClassifier(n_trees, random_state=seed).fit(scaler.transform(features), y)
    trees = [estimator.tree_ for estimator in model.estimators_]
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])[:-1]]).astype(np.int64)
    columns: dict[str, list[Array]] = {"left": [], "right": [], "feature": [], "threshold": [], "values": []}
    for root, tree in zip(roots, trees, strict=True):
        leaf, itself = tree.children_left < 0, np.arange(tree.node_count)
        columns["left"].append(root + np.where(leaf, itself, tree.children_left))
        columns["right"].append(root + np.where(leaf, itself, tree.children_right))
        columns["feature"].append(np.where(leaf, 0, tree.feature))
        columns["threshold"].append(np.where(leaf, 0.0, tree.threshold))
        values = np.zeros((tree.node_count, n_classes))
        values[:, model.classes_] = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
        columns["values"].append(values)
    nodes = {name: np.concatenate(parts) for name, parts in columns.items()}
    return ExtraTrees(scaler.mean_, scaler.scale_, roots, **nodes)


def _check_training(features: Floats, y: NDArray[np.int64]) -> None:
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise BadData(f"training subject number {row + 1} has features that are not finite; look at its recording")
    if len(np.unique(y)) < 2:
        raise BadData("the training subjects are all of one class; a classifier needs two or more")
