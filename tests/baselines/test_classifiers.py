"""Fitted classifiers as data: what scikit-learn predicts, one subject at a time, and back from arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bridgemil.baselines.classifiers import KINDS, Average, Classifier, fit_extra_trees, fit_logistic, rebuild
from bridgemil.errors import BadData

N_FEATURES = 12


def people(n: int, n_classes: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(0, 3, (n, N_FEATURES)) + y[:, None] * rng.normal(0, 2, N_FEATURES) + 50, y


def average(features: Any, y: Any, n_classes: int) -> Average:
    slices = [(0, 8), (8, N_FEATURES)]
    members: list[Classifier] = [
        fit_logistic(features[:, :8], y, n_classes, C=1.0),
        fit_extra_trees(features[:, 8:], y, n_classes, n_trees=9),
    ]
    return Average(members, slices, N_FEATURES)


FITS: dict[str, Callable[[Any, Any, int], Classifier]] = {
    "logistic": lambda x, y, k: fit_logistic(x, y, k, C=0.1),
    "extra_trees": lambda x, y, k: fit_extra_trees(x, y, k, n_trees=30, seed=4),
    "average": average,
}


def test_every_kind_is_tested() -> None:
    assert set(FITS) == set(KINDS)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("balanced", [None, "balanced"])
def test_logistic_equals_scikit_learn(n_classes: int, balanced: Any) -> None:
    (x, y), (new, _) = people(41, n_classes), people(20, n_classes, seed=1)
    for by_root, C in ((False, 0.1), (True, 10.0)):
        divide = FunctionTransformer(lambda z: z / np.sqrt(N_FEATURES)) if by_root else FunctionTransformer()
        theirs = make_pipeline(
            StandardScaler(), divide, LogisticRegression(C=C, max_iter=5000, class_weight=balanced)
        ).fit(x, y)
        ours = fit_logistic(x, y, n_classes, C=C, class_weight=balanced, by_root=by_root)
        np.testing.assert_allclose(ours.probabilities(new), theirs.predict_proba(new), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_extra_trees_equal_scikit_learn(n_classes: int) -> None:
    (x, y), (new, _) = people(41, n_classes), people(200, n_classes, seed=1)
    theirs = make_pipeline(StandardScaler(), ExtraTreesClassifier(500, random_state=3)).fit(x, y)
    ours = fit_extra_trees(x, y, n_classes, seed=3)
    np.testing.assert_allclose(ours.probabilities(new), theirs.predict_proba(new), rtol=0, atol=1e-12)
    # On a training subject a value may equal a threshold: the same side must be taken.
    np.testing.assert_allclose(ours.probabilities(x), theirs.predict_proba(x), rtol=0, atol=1e-12)


def test_an_average_is_one() -> None:
    (x, y), (new, _) = people(30, 3), people(7, 3, seed=1)
    both = average(x, y, 3)
    parts = [both.members[0].probabilities(new[:, :8]), both.members[1].probabilities(new[:, 8:])]
    np.testing.assert_allclose(both.probabilities(new), np.mean(parts, axis=0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_windows_contribute_to_every_class(n_classes: int) -> None:
    (x, y), windows = people(30, n_classes), people(12, n_classes, seed=1)[0]
    fitted = fit_logistic(x, y, n_classes, C=1.0)
    contributions = fitted.contributions(windows)
    assert contributions is not None
    assert np.abs(contributions).min() > 0, "of two classes, the first has its share too"
    np.testing.assert_allclose(contributions.sum(axis=1), 0, atol=1e-12)
    weights = np.exp(contributions.sum(axis=0))
    np.testing.assert_allclose(weights / weights.sum(), fitted.probabilities(windows.mean(axis=0)[None])[0], rtol=1e-9)


@pytest.mark.parametrize("kind", FITS)
def test_read_back_from_arrays_to_the_bit(kind: str) -> None:
    (x, y), (new, _) = people(30, 3), people(9, 3, seed=1)
    fitted = FITS[kind](x, y, 3)
    assert fitted.kind == kind
    tensors = {name: np.ascontiguousarray(array) for name, array in fitted.tensors().items()}
    back = rebuild(kind, load(save(tensors)))
    assert type(back) is type(fitted)
    assert np.array_equal(back.probabilities(new), fitted.probabilities(new))
    for missing in tensors:
        with pytest.raises(BadData, match=f"stored classifier.*{kind if '.' not in missing else ''}.* is not complete"):
            rebuild(kind, {name: array for name, array in tensors.items() if name != missing})


@pytest.mark.parametrize("kind", FITS)
def test_a_subject_is_predicted_alone(kind: str) -> None:
    (x, y), (new, _) = people(30, 3), people(33, 3, seed=1)
    fitted = FITS[kind](x, y, 3)
    together = fitted.probabilities(new)
    assert together.dtype == np.float64
    np.testing.assert_allclose(together.sum(axis=1), 1, rtol=1e-12)
    for i in range(len(new)):
        assert np.array_equal(fitted.probabilities(new[i : i + 1])[0], together[i])
    assert np.array_equal(fitted.probabilities(np.asfortranarray(new[::-1])), together[::-1])


@pytest.mark.parametrize("kind", FITS)
def test_a_class_absent_from_training_gets_no_probability(kind: str) -> None:
    x, y = people(30, 3)
    kept = y != 1
    p = FITS[kind](x[kept], y[kept], 4).probabilities(x)
    assert p.shape == (30, 4)
    assert (p[:, [1, 3]] == 0).all()
    assert (p[kept].argmax(axis=1) == y[kept]).mean() > 0.9


@pytest.mark.parametrize("kind", FITS)
def test_a_constant_feature_gives_no_nan(kind: str) -> None:
    x, y = people(30, 2)
    x[:, 3] = -27.6
    assert np.isfinite(FITS[kind](x, y, 2).probabilities(x + 1)).all()


@pytest.mark.parametrize("kind", FITS)
def test_what_cannot_be_fitted_is_said(kind: str) -> None:
    x, y = people(30, 2)
    with pytest.raises(BadData, match="all of one class"):
        FITS[kind](x, 0 * y, 2)
    x[4] = np.nan
    with pytest.raises(BadData, match="training subject number 5 has features that are not finite"):
        FITS[kind](x, y, 2)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadData, match="of kind 'svm'; this version knows logistic, extra_trees, average"):
        rebuild("svm", {})
