"""Prediction sets with a stated coverage, by class-conditional cross-conformal prediction (Vovk, 2015).

A class is in the set of a recording unless its probability is lower than that of nearly all training subjects of the
class, each predicted by the fold that held it out (Mondrian: the subjects of each class are a group of their own, so
that the coverage holds in the rare class too). A set may hold one class, several (undecided) or none (unlike every
class). If training and new recordings are exchangeable, the set holds the true class with at least the stated
probability.

Two approximations. As in CV+ (Romano, Sesia and Candes, 2020) the scores are of the models of the folds; a new
recording is compared with all of them by the mean of these models, not fold by fold. And a p-value of n subjects is a
multiple of 1 / (n + 1), rounded in favour of the class: with 30 subjects the expected coverage at 90 % is 91 to 93 %.
``benchmarks/conformal_coverage.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadUse

Floats = NDArray[np.float64]
COVERAGE = 0.9


@dataclass(frozen=True)
class PredictionSets:
    """Prediction sets for K classes."""

    scores: Mapping[str, Floats]  # of each class, its own subjects' held-out probabilities of it, ascending
    coverage: float = COVERAGE  # share of recordings whose set is to hold the true class

    @classmethod
    def fit(cls, p: Floats, y: NDArray[np.int64], classes: Sequence[str], coverage: float = COVERAGE) -> PredictionSets:
        """From held-out probabilities (n, K) before calibration and class numbers (n,)."""
        return cls({name: np.sort(p[y == k, k]) for k, name in enumerate(classes)}).at(coverage)

    def __call__(self, probabilities: Sequence[float] | Floats) -> list[str]:
        """The prediction set of one recording, from its K probabilities before calibration.

        The conformal p-value of a class is the share of its subjects, this one included, with no higher probability.
        """
        found = []
        for (name, own), p in zip(self.scores.items(), probabilities, strict=True):
            p_value = (1 + int(np.searchsorted(own, p, side="right"))) / (1 + len(own))
            if p_value > 1 - self.coverage + 1e-12:
                found.append(name)
        return found

    def at(self, coverage: float) -> PredictionSets:
        """The same at another coverage, above 0 and below 1."""
        if not 0 < coverage < 1:
            raise BadUse(f"the coverage must be above 0 and below 1, got {coverage:g}")
        return replace(self, coverage=coverage)

    def for_json(self) -> dict[str, Any]:
        """As a bundle stores it."""
        return {"coverage": self.coverage, "scores": {name: own.tolist() for name, own in self.scores.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PredictionSets:
        """Inverse of ``for_json``."""
        return cls({name: np.array(own) for name, own in content["scores"].items()}, float(content["coverage"]))


def cross_coverage(
    p: Floats, y: NDArray[np.int64], folds: NDArray[np.int64], classes: Sequence[str], coverage: float = COVERAGE
) -> dict[str, Any]:
    """Coverage and size of the sets of held-out subjects, each set from the subjects of the other folds.

    ``p``, ``y`` and ``folds`` are held-out probabilities (n, K), class numbers (n,) and folds (n,).
    """
    sets: list[list[str]] = [[] for _ in y]
    for fold in np.unique(folds):
        made = PredictionSets.fit(p[folds != fold], y[folds != fold], classes, coverage)
        for i in np.flatnonzero(folds == fold):
            sets[i] = made(p[i])
    return summary(sets, np.asarray(classes)[y], classes, coverage, lambda hit: float(hit.mean()))


def summary(
    sets: Sequence[Sequence[str]],
    labels: NDArray[Any],
    classes: Sequence[str],
    coverage: float,
    share: Callable[[NDArray[np.bool_]], Any],
) -> dict[str, Any]:
    """Coverage and size of the sets of subjects with these labels; ``share`` states how many of some are covered."""
    hit = np.array([name in own for name, own in zip(labels, sets, strict=True)])
    size = np.array(list(map(len, sets)))
    return {
        "stated": coverage,
        "coverage": share(hit),
        "by_class": {name: share(hit[labels == name]) for name in classes},
        "one_class": float((size == 1).mean()),
        "several": float((size > 1).mean()),
        "none": float((size == 0).mean()),
    }
