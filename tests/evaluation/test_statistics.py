"""Comparisons of methods: known cases, and that chance is called chance."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as t_distribution

from bridgemil.evaluation import statistics
from bridgemil.evaluation.metrics import accuracy_interval
from bridgemil.evaluation.statistics import compare, corrected, holm, p_text, paired_test, sign_flip_test

NAMES = ("a", "b")


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


def t_test(gains: np.ndarray, test_to_train: float) -> float:
    """p of the t-test alone, every fold one subject."""
    places = np.arange(len(gains))
    error, freedom = statistics._corrected_error(gains, places, float(gains.mean()), test_to_train)
    return float(2 * t_distribution.sf(abs(gains.mean()) / error, freedom))


def test_without_its_correction_the_test_is_the_usual_t_test() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 20)
    assert t_test(values, 0.0) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert t_test(values, 1 / 8) > t_test(values, 0.0)


def test_folds_of_unequal_size_count_by_their_subjects() -> None:
    """72 of 82 right with both methods is no difference, however the folds weigh them."""
    folds = np.repeat([0, 1, 2], [2, 4, 6])
    gain = np.array([1.0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0])
    difference, low, high, p = paired_test(gain, np.arange(12), folds, 0.5)
    assert (difference, p) == (0, 1)
    assert low == -high < 0


def test_one_tested_fold_has_the_sign_flip_test_alone_and_says_so() -> None:
    one, other = (predictions(rate, seed, k=1) for rate, seed in ((0.8, 0), (0.6, 1)))
    found = compare(one, other, NAMES, 1 / 5)
    gain = (one["label"] == one["predicted"]).astype(float) - (other["label"] == other["predicted"])
    assert found.p == pytest.approx(sign_flip_test(gain.groupby(one["subject"]).mean().to_numpy()))
    assert "sign-flip; one tested fold;" in found.sentence
    assert "t-test" not in found.sentence
    assert (
        "max of sign-flip and corrected resampled t-test"
        in compare(*map(predictions, (0.8, 0.6), (0, 1)), NAMES, 0.2).test
    )


def test_seeds_on_one_split_are_no_further_evidence() -> None:
    one, other = predictions(0.8, 0, seeds=1), predictions(0.6, 1, seeds=1)
    once = compare(one, other, NAMES, 1 / 5)
    many = [pd.concat([own.assign(seed=s) for s in range(20)]) for own in (one, other)]
    often = compare(*many, NAMES, 1 / 5)
    assert often.p == pytest.approx(once.p)
    assert (once.seeds, often.seeds) == (1, 20)


def test_splits_of_the_same_predictions_are_no_further_evidence_to_the_subjects() -> None:
    one, other = predictions(0.8, 0, seeds=1), predictions(0.6, 1, seeds=1)
    many = [pd.concat([own.assign(split=s) for s in range(5)]) for own in (one, other)]
    often = compare(*many, NAMES, 1 / 5)
    gain = (one["label"] == one["predicted"]).astype(float) - (other["label"] == other["predicted"])
    assert often.splits == 5
    assert often.p >= sign_flip_test(gain.to_numpy())
    assert often.difference == pytest.approx(gain.mean())


def test_folds_without_variance_are_judged_by_their_subjects() -> None:
    rows = [{"seed": 0, "fold": i // 2, "subject": f"s{i}", "label": "A", "predicted": "A"} for i in range(6)]
    right = pd.DataFrame(rows)
    half = right.assign(predicted=["A", "B"] * 3)
    assert compare(right, half, NAMES, 1.0).p == pytest.approx(0.25)
    same = compare(right, right, NAMES, 1.0)
    assert (same.p, same.difference) == (1.0, 0.0)
    assert same.low == -same.high < 0, "six subjects on whom both agree are no proof that they always do"


def test_holm_on_a_known_family() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_true_difference_is_found_and_named_the_same_in_either_order() -> None:
    found = compare(predictions(0.95, 0), predictions(0.5, 1), ("good", "bad"), 1 / 5)
    assert found.difference > 0.3
    assert found.sentence.startswith("good is more accurate than bad (+")
    assert statistics.TEST in found.sentence
    turned = compare(predictions(0.5, 1), predictions(0.95, 0), ("bad", "good"), 1 / 5)
    assert turned.sentence == found.sentence


def test_the_interval_excludes_zero_only_where_the_test_rejects() -> None:
    verdicts = set()
    for seed in range(60):
        found = compare(predictions(0.75, seed, n=30), predictions(0.6, 500 + seed, n=30), NAMES, 1 / 5)
        assert found.low <= found.difference <= found.high
        assert found.p < 0.05 or found.low <= 0 <= found.high
        verdicts.add(found.sentence.startswith("No significant difference"))
    assert verdicts == {True, False}


def test_where_holm_takes_a_verdict_back_it_says_so() -> None:
    alone = compare(predictions(0.9, 0), predictions(0.62, 3), NAMES, 1 / 5)
    assert 0.01 < alone.p < 0.05, "the case is made for this"
    assert alone.corrected_sentence == alone.sentence
    first, *_ = corrected([alone] * 6)
    assert (first.p, first.sentence) == (alone.p, alone.sentence), "a pair's own p and sentence stay"
    assert not first.significant
    assert first.corrected_sentence.startswith("No significant difference")
    assert f"{p_text(alone.p)}; Holm-corrected {p_text(6 * alone.p)} for 6 comparisons" in first.corrected_sentence


def test_p_is_printed_without_a_leading_zero() -> None:
    assert [p_text(p) for p in (0.0312, 0.0002, 1.0)] == ["p = .031", "p < .001", "p = 1.000"]


def test_equal_methods_are_rarely_called_different() -> None:
    calls = 0
    for repeat in range(40):
        tables = [predictions(0.7, 100 * repeat + i) for i in range(3)]
        found = corrected([compare(*pair, NAMES, 1 / 5) for pair in combinations(tables, 2)])
        assert all(one.p_holm >= one.p for one in found)
        calls += any(one.significant for one in found)
    assert calls <= 4, "a family of three equal methods is called different too often"


def test_other_subjects_are_not_compared() -> None:
    one = predictions(0.7, 0)
    with pytest.raises(ValueError, match="not run on the same seeds and subjects"):
        compare(one, one.assign(subject=one["subject"] + "x"), NAMES, 1 / 5)


def with_right(right: int, n: int) -> pd.DataFrame:
    rows = [{"seed": 0, "fold": i % 2, "subject": f"s{i}", "label": "A"} for i in range(n)]
    return pd.DataFrame(rows).assign(predicted=["A"] * right + ["B"] * (n - right))


@pytest.mark.parametrize(("more", "less"), [(0, 0), (1, 0), (4, 0), (8, 0), (20, 9), (3, 3)])
def test_the_sign_flip_test_of_one_seed_is_the_sign_test(more: int, less: int) -> None:
    gains = np.repeat([1.0, -1.0, 0.0], [more, less, 30])
    expected = binomtest(more, more + less).pvalue if more + less else 1.0
    assert sign_flip_test(gains) == pytest.approx(expected)
    assert sign_flip_test(-gains) == pytest.approx(expected)


def test_the_sign_flip_test_looks_at_every_pattern_of_signs() -> None:
    gains = np.array([0.2, 0.4, -0.2, 1.0, 0.6, 0.6, 1 / 3, -0.5])
    sums = [abs(np.dot(signs, gains)) for signs in product((-1, 1), repeat=len(gains))]
    assert sign_flip_test(gains) == pytest.approx(np.mean(np.array(sums) >= gains.sum() - 1e-9))
    fine = np.random.default_rng(0).normal(0.2, 1, 12)  # no common unit: random signs
    sums = [abs(np.dot(signs, fine)) for signs in product((-1, 1), repeat=12)]
    assert sign_flip_test(fine) == pytest.approx(np.mean(np.array(sums) >= abs(fine.sum()) - 1e-9), abs=0.015)


def test_one_in_each_fold_is_not_shown_though_folds_agree() -> None:
    folds = [i for i, size in enumerate([5, 5, 4, 4, 4]) for _ in range(size)]
    rows = [
        {"seed": 0, "fold": fold, "subject": f"s{i}", "label": "A", "predicted": "A"} for i, fold in enumerate(folds)
    ]
    right = pd.DataFrame(rows)
    wrong_once = right.assign(predicted=["A" if fold in folds[:i] else "B" for i, fold in enumerate(folds)])
    found = compare(right, wrong_once, NAMES, 1 / 4)
    assert found.p == pytest.approx(2 / 2**5)
    assert found.low == 0
    assert found.sentence.startswith("No significant difference between a and b")


def test_all_right_is_no_certainty() -> None:
    low, high = accuracy_interval(with_right(12, 12))
    assert 0.7 < low < 0.8
    assert high == 1
    low, high = accuracy_interval(with_right(0, 12))
    assert low == 0
    assert 0.2 < high < 0.3
