from __future__ import annotations

import numpy as np
import pytest

from bridgemil.baselines import Signal
from bridgemil.baselines.bandpower import BandPower
from bridgemil.cohort.signal import CLINICAL_BANDS as BANDS
from bridgemil.cohort.signal import rereferenced, window_band_power
from bridgemil.errors import BadData


def features(bag: np.ndarray, sfreq: float, **settings: str) -> np.ndarray:
    signal = Signal(tuple(f"E{i}" for i in range(bag.shape[1])), sfreq, bag.shape[2])
    return BandPower(BandPower.Settings(**settings), signal).features(bag)


def test_features_do_not_depend_on_the_recording_reference() -> None:
    bag = np.random.default_rng(3).normal(0, 9, (12, 5, 200)).astype(np.float32).cumsum(axis=2)
    expected = features(bag, 200)
    for reference in (bag[:, [1]], bag[:, [0, 4]].mean(axis=1, keepdims=True), bag.mean(axis=1, keepdims=True)):
        np.testing.assert_allclose(features(bag - reference, 200), expected, atol=1e-3)
    assert np.abs(features(bag, 200, reference="recorded") - expected).max() > 0.1
    assert np.array_equal(features(bag[:, :1], 200), features(bag[:, :1], 200, reference="recorded")), "one electrode"


def test_a_rhythm_shows_in_its_band_and_channel() -> None:
    time = np.arange(200) / 200
    bag = np.random.default_rng(0).normal(0, 1, (30, 3, 200)).astype(np.float32)
    bag[:, 1] += 20 * np.sin(2 * np.pi * 10 * time)
    found = features(bag, 200).reshape(3, len(BANDS))
    assert found[1].argmax() == list(BANDS).index("alpha")
    assert found[1].max() > -0.1
    np.testing.assert_allclose(np.exp(features(bag[:1], 200)).reshape(3, -1).sum(axis=1), 1, rtol=1e-6)


def test_features_do_not_depend_on_scale_or_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    bag = np.random.default_rng(1).normal(0, 1, (40, 2, 200)).astype(np.float32)
    whole = features(bag, 200)
    np.testing.assert_allclose(features(bag * 7, 200), whole, rtol=1e-5)
    monkeypatch.setattr("bridgemil.baselines.bandpower.BLOCK", 16)
    np.testing.assert_allclose(features(bag, 200), whole, rtol=1e-6)


def test_bands_that_the_filters_removed_are_no_features() -> None:
    signal = Signal(("Fz", "Cz"), 200.0, 200, low=0.5, high=20.0)
    baseline = BandPower(BandPower.Settings(), signal)
    assert list(baseline.left_out) == ["beta", "gamma"], "less than half of 13-30 Hz is left"
    bag = np.random.default_rng(1).normal(0, 1, (5, 2, 200)).astype(np.float32)
    bands = [(1, 4), (4, 8), (8, 13)]
    expected = np.log(window_band_power(rereferenced(bag), 200, bands)).mean(axis=0).ravel()
    np.testing.assert_allclose(baseline.features(bag), expected, rtol=1e-6)
    assert baseline.features_key != BandPower(BandPower.Settings(), Signal(("Fz", "Cz"), 200.0, 200)).features_key


def test_the_class_gives_the_functions_features_and_scikit_learns_probabilities() -> None:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(2)
    bags = [(rng.normal(0, 1 + i % 3, (9, 2, 200)).cumsum(axis=2)).astype(np.float32) for i in range(30)]
    y = np.arange(30) % 3
    models = {
        "logistic": LogisticRegression(C=0.1, max_iter=5000),
        "extra_trees": ExtraTreesClassifier(500, random_state=5),
    }
    keys = []
    for kind, model in models.items():
        baseline = BandPower(BandPower.Settings(classifier=kind), Signal(("Fz", "Cz"), 200.0, 200))
        x = np.stack([baseline.features(bag) for bag in bags])
        assert np.array_equal(x[4], features(bags[4], 200.0))
        theirs = make_pipeline(StandardScaler(), model).fit(x[:24], y[:24]).predict_proba(x[24:])
        ours = baseline.fit(x[:24], y[:24], 3, seed=5).probabilities(x[24:])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
        keys.append(baseline.features_key)
    assert keys[0] == keys[1]


def test_the_class_refuses_too_low_a_rate_before_any_work() -> None:
    with pytest.raises(BadData, match="60 Hz or more, got 50 Hz"):
        BandPower(BandPower.Settings(), Signal(("Fz",), 50.0, 50))
