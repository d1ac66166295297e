"""Concordance of scores with a covariate within strata."""

import numpy as np
import pytest

from bridgemil.evaluation.sites import concordance

RNG = np.random.default_rng(0)


def test_it_is_one_half_for_noise_and_one_for_the_same_order() -> None:
    values = RNG.normal(size=200)
    share, low, high = concordance(RNG.normal(size=200), values, ["a"] * 200)
    assert low < 0.5 < high
    assert share == pytest.approx(0.5, abs=0.1)
    assert concordance(np.exp(values), values, ["a"] * 200)[:2] == (1.0, 1.0)
    assert concordance(-values, values, ["a"] * 200)[0] == 0.0


def test_differences_between_strata_do_not_count() -> None:
    strata = ["a"] * 100 + ["b"] * 100
    shift = np.repeat([0.0, 50.0], 100)
    values, scores = RNG.normal(size=200) + shift, RNG.normal(size=200) + shift
    assert concordance(scores, values, ["all"] * 200)[0] > 0.7
    assert concordance(scores, values, strata)[0] == pytest.approx(0.5, abs=0.1)


def test_of_two_values_it_is_the_auroc() -> None:
    from sklearn.metrics import roc_auc_score

    values, scores = RNG.integers(0, 2, 60).astype(float), RNG.integers(0, 5, 60).astype(float)
    assert concordance(scores, values, [""] * 60)[0] == pytest.approx(roc_auc_score(values, scores))


def test_nothing_to_compare_is_nan() -> None:
    assert np.isnan(concordance(np.ones(3), np.ones(3), ["a"] * 3)).all()
