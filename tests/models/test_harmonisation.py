"""Harmonisation against known differences between sites."""

import numpy as np
import pytest

from bridgemil.errors import BadData
from bridgemil.models.harmonisation import Covariates, Harmonisation, fit_sites

RNG = np.random.default_rng(0)
F = 5
SEX = {"F": 0.0, "M": 1.0}


def site_of(n: int, shift: float, factor: float) -> dict[str, np.ndarray]:
    return {f"{shift}-{i}": shift + factor * RNG.normal(size=F) for i in range(n)}


def mapped(scale, x):
    return (x - scale[0]) / scale[1]


def test_sites_share_mean_and_spread_afterwards() -> None:
    a, b, new = site_of(2000, 0.0, 1.0), site_of(2000, 5.0, 3.0), site_of(2000, -2.0, 0.5)
    people = a | b | new
    scales = fit_sites(people.__getitem__, {"a": list(a), "b": list(b)}, {"new": list(new)})
    after = {
        name: np.stack([mapped(scales[name], x) for x in own.values()])
        for name, own in {"a": a, "b": b, "new": new}.items()
    }
    means = np.stack([values.mean(axis=0) for values in after.values()])
    np.testing.assert_allclose(means, np.broadcast_to(means[0], means.shape), atol=1e-9)
    spread = np.stack([values.std(axis=0) for values in after.values()])
    np.testing.assert_allclose(spread / spread[0], 1, atol=0.05)


def test_a_site_without_training_subjects_does_not_move_the_others() -> None:
    a, b = site_of(20, 0.0, 1.0), site_of(20, 5.0, 3.0)
    first = fit_sites((a | b).__getitem__, {"a": list(a), "b": list(b)}, {})
    new = {"x": np.full(F, 1e3), "y": np.full(F, 2e3)}
    second = fit_sites((a | b | new).__getitem__, {"a": list(a), "b": list(b)}, {"new": ["x", "y"]})
    for site in ("a", "b"):
        np.testing.assert_array_equal(first[site], second[site])


def test_one_subject_does_not_make_a_site() -> None:
    a = site_of(20, 0.0, 1.0) | {"alone": np.zeros(F)}
    with pytest.raises(BadData, match=r"new \(1\)"):
        fit_sites(a.__getitem__, {"a": list(a)}, {"new": ["alone"]})


def test_covariates_are_removed_exactly_where_the_effect_is_linear() -> None:
    slopes = RNG.normal(size=(2, F))
    rows = [{"subject": str(i), "age": str(20 + i), "sex": "FM"[i % 2]} for i in range(30)]
    base = np.ones(F)
    features = np.stack([base + slopes[0] * float(r["age"]) + slopes[1] * (r["sex"] == "M") for r in rows])
    harmonisation = Harmonisation(covariates=Covariates.fit(rows, {"age": {}, "sex": SEX}, features))
    after = np.stack([mapped(harmonisation.scale(r), x) for r, x in zip(rows, features, strict=True)])
    np.testing.assert_allclose(after, np.broadcast_to(after[0], after.shape), atol=1e-8)


def test_slopes_that_are_noise_are_not_removed() -> None:
    """Errors of many slopes would be a shortcut: features that know nothing of age would tell old from young."""
    rng = np.random.default_rng(1)
    rows = [{"subject": str(i), "age": 50 + i} for i in range(30)]
    noise = rng.normal(size=(30, 400))
    ages = np.arange(30.0) - 14.5
    plain = ages @ noise / (ages @ ages)
    shrunk = Covariates.fit(rows, {"age": {}}, noise).effect[0]
    assert np.abs(shrunk).mean() < 0.2 * np.abs(plain).mean()
    real = noise + 0.5 * ages[:, None]
    np.testing.assert_allclose(Covariates.fit(rows, {"age": {}}, real).effect[0], plain + 0.5, rtol=0.02)


def test_a_missing_covariate_is_named() -> None:
    rows = [{"subject": str(i), "age": i} for i in range(6)]
    covariates = Covariates.fit(rows, {"age": {}}, np.zeros((6, F)))
    with pytest.raises(BadData, match="subject s9: no usable value of 'age'"):
        covariates.of({"subject": "s9", "age": "n/a"})


def test_it_is_stored_as_arrays() -> None:
    rows = [{"subject": str(i), "age": i, "sex": "FM"[i % 2]} for i in range(6)]
    covariates = Covariates.fit(rows, {"age": {}, "sex": SEX}, RNG.normal(size=(6, F)))
    scales = {"a": (RNG.normal(size=F), np.ones(F)), "": (np.zeros(F), np.full(F, 2.0))}
    before = Harmonisation("site", scales, covariates)
    after = Harmonisation.from_stored(before.for_json(), before.tensors())
    for row in (rows[0] | {"site": "a"}, rows[1] | {"site": "unknown"}):
        np.testing.assert_array_equal(before.scale(row), after.scale(row))
