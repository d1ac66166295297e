"""Calibration: it mends what it should, decides inside the folds, and says how little few people show."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bridgemil.errors import BadData
from bridgemil.evaluation import calibration
from bridgemil.evaluation.calibration import (
    FITTERS,
    Temperature,
    calibration_error,
    cross_calibrated,
    cross_fitted,
    decide,
    fit_isotonic,
    fit_temperature,
    from_json,
    log_loss,
)


def people(
    n: int, n_classes: int = 2, sharpen: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, true classes drawn from them, folds; then the probabilities are made ``sharpen`` times surer."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), n)
    y = np.array([rng.choice(n_classes, p=row) for row in p])
    p = p**sharpen
    return p / p.sum(axis=1, keepdims=True), y, np.arange(n) % 5


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("sharpen", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_what_was_sharpened(n_classes: int, sharpen: float) -> None:
    p, y, _ = people(4000, n_classes, sharpen)
    fitted = fit_temperature(p, y)
    assert fitted.value == pytest.approx(sharpen, rel=0.12)
    assert np.array_equal(fitted(p).argmax(axis=1), p.argmax(axis=1)), "it never changes what is predicted"
    np.testing.assert_allclose(fitted(p).sum(axis=1), 1)
    np.testing.assert_array_equal(fitted(p[3]), fitted(p)[3])


def test_even_where_everyone_was_right_nobody_is_certain() -> None:
    y = np.arange(20) % 2
    p = np.where(np.eye(2)[y] == 1, 0.6, 0.4)
    calibrated = fit_temperature(p, y)(p)
    assert 0.8 < calibrated.max() < 0.95  # Platt's target of ten people is 11/12
    certain = np.eye(2)[y].astype(float)
    assert fit_temperature(certain, y)(certain).max() < 1


def test_the_error_falls_where_the_model_was_too_sure_and_is_honest_about_few_people() -> None:
    p, y, folds = people(600, 3, 3.0)
    before, after = calibration_error(p, y), calibration_error(cross_calibrated(p, y, folds), y)
    assert before.value > 0.15 > after.value
    assert before.low <= before.value <= before.high
    assert before.value > 2 * before.expected
    assert abs(after.value - after.expected) < 0.03
    few = calibration_error(*people(40)[:2])
    assert len(few.bins) == 2
    assert sum(n for _, _, n in few.bins) == 40
    assert few.expected > after.expected, "few people show an error even where there is none"


def test_the_interval_of_the_error_reaches_zero_where_nothing_is_wrong_and_only_there() -> None:
    right = [calibration_error(*people(88, 2, 1.0, seed)[:2]) for seed in range(30)]
    assert sum(error.low == 0 for error in right) >= 26, "a bootstrap's quantiles never reach 0"
    assert all(error.low <= error.value <= error.high for error in right)
    for seed in range(5):
        wrong = calibration_error(*people(300, 2, 4.0, seed)[:2])
        assert 0 < wrong.low < wrong.value < wrong.high


def test_perfect_and_worthless_probabilities() -> None:
    y = np.arange(60) % 2
    assert calibration_error(np.eye(2)[y], y).value == 0
    wrong = calibration_error(np.eye(2)[1 - y], y)
    assert wrong.value == pytest.approx(1)


def test_none_is_kept_where_no_calibration_helps_and_isotonic_needs_people() -> None:
    p, y, folds = people(150, 2, 1.0, seed=3)
    why = decide(p, y, folds)[1]
    assert set(why["log_loss"]) == {"none", "temperature"}
    assert "isotonic needs 200 subjects, here are 150" in why["why"]
    kinds = {decide(*people(150, 2, 1.0, seed=seed))[0].kind for seed in range(8)}
    assert "none" in kinds


def test_a_temperature_that_lowers_log_loss_but_raises_the_calibration_error_is_not_applied() -> None:
    rng = np.random.default_rng(0)
    sure = np.where(np.arange(300) < 20, 0.9999, rng.uniform(0.7, 0.8, 300))  # 20 of 300 are far too confident
    correct = np.where(np.arange(300) < 20, np.arange(300) % 2 == 0, np.arange(300) % 4 != 0)
    p, y = np.stack([1 - sure, sure], axis=1), correct.astype(int)
    folds = np.arange(300) % 5
    chosen, why = decide(p, y, folds, ["none", "temperature"])
    assert why["log_loss"]["temperature"] < why["log_loss"]["none"] - 0.1
    assert why["calibration_error"]["temperature"] > why["calibration_error"]["none"]
    assert chosen.kind == "none"
    assert "applied only if both are lower" in why["why"]


@pytest.mark.parametrize("sharpen", [0.4, 3.0])
def test_a_temperature_that_lowers_both_is_applied(sharpen: float) -> None:
    p, y, folds = people(300, 2, sharpen)
    chosen, why = decide(p, y, folds, ["none", "temperature"])
    assert why["calibration_error"]["temperature"] < why["calibration_error"]["none"]
    assert chosen.kind == "temperature"
    assert ("sharpened" if sharpen < 1 else "softened") in chosen.sentence


def test_isotonic_wins_where_no_temperature_can_mend() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.5, 1, 2000)
    y = (rng.random(2000) < true).astype(int)
    bent = np.where(true < 0.75, 0.1 + 0.1 * true, 0.9 + 0.1 * true / 2)  # says 0.15 where it should say 0.6
    p = np.stack([1 - bent, bent], axis=1)
    chosen, _ = decide(p, y, np.arange(2000) % 5)
    assert chosen.kind == "isotonic"
    said = chosen(p)
    np.testing.assert_allclose(said.sum(axis=1), 1)
    assert said.min() > 0
    assert calibration_error(said, y).value < 0.1


def test_no_fold_is_calibrated_by_itself() -> None:
    p, y, folds = people(300, 2, 3.0)
    whole = cross_calibrated(p, y, folds)
    other_outcomes = np.where(folds == 2, 1 - y, y)
    again = cross_calibrated(p, other_outcomes, folds)
    assert np.array_equal(whole[folds == 2], again[folds == 2]), "their outcomes have no part in it"
    assert not np.array_equal(whole[folds != 2], again[folds != 2])


@pytest.mark.parametrize("kind", FITTERS)
def test_every_calibration_is_read_back_to_the_bit(kind: str) -> None:
    p, y, _ = people(300, 3, 2.0)
    fitted = FITTERS[kind](p, y)
    again = from_json(json.loads(json.dumps(fitted.for_json())))
    assert np.array_equal(again(p), fitted(p))
    assert again.sentence == fitted.sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"kind": "magic"}, "of a later version; expected the values of one of none, temperature, isotonic, shift"),
        ({}, "damaged"),
        ({"kind": "temperature", "value": "warm"}, "damaged"),
        ({"kind": "temperature", "value": -1}, "damaged"),
        ({"kind": "isotonic", "corners": [[1]], "least": 0.1}, "damaged"),
    ],
)
def test_a_damaged_calibration_is_a_sentence(content: dict, words: str) -> None:
    with pytest.raises(BadData, match=words):
        from_json(content)


def test_cross_fitting_with_one_fold_leaves_it_alone() -> None:
    p, y, _ = people(20)
    assert np.array_equal(cross_fitted(fit_temperature, p, y, np.zeros(20, dtype=int)), p)
    assert log_loss(calibration.Calibration()(p), y) == log_loss(p, y)
    assert isinstance(fit_isotonic(p, y), calibration.Isotonic)
    assert Temperature(1.0)(p) == pytest.approx(p)
