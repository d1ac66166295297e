from __future__ import annotations

import mne
import numpy as np
import pytest

from bridgemil.cohort.preprocessing import _band_pass, _needs_pieces
from recordings import MONTAGE, noise


def raw_of(data: np.ndarray, sfreq: float) -> mne.io.BaseRaw:
    return mne.io.RawArray(data * 1e-6, mne.create_info(list(MONTAGE), sfreq, "eeg"), verbose="ERROR")


@pytest.mark.parametrize("sfreq", [95, 256, 500, 512])
@pytest.mark.parametrize("band", [(0.5, 45), (0.3, 40), (None, 40), (1, None)])
@pytest.mark.parametrize("seconds", [3, 15.3, 61])
@pytest.mark.filterwarnings("ignore:filter_length.*longer than the signal")
def test_band_pass_is_mnes(sfreq: float, band: tuple[float | None, float | None], seconds: float) -> None:
    data = noise(1, seconds, sfreq) + np.linspace(-4000, 30000, round(seconds * sfreq))  # drift and offset
    ours, theirs = raw_of(data, sfreq), raw_of(data, sfreq)
    _band_pass(ours, *band)
    theirs.filter(*band, verbose="ERROR")
    np.testing.assert_allclose(ours.get_data() * 1e6, theirs.get_data() * 1e6, atol=1e-6, rtol=0)


def test_joined_recordings_are_left_to_mne() -> None:
    raw = raw_of(noise(1, 20, 250), 250)
    assert not _needs_pieces(raw)
    raw.set_annotations(mne.Annotations([3, 10], [1, 0], ["BAD_eyes", "EDGE boundary"]))
    assert _needs_pieces(raw)
