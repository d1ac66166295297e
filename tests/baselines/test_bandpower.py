from __future__ import annotations

import numpy as np
import pytest

from bridgemil.baselines.bandpower import BANDS, features
from bridgemil.errors import BadData


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


def test_too_low_a_rate_is_refused() -> None:
    with pytest.raises(BadData, match="60 Hz or more"):
        features(np.zeros((1, 1, 50), dtype=np.float32), 50)
