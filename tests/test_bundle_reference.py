"""How like the training people somebody is: a test that knows no gain, and warns about as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from bridgemil.bundle.reference import Likeness, held_bands, make_reference, person_features
from bridgemil.cohort.signal import Signal
from people import people
from recordings import MONTAGE, noise


def test_distances_are_of_people_who_had_no_part_in_the_reference() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 30)) @ rng.normal(size=(30, 30))
    new = rng.normal(size=(400, 30)) @ rng.normal(size=(30, 30))
    left_out = [Likeness.fit(np.delete(features, i, axis=0)).distance(features[i]) for i in range(60)]
    whole = Likeness.fit(features)
    within = [whole.distance(row) for row in features]
    assert np.mean(left_out) > np.mean(within), "who made the reference looks nearer than a new person"
    assert np.mean([whole.distance(row) for row in new]) > np.mean(left_out)


def test_new_people_of_the_same_kind_are_warned_of_about_as_often_as_stated() -> None:
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(42, 42))
    features, new = rng.normal(size=(100, 42)) @ mixing, rng.normal(size=(1000, 42)) @ mixing
    left_out = np.sort([Likeness.fit(np.delete(features, i, axis=0)).distance(features[i]) for i in range(100)])
    whole = Likeness.fit(features)
    share = np.mean([(left_out < whole.distance(row)).mean() > 0.95 for row in new])
    assert 0.01 < share < 0.12


def test_features_do_not_depend_on_gain_and_bands_that_are_not_held_are_left_out() -> None:
    bag = noise(5, 20, 200).reshape(6, 20, 200).transpose(1, 0, 2).astype(np.float32)
    bands = held_bands(Signal(MONTAGE, 200.0, 200, 250.0), 45.0)
    assert list(bands) == ["delta", "theta", "alpha", "beta", "gamma"]
    assert held_bands(Signal(MONTAGE, 200.0, 200, 95.0), 40.0)["gamma"] == (30, 40), "what a model may see is looked at"
    assert list(held_bands(Signal(MONTAGE, 200.0, 200, 64.0))) == ["delta", "theta", "alpha", "beta"]
    plain, loud = (person_features(gain * bag, 200.0, bands) for gain in (1, 10))
    np.testing.assert_allclose(loud.vector, plain.vector, atol=1e-4)
    assert loud.spread == pytest.approx(10 * plain.spread, rel=1e-4)
    assert plain.power.shape == (6, 5)
    np.testing.assert_allclose(np.exp(plain.power).sum(axis=1), 1, atol=0.2)


def test_one_channel_and_a_constant_feature_are_no_trouble() -> None:
    cohort = people(8, n_channels=1)
    reference = make_reference(cohort)
    features = person_features(cohort.windows("subject-001"), 200.0, reference.bands)
    assert 0 <= reference.percentile(features) <= 100
