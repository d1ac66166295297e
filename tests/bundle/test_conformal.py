"""Prediction sets have the coverage that they state, in every class."""

import numpy as np
import pytest

from bridgemil.bundle.conformal import PredictionSets, cross_coverage
from bridgemil.errors import BadUse

CLASSES = ["AD", "HC"]


def cohort(n: int, seed: int, effect: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    logit = effect * (1 - 2 * y) + rng.normal(size=n)
    p = 1 / (1 + np.exp(-2 * effect * logit))
    return np.column_stack([p, 1 - p]), y


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_new_subjects_are_covered_in_each_class(coverage: float) -> None:
    hits: dict[int, list[bool]] = {0: [], 1: []}
    for seed in range(60):
        p, y = cohort(60, seed)
        sets = PredictionSets.fit(p, y, CLASSES, coverage)
        for row, k in zip(*cohort(100, 1000 + seed), strict=True):
            hits[int(k)].append(CLASSES[k] in sets(row))
    for own in hits.values():
        assert coverage - 0.015 < np.mean(own) < coverage + 0.04  # at least the stated one; at most 1 / n above it


def test_an_uninformative_model_is_undecided_and_a_perfect_one_is_not() -> None:
    y = np.repeat([0, 1], 50)
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.4, 0.6, 100)
    folds = np.arange(100) % 10
    unsure = cross_coverage(np.column_stack([noise, 1 - noise]), y, folds, CLASSES)
    sure = np.where(y == 0, 0.9, 0.1) + 0.01 * rng.normal(size=100)
    good = cross_coverage(np.column_stack([sure, 1 - sure]), y, folds, CLASSES)
    assert unsure["several"] > 0.7
    assert good["several"] == 0
    assert min(good["by_class"].values()) >= 0.88


def test_a_recording_unlike_every_class_has_an_empty_set() -> None:
    p = np.tile([[0.95, 0.05], [0.05, 0.95]], (30, 1))
    sets = PredictionSets.fit(p, np.tile([0, 1], 30), CLASSES)
    assert sets([0.95, 0.05]) == ["AD"]
    assert sets([0.5, 0.5]) == []


def test_a_class_with_too_few_subjects_for_the_coverage_is_in_every_set() -> None:
    p, y = cohort(100, 0)
    few = np.r_[np.flatnonzero(y == 0)[:5], np.flatnonzero(y == 1)]
    sets = PredictionSets.fit(p[few], y[few], CLASSES)
    assert "AD" in sets([0.0, 1.0])


def test_it_is_stored() -> None:
    p, y = cohort(50, 3)
    sets = PredictionSets.fit(p, y, CLASSES)
    again = PredictionSets.from_json(sets.for_json())
    assert all(sets(row) == again(row) for row in p)


def test_a_coverage_of_one_is_refused() -> None:
    with pytest.raises(BadUse, match="coverage"):
        PredictionSets.fit(*cohort(20, 0), CLASSES, 1.0)
