"""The out-of-distribution test: independent of gain, and at every length of a recording as strict as it says."""

from __future__ import annotations

import numpy as np
import pytest

from bridgemil.bundle.novelty import (
    LENGTHS,
    Distance,
    NoveltyModel,
    WindowFeatures,
    leave_out,
    make_reference,
    window_features,
)
from bridgemil.cohort.signal import CLINICAL_BANDS, Signal, held_bands
from people import people
from recordings import MONTAGE, noise


def test_distances_are_of_subjects_who_had_no_part_in_the_fit() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 30)) @ rng.normal(size=(30, 30))
    new = rng.normal(size=(400, 30)) @ rng.normal(size=(30, 30))
    left_out = [Distance.fit(np.delete(features, i, axis=0))(features[i : i + 1])[0] for i in range(60)]
    whole = Distance.fit(features)
    assert np.mean(left_out) > whole(features).mean(), "who was in the fit looks nearer than a new subject"
    assert whole(new).mean() > np.mean(left_out)


@pytest.mark.parametrize("n", [1, 7, 250])
def test_every_subject_is_left_out_once_and_never_in_its_own_fit(n: int) -> None:
    pairs = list(leave_out(n))
    assert sorted(i for _, who in pairs for i in who) == list(range(n))
    assert len(pairs) <= 100
    assert all(not set(rest) & set(who) and len(rest) + len(who) == n for rest, who in pairs)


def subject(rng: np.random.Generator, n: int, noise_level: float = 3.0) -> WindowFeatures:
    """Windows that scatter about the subject's own features: the fewer are averaged, the farther the mean is."""
    own = rng.normal(size=(4, 5))
    power = own + noise_level * rng.normal(size=(n, 4, 5))
    deviation = np.exp(0.2 * rng.normal(size=4) + 0.5 * rng.normal(size=(n, 4)))
    coupling = 0.1 * rng.normal(size=4) + 0.3 * rng.normal(size=(n, 4))
    return WindowFeatures(power, deviation, coupling, np.ones((n, 5)))


@pytest.fixture(scope="module")
def novelty() -> NoveltyModel:
    rng = np.random.default_rng(1)
    subjects = [subject(rng, 200) for _ in range(80)]
    return NoveltyModel.fit([each.segments() for each in subjects], [200] * 80)


@pytest.mark.parametrize("n", [6, 10, 14, 40, 120, 200])
def test_subjects_of_the_same_cohort_are_flagged_at_the_stated_rate_at_every_length(
    novelty: NoveltyModel, n: int
) -> None:
    rng = np.random.default_rng(n)
    percentiles = np.array([novelty.percentile(subject(rng, n).vector, n) for _ in range(400)])
    assert 0.01 < (percentiles > 95).mean() < 0.11
    assert abs((percentiles > 50).mean() - 0.5) < 0.12
    if n <= 14:
        whole = np.array([novelty.percentile(subject(rng, n).vector, 200) for _ in range(200)])
        assert (whole > 95).mean() > 0.3, "judged as a whole recording, a short one would be flagged"


def test_lengths_are_those_that_half_of_the_subjects_have() -> None:
    rng = np.random.default_rng(2)
    counts = [8, 9, 25, 40, 70, 130]
    model = NoveltyModel.fit([subject(rng, n).segments() for n in counts], counts)
    assert model.lengths.tolist() == [5, 10, 20, 30, 32.5]
    assert np.all(np.diff(model.quantiles, axis=1) >= 0)
    longest = subject(rng, 500).vector
    assert model.percentile(longest, 500) == model.percentile(longest, 33)


def test_segments_are_contiguous_windows_of_one_recording() -> None:
    windows = subject(np.random.default_rng(3), 25)
    segments = windows.segments()
    assert list(segments) == [0, *(length for length in LENGTHS if length <= 25)]
    np.testing.assert_allclose(segments[0][0], windows.vector)
    np.testing.assert_allclose(segments[10][0], windows.part(slice(0, 10)).vector)
    np.testing.assert_allclose(segments[10][-1], windows.part(slice(15, 25)).vector)
    assert len(segments[20]) == 1


def test_features_do_not_depend_on_gain() -> None:
    bag = noise(5, 20, 200).reshape(6, 20, 200).transpose(1, 0, 2).astype(np.float32)
    bands, _ = held_bands(CLINICAL_BANDS, Signal(MONTAGE, 200.0, 200, 250.0, 0.5, 45.0))
    plain, loud = (window_features(gain * bag, 200.0, bands) for gain in (1, 10))
    np.testing.assert_allclose(loud.vector, plain.vector, atol=1e-4)
    assert loud.spread == pytest.approx(10 * plain.spread, rel=1e-4)
    assert plain.power.shape == (20, 6, 5)
    np.testing.assert_allclose(np.exp(plain.power.mean(axis=0)).sum(axis=1), 1, atol=0.2)
    correlation = np.mean([np.corrcoef(window) for window in bag], axis=0)
    np.testing.assert_allclose(plain.coupling.mean(axis=0), (correlation.sum(axis=1) - 1) / 5, atol=1e-4)


def test_one_channel_and_a_constant_feature_are_no_trouble() -> None:
    cohort = people(8, n_channels=1)
    reference = make_reference(cohort)
    bag = cohort.windows("subject-001")
    features = window_features(bag, 200.0, reference.bands)
    assert 0 <= reference.percentile(features) <= 100
