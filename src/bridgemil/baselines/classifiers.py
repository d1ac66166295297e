"""Fitted classifiers as arrays that are stored like the weights of networks and read back, without pickle.

scikit-learn fits them; what it fitted is kept as arrays and evaluated here, one subject at a time, so that a subject's
probabilities do not depend on the other subjects of the same call, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData

Array = NDArray[Any]
Floats = NDArray[np.float64]
BLOCK = 512  # windows computed together: hours of EEG are not copied as a whole


class Classifier(ABC):
    """Features of subjects to class probabilities; a subclass is a dataclass of what was fitted."""

    kind: ClassVar[str]
    n_classes: int

    def probabilities(self, features: Floats) -> Floats:
        """Class probabilities, shape (n_subjects, n_classes), from features of shape (n_subjects, n_features)."""
        return np.stack([self._subject(np.array(row, dtype=np.float64)) for row in features])

    @abstractmethod
    def _subject(self, features: Floats) -> Floats:
        """The class probabilities of one subject, from its features (f,)."""

    def regressions(self) -> list[tuple[slice, Logistic]]:
        """The logistic regressions it consists of, each with the features it uses; empty if there is another part."""
        return []

    def contributions(self, features: NDArray[np.floating[Any]]) -> Floats | None:
        """What each window adds to the logits, exactly, if these are linear in the mean of the windows' features.

        From features of one subject's windows (n_windows, n_features) to contributions (n_windows, n_classes). Logits
        of a subject are here those of mean zero over the classes: a regression of two classes holds one of them at
        zero, as if no window spoke for or against it. Contributions sum to them, of several regressions to the mean of
        theirs. None if the classifier is not linear.
        """
        parts = self.regressions()
        if not parts:
            return None
        total = np.zeros((len(features), self.n_classes))
        for part, fitted in parts:
            for first in range(0, len(features), BLOCK):
                rows = slice(first, first + BLOCK)
                x = (features[rows, part] - fitted.mean) / fitted.scale
                total[rows, fitted.classes] += x @ fitted.coefficients.T + fitted.intercept
        centred: Floats = total - total.mean(axis=1, keepdims=True)
        return centred / (len(parts) * len(features))

    def tensors(self) -> dict[str, Array]:
        """All that was fitted, as arrays by name; ``rebuild`` makes the classifier from them again."""
        return {part.name: np.atleast_1d(getattr(self, part.name)) for part in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Classifier:
        """The classifier whose ``tensors`` these are."""
        parts: dict[str, Any] = {part.name: tensors[part.name] for part in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: int(value[0]) if name == "n_classes" else value for name, value in parts.items()})


@dataclass(eq=False)
class Logistic(Classifier):
    """Multinomial logistic regression on standardised features; f features, k classes with training subjects."""

    mean: Array  # f
    scale: Array  # f
    coefficients: Array  # k x f
    intercept: Array  # k
    classes: Array  # k: their numbers
    n_classes: int  # of the cohort; those without training subjects get probability 0
    kind: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        self.coefficients = np.ascontiguousarray(self.coefficients)

    def regressions(self) -> list[tuple[slice, Logistic]]:
        """Itself, on all features."""
        return [(slice(0, len(self.mean)), self)]

    def _subject(self, features: Floats) -> Floats:
        # Not a BLAS product: its last bit changes with the layout of what was stored.
        logits = (self.coefficients * ((features - self.mean) / self.scale)).sum(axis=1) + self.intercept
        weights = np.exp(logits - logits.max())
        p = np.zeros(self.n_classes)
        p[self.classes] = weights / weights.sum()
        return p


@dataclass(eq=False)
class ExtraTrees(Classifier):
    """Extremely randomised trees on standardised features; f features, all trees together have n nodes."""

    mean: Array  # f
    scale: Array  # f
    roots: Array  # the first node of each tree
    left: Array  # n: the next node if the feature is at most the threshold; a leaf leads to itself
    right: Array  # n: the next node if it is larger
    feature: Array  # n
    threshold: Array  # n
    values: Array  # n x classes: class probabilities
    kind: ClassVar[str] = "extra_trees"

    def __post_init__(self) -> None:
        self.n_classes = self.values.shape[1]

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


class Average(Classifier):
    """Several classifiers of the same classes, each on a slice of the features; their probabilities are averaged.

    ``slices`` has the first feature of each, and one past the last; a subject has ``n_features`` in all.
    """

    kind = "average"

    def __init__(self, members: Sequence[Classifier], slices: Sequence[Sequence[int]] | Array, n_features: int) -> None:
        self.members, self.slices = list(members), [(int(first), int(last)) for first, last in slices]
        self.n_features, self.n_classes = n_features, self.members[0].n_classes

    def _subject(self, features: Floats) -> Floats:
        parts = zip(self.members, self.slices, strict=True)
        p: Floats = np.mean([member._subject(features[first:last]) for member, (first, last) in parts], axis=0)
        return p

    def regressions(self) -> list[tuple[slice, Logistic]]:
        """Those of its members; empty if one of them has none."""
        parts = zip(self.members, self.slices, strict=True)
        found = [
            (slice(start + part.start, start + part.stop), fitted)
            for member, (start, _) in parts
            for part, fitted in member.regressions()
        ]
        return found if len(found) >= len(self.members) else []

    def tensors(self) -> dict[str, Array]:
        """What was fitted: a member's arrays are named by its number and kind, ``0.logistic.mean``."""
        stored: dict[str, Array] = {"slices": np.array(self.slices), "n_features": np.array([self.n_features])}
        for number, member in enumerate(self.members):
            stored |= {f"{number}.{member.kind}.{name}": array for name, array in member.tensors().items()}
        return stored

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Average:
        """The classifier whose ``tensors`` these are."""
        kinds = dict(sorted((int(name.split(".")[0]), name.split(".")[1]) for name in tensors if "." in name))
        own = [f"{number}.{kind}." for number, kind in kinds.items()]
        parts = [{name.removeprefix(i): array for name, array in tensors.items() if name.startswith(i)} for i in own]
        members = [rebuild(kind, part) for kind, part in zip(kinds.values(), parts, strict=True)]
        return cls(members, tensors["slices"], int(tensors["n_features"][0]))


KINDS: dict[str, type[Classifier]] = {cls.kind: cls for cls in (Logistic, ExtraTrees, Average)}


def rebuild(kind: str, tensors: Mapping[str, Array]) -> Classifier:
    """The classifier of this ``kind`` whose ``tensors`` were stored."""
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

    From features (n_subjects, n_features) and class numbers y (n_subjects,) of the ``n_classes`` of the cohort; C and
    ``class_weight`` as of scikit-learn's. With ``by_root`` features are divided by the square root of their number too,
    so that the length of a subject's vector, and with it the regularisation, does not grow with that number.
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
    """Standardise and fit extremely randomised trees (Geurts et al., 2006); arguments as of ``fit_logistic``."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.preprocessing import StandardScaler

    _check_training(features, y)
    scaler = StandardScaler().fit(features)
    model = ExtraTreesClassifier(n_trees, random_state=seed).fit(scaler.transform(features), y)
    trees = [estimator.tree_ for estimator in model.estimators_]
    counts = [tree.node_count for tree in trees]
    roots, itself = np.cumsum([0, *counts[:-1]]), np.arange(sum(counts))
    names = ("children_left", "children_right", "feature", "threshold", "value")
    left, right, feature, threshold, value = (np.concatenate([getattr(tree, n) for tree in trees]) for n in names)
    leaf, first = left < 0, np.repeat(roots, counts)  # node 0 of each node's tree
    values = np.zeros((len(itself), n_classes))
    values[:, model.classes_] = value[:, 0] / value[:, 0].sum(axis=1, keepdims=True)
    return ExtraTrees(
        scaler.mean_, scaler.scale_, roots, np.where(leaf, itself, first + left), np.where(leaf, itself, first + right),
        np.where(leaf, 0, feature), np.where(leaf, 0.0, threshold), values,
    )  # fmt: skip


def _check_training(features: Floats, y: NDArray[np.int64]) -> None:
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise BadData(f"training subject number {row + 1} has features that are not finite; look at its recording")
    if len(np.unique(y)) < 2:
        raise BadData("the training subjects are all of one class; a classifier needs two or more")
