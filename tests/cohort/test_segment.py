"""Filtering and resampling against MNE's own steps."""

from __future__ import annotations

from pathlib import Path

import mne
import numpy as np
import pytest

from bridgemil.cohort import filters
from bridgemil.cohort.filters import Grid, filter_and_resample, kernel
from bridgemil.cohort.scan import RecordingScan
from bridgemil.cohort.segment import SegmentPlan, _is_joined, preprocess
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources import Recording
from recordings import MONTAGE, noise


def raw_of(data: np.ndarray, sfreq: float) -> mne.io.BaseRaw:
    return mne.io.RawArray(data * 1e-6, mne.create_info(list(MONTAGE), sfreq, "eeg"), verbose="ERROR")


def test_joined_recordings_are_left_to_mne() -> None:
    raw = raw_of(noise(1, 20, 250), 250)
    assert not _is_joined(raw)
    raw.set_annotations(mne.Annotations([3, 10], [1, 0], ["BAD_eyes", "EDGE boundary"]))
    assert _is_joined(raw)


def test_recordings_in_several_files_are_left_to_mne(tmp_path: Path) -> None:
    raw = raw_of(noise(1, 20, 250), 250)
    raw.append(raw_of(noise(2, 20, 250), 250))
    raw.set_annotations(None)
    assert len(raw.filenames) == 2
    assert _is_joined(raw)


def like_eeg(seed: int, n: int) -> np.ndarray:
    """Microvolts: slow drift, rhythms and noise, an offset of 8 mV, and jumps at both ends where edges would show."""
    rng = np.random.default_rng(seed)
    data = np.cumsum(rng.normal(0, 2, (len(MONTAGE), n)), axis=1) + rng.normal(0, 15, (len(MONTAGE), n))
    data += np.linspace(-2000, 8000, n)
    data[:, :40] += 300
    data[:, -25:] -= 500
    return data


BANDS = [(0.5, 45.0, ()), (0.3, 40.0, ()), (1.0, None, ()), (0.5, 30.0, (20.0,)), (0.5, 44.0, (16.0, 40.0))]


@pytest.mark.parametrize("band", BANDS, ids=str)
@pytest.mark.parametrize(
    ("sfreq", "n"),
    [(500, 75000), (500, 55001), (256, 50001), (256, 38400), (512, 51200), (512, 45003), (95, 12000), (95, 11401)],
)
def test_one_transform_is_mnes_steps_to_a_thousandth_of_a_microvolt(sfreq: int, n: int, band: tuple) -> None:
    low, high, notch = band
    raw = raw_of(like_eeg(n, n), sfreq)
    taps, grid = kernel(sfreq, low, high, notch), Grid.plan(n, sfreq, 200)
    assert grid.has_room(len(taps) // 2)
    ours = filter_and_resample(raw.get_data(), taps, grid, scale=1e6)
    raw.filter(low, high, verbose="ERROR")
    if notch:
        raw.notch_filter(notch, verbose="ERROR")
    theirs = raw.resample(200, verbose="ERROR").get_data() * 1e6
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-3, rtol=0)


def test_the_seam_is_what_keeps_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the ringing of MNE's step at the seam the edges would be off: the correction is no ornament."""
    n, sfreq = 63000, 500  # 1268 samples of continuation: a short way to the seam
    raw = raw_of(like_eeg(3, n), sfreq)
    taps, grid = kernel(sfreq, 1.0, 45.0), Grid.plan(n, sfreq, 200)
    assert grid.has_room(len(taps) // 2)
    whole = filter_and_resample(raw.get_data(), taps, grid, scale=1e6)
    theirs = raw.filter(1.0, 45.0, verbose="ERROR").resample(200, verbose="ERROR").get_data() * 1e6
    np.testing.assert_allclose(whole, theirs, atol=1e-3, rtol=0)
    monkeypatch.setattr(filters, "_seam_difference", lambda *_: np.zeros((1, len(taps) - 1)))
    raw = raw_of(like_eeg(3, n), sfreq)
    without = filter_and_resample(raw.get_data(), taps, grid, scale=1e6)
    assert np.abs(without - theirs).max() > 1e-3


@pytest.mark.parametrize(("seconds", "joined"), [(5.0, False), (30.7, False), (30.7, True), (64.9, False)])
@pytest.mark.parametrize("sfreq", [95, 200, 256, 500])
@pytest.mark.filterwarnings("ignore:filter_length.*longer than the signal")
def test_whatever_the_way_the_result_is_mnes(sfreq: int, seconds: float, joined: bool) -> None:
    """Too short, joined, of the rate already, or all in one transform: ``preprocess`` gives MNE's signal."""
    data = like_eeg(7, round(seconds * sfreq))
    raws = [raw_of(data, sfreq) for _ in range(2)]
    if joined:
        for raw in raws:
            raw.set_annotations(mne.Annotations([11], [0], ["EDGE boundary"]))
    spellings = {name: name for name in MONTAGE}
    scan = RecordingScan(Recording("s", Path("s.edf"), "s.edf"))
    plan = SegmentPlan(scan, PrepareSettings(), spellings, (), {}, (), 45.0, (20.0,))
    ours = preprocess(raws[0], plan)
    theirs = raws[1].filter(0.5, 45, verbose="ERROR").notch_filter([20.0], verbose="ERROR")
    theirs = theirs.resample(200, verbose="ERROR").get_data() * 1e6
    np.testing.assert_allclose(ours, theirs, atol=1e-3, rtol=0)
