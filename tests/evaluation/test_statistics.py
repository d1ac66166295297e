"""Comparisons of methods: known cases, and that chance is called chance."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from bridgemil.evaluation.metrics import accuracy_interval, sign_flip_test
from bridgemil.evaluation.statistics import compare, corrected_t_test, holm


def predictions(rate: float, seed: int, n: int = 60, k: int = 6, seeds: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for s in range(seeds):
        for i in range(n):
            right = rng.random() < rate
            label = "AB"[i % 2]
            rows.append({"seed": s, "fold": i % k, "subject": f"s{i}", "label": label})
            rows[-1]["predicted"] = label if right else "BA"[i % 2]
    return pd.DataFrame(rows)


def test_without_its_correction_the_test_is_the_usual_t_test() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 20)
    assert corrected_t_test(values, 0.0) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert corrected_t_test(values, 1 / 8) > corrected_t_test(values, 0.0)
    assert np.isnan(corrected_t_test(np.ones(5), 0.1))
    assert np.isnan(corrected_t_test(np.array([1 - 2 / 3, 2 / 3 - 1 / 3, 1 / 3]), 0.1)), "rounding is no variance"


def test_seeds_on_one_split_are_no_further_evidence() -> None:
    one, other = predictions(0.8, 0, seeds=1), predictions(0.6, 1, seeds=1)
    once = compare(one, other, ("a", "b"))
    many = [pd.concat([own.assign(seed=s) for s in range(20)]) for own in (one, other)]
    often = compare(*many, ("a", "b"))
    assert often.p == pytest.approx(once.p)
    assert (once.seeds, often.seeds) == (1, 20)


def test_folds_without_variance_are_judged_by_their_subjects() -> None:
    rows = [{"seed": 0, "fold": i // 2, "subject": f"s{i}", "label": "A", "predicted": "A"} for i in range(6)]
    right = pd.DataFrame(rows)
    half = right.assign(predicted=["A", "B"] * 3)
    assert compare(right, half, ("a", "b")).p == pytest.approx(0.25)
    assert compare(right, right, ("a", "b")).p == 1.0


def test_holm_on_a_known_family() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_true_difference_is_found_and_named() -> None:
    found = compare(predictions(0.95, 0), predictions(0.5, 1), ("good", "bad"))
    assert found.gain > 0.3
    assert found.sentence.startswith("good is more accurate than bad here")
    turned = compare(predictions(0.5, 1), predictions(0.95, 0), ("bad", "good"))
    assert turned.sentence.startswith("good is more accurate than bad here")


def test_equal_methods_are_rarely_called_different() -> None:
    calls = 0
    for repeat in range(40):
        tables = [predictions(0.7, 100 * repeat + i) for i in range(3)]
        found = [compare(*pair, ("one", "other")) for pair in combinations(tables, 2)]
        adjusted = holm([one.p for one in found])
        assert all(p_holm >= one.p for one, p_holm in zip(found, adjusted, strict=True))
        corrected = [replace(one, p_holm=p) for one, p in zip(found, adjusted, strict=True)]
        calls += any("is more accurate" in one.sentence for one in corrected)
    assert calls <= 4, "a family of three equal methods is called different too often"


def test_other_folds_are_not_compared() -> None:
    one = predictions(0.7, 0)
    other = one.assign(fold=(one["fold"] + 1) % 6)
    with pytest.raises(ValueError, match="not run on the same seeds, folds"):
        compare(one, other, ("a", "b"))


def with_right(right: int, n: int) -> pd.DataFrame:
    rows = [{"seed": 0, "fold": i % 2, "subject": f"s{i}", "label": "A"} for i in range(n)]
    return pd.DataFrame(rows).assign(predicted=["A"] * right + ["B"] * (n - right))


@pytest.mark.parametrize(("more", "p"), [(0, 1.0), (1, 1.0), (4, 0.125), (8, 2 / 2**8)])
def test_the_sign_flip_test_of_few_who_differ_is_the_sign_test(more: int, p: float) -> None:
    one, other = with_right(10 + more, 40), with_right(10, 40)
    assert sign_flip_test(one, other) == pytest.approx(p)
    assert sign_flip_test(other, one) == pytest.approx(p)


def test_one_in_each_fold_is_not_shown_though_folds_agree() -> None:
    folds = [i for i, size in enumerate([5, 5, 4, 4, 4]) for _ in range(size)]
    rows = [
        {"seed": 0, "fold": fold, "subject": f"s{i}", "label": "A", "predicted": "A"} for i, fold in enumerate(folds)
    ]
    right = pd.DataFrame(rows)
    wrong_once = right.assign(predicted=["A" if fold in folds[:i] else "B" for i, fold in enumerate(folds)])
    found = compare(right, wrong_once, ("a", "b"))
    assert found.low > 0
    assert found.p == pytest.approx(2 / 2**5)
    assert found.sentence.startswith("a may be more accurate")


def test_many_who_differ_are_drawn() -> None:
    assert sign_flip_test(with_right(36, 40), with_right(6, 40)) == pytest.approx(1 / 10001)
    assert sign_flip_test(with_right(20, 40), with_right(20, 40).iloc[::-1].assign(predicted="B")) < 0.01


def test_all_right_is_no_certainty() -> None:
    low, high = accuracy_interval(with_right(12, 12))
    assert 0.7 < low < 0.8
    assert high == 1
    low, high = accuracy_interval(with_right(0, 12))
    assert low == 0
    assert 0.2 < high < 0.3
