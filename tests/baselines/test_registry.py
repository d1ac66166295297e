"""The contract of every baseline in the registry, and adding one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from bridgemil import baselines
from bridgemil.baselines import Baseline, Signal
from bridgemil.baselines.classifiers import Classifier, fit_logistic, rebuild
from bridgemil.errors import BadUse

SIGNAL = Signal(("Fz", "Cz", "Pz", "Oz"), 200.0, 200)


def bag(seed: int, label: int, n: int = 12) -> Any:
    rng = np.random.default_rng(seed)
    windows = rng.normal(0, 10, (n, 4, 200))
    rhythm = np.sin(2 * np.pi * 10 * np.arange(200) / 200 + rng.uniform(0, 6, (n, 1, 1)))
    windows[:, [0, 3]] += (4 + 8 * label) * rhythm
    return windows.astype(np.float32)


@pytest.mark.parametrize("name", baselines.names())
def test_every_baseline_learns_and_is_read_back(name: str) -> None:
    cls = baselines.get(name)
    assert cls.name == name
    assert baselines.BASELINES[name].description
    baseline = cls(cls.Settings(), SIGNAL)
    json.dumps(baseline.features_key)
    y = np.arange(24) % 2
    features = np.stack([baseline.features(bag(seed, label)) for seed, label in enumerate(y)])
    assert features.dtype == np.float64
    assert np.isfinite(features).all()
    assert np.array_equal(baseline.features(bag(5, int(y[5]))), features[5])  # of this person alone
    fitted = baseline.fit(features[:16], y[:16], 3, seed=0)
    p = fitted.probabilities(features[16:])
    assert (p[:, 2] == 0).all()
    assert (p.argmax(axis=1) == y[16:]).mean() >= 0.75
    assert np.array_equal(rebuild(fitted.kind, fitted.tensors()).probabilities(features[16:]), p)
    assert np.array_equal(baseline.fit(features[:16], y[:16], 3, seed=0).probabilities(features[16:]), p)


@pytest.mark.parametrize("name", baselines.names())
def test_settings_refuse_what_they_do_not_know(name: str) -> None:
    settings = baselines.get(name).Settings
    with pytest.raises(ValidationError, match="nonsense"):
        settings(nonsense=1)
    made = settings()
    for field in settings.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(made, field, getattr(made, field))


def test_names_and_unknown_ones() -> None:
    assert baselines.names()[:2] == ["bandpower", "tangent"]
    assert set(baselines.defaults()) <= set(baselines.names())
    with pytest.raises(BadUse, match="baseline must be one of bandpower, tangent; got 'svm'"):
        baselines.get("svm")


class Amplitude(Baseline):
    """Mean absolute amplitude of each channel."""

    name = "amplitude"

    @property
    def features_key(self) -> dict[str, Any]:
        return {"baseline": self.name}

    def features(self, bag: Any) -> Any:
        return np.abs(bag).mean(axis=(0, 2), dtype=np.float64)

    def fit(self, features: Any, y: Any, n_classes: int, seed: int) -> Classifier:
        return fit_logistic(features, y, n_classes, C=1.0)


def test_adding_one_is_one_class_and_one_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "BASELINES", baselines.BASELINES.copy())
    assert baselines.register(Amplitude) is Amplitude
    assert baselines.names() == ["bandpower", "tangent", "amplitude"]
    test_every_baseline_learns_and_is_read_back("amplitude")

    other = type("Amplitude", (Amplitude,), {})
    baselines.register(other)  # a cell that is run again
    assert baselines.get("amplitude") is other


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "bandpower"}, "comes with the package"),
        ({"name": "Band Power"}, "must be small letters"),
        ({"name": None}, "must be small letters"),
        (
            {"Settings": type("Settings", (Baseline.Settings,), {"__annotations__": {"C": float}})},
            "need defaults, C has none",
        ),
    ],
)
def test_what_cannot_be_registered(attributes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "BASELINES", baselines.BASELINES.copy())
    with pytest.raises(BadUse, match=message):
        baselines.register(type("Wrong", (Amplitude,), attributes))
    with pytest.raises(BadUse, match="a class made from"):
        baselines.register(object)  # type: ignore[type-var]
    assert tuple(baselines.names()) == baselines.BASELINES.built_in


def test_settings_are_known_without_heavy_imports() -> None:
    code = (
        "import sys\nfrom bridgemil import baselines\n"
        "for name in baselines.names(): baselines.get(name).Settings()\n"
        "heavy = {'torch', 'mne', 'sklearn', 'pandas', 'scipy'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
