"""Tangent: the front end's mean over windows, two fixed regressions, and messages about channels and rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bridgemil.backbones.covariance import FrontEnd
from bridgemil.baselines import Signal
from bridgemil.baselines.tangent import Tangent
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.errors import BadData, BadUse

SIGNAL = Signal(ADFTD_ORDER, 200.0, 200, 500.0)
SETTINGS = Tangent.Settings()


def bag(n: int, n_channels: int = 19, n_times: int = 200, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    sources = np.cumsum(rng.normal(0, 3, (n, n_channels, n_times)), axis=2)
    return np.einsum("cs,nst->nct", rng.normal(0, 1, (n_channels, n_channels)), sources).astype(np.float32)


def test_features_are_the_front_ends_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = bag(30)
    expected = FrontEnd(SIGNAL)(torch.from_numpy(windows)).double().mean(dim=0).numpy()
    np.testing.assert_allclose(Tangent(SETTINGS, SIGNAL).features(windows), expected, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("bridgemil.backbones.covariance.BLOCK", 7)
    np.testing.assert_allclose(Tangent(SETTINGS, SIGNAL).features(windows), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(Tangent(SETTINGS, SIGNAL).features(windows[::-1] * 9), expected, rtol=0, atol=1e-5)
    windows.flags.writeable = False  # as a memory-mapped bag is
    Tangent(SETTINGS, SIGNAL).features(windows)


def test_the_two_regressions_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    n_covariance, n_power = 6 * 190, 6 * 19
    features, y = rng.normal(0, 1, (40, n_covariance + n_power)), np.arange(40) % 3
    features[:, ::5] += y[:, None]
    train, test = slice(0, 30), slice(30, 40)
    expected = np.zeros((10, 3))
    for part in (slice(0, n_covariance), slice(n_covariance, None)):
        x = features[:, part]
        scaler = StandardScaler().fit(x[train])
        root = np.sqrt(x.shape[1])
        model = LogisticRegression(C=10, class_weight="balanced", max_iter=5000)
        model.fit(scaler.transform(x[train]) / root, y[train])
        expected += model.predict_proba(scaler.transform(x[test]) / root) / 2
    fitted = Tangent(SETTINGS, SIGNAL).fit(features[train], y[train], 3, seed=0)
    np.testing.assert_allclose(fitted.probabilities(features[test]), expected, rtol=0, atol=1e-12)


def test_what_it_cannot_do_is_refused_before_any_work() -> None:
    with pytest.raises(BadData, match="the band 1-4 Hz: windows sampled at 4 Hz"):
        Tangent(SETTINGS, replace(SIGNAL, sfreq=4.0))
    tangent = Tangent(SETTINGS, replace(SIGNAL, native_sfreq=64.0))
    assert list(tangent.left_out) == ["30-45 Hz"]
    assert tangent.features(bag(3)).shape == (5 * (190 + 19),)
    assert tangent.features_key != Tangent(SETTINGS, SIGNAL).features_key
    with pytest.raises(BadUse, match="windows x 19 channels x time, got 3 x 18 x 200"):
        tangent.features(bag(3, 18))


def test_channels_that_mean_nothing_are_named() -> None:
    windows = bag(6)
    expected = Tangent(SETTINGS, SIGNAL).features(windows)
    np.testing.assert_allclose(Tangent(SETTINGS, SIGNAL).features(windows - windows[:, [9]]), expected, atol=1e-4)
    windows[:, 9] = 3  # zeros are the electrode that is itself the reference, any other constant is a dead one
    with pytest.raises(BadData, match="channel Cz is constant"):
        Tangent(SETTINGS, SIGNAL).features(windows)
    windows[:, 8:10] = 0
    with pytest.raises(BadData, match=r"channel \S+, Cz is constant"):
        Tangent(SETTINGS, SIGNAL).features(windows)
    windows = bag(6)
    windows[:, 9] = windows[:, 2]
    with pytest.raises(BadData, match="channels F7 and Cz hold the same signal"):
        Tangent(SETTINGS, SIGNAL).features(windows)


def test_average_reference_and_high_density_work() -> None:
    windows = bag(6)
    referenced = windows - windows.mean(axis=1, keepdims=True)
    assert np.isfinite(Tangent(SETTINGS, SIGNAL).features(referenced)).all()
    tangent = Tangent(SETTINGS, Signal(tuple(f"E{i}" for i in range(64)), 200.0, 200))
    dense = bag(24, 64)
    dense[:, 1] = 0  # not among the electrodes that are used
    assert 1 not in tangent.front_end.used
    features = tangent.features(dense)
    assert features.shape == (6 * (32 * 33 // 2 + 32),)
    fitted = tangent.fit(np.stack([features, features + 1]), np.array([0, 1]), 2, seed=0)
    assert fitted.probabilities(features[None]).argmax() == 0


def test_short_windows_split_their_features_where_they_should() -> None:
    tangent = Tangent(SETTINGS, replace(SIGNAL, n_times=50))
    features = np.stack([tangent.features(bag(5, n_times=50, seed=seed)) for seed in range(4)])
    assert features.shape[1] == 5 * (190 + 19)  # a quarter of a second has no frequency from 1 to 4 Hz
    fitted: Any = tangent.fit(features, np.array([0, 1, 0, 1]), 2, seed=0)
    assert fitted.slices == [(0, 5 * 190), (5 * 190, 5 * 209)]
