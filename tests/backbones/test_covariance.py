"""The covariance front end against a plain computation, and what it must not depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pyriemann.geometry.base import logm
from pyriemann.geometry.tangentspace import tangent_space, upper

from bridgemil import backbones
from bridgemil.backbones.covariance import BANDS, Covariance, FrontEnd
from bridgemil.backbones.electrodes import check_windows, thin
from bridgemil.cohort.channels import ADFTD_ORDER, electrode
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.sources import rockhill2021
from bridgemil.errors import BadData, BadUse

HIGH_DENSITY = tuple(
    "Fp1 Fpz Fp2 AF7 AF3 AFz AF4 AF8 F7 F5 F3 F1 Fz F2 F4 F6 F8 FT7 FC5 FC3 FC1 FCz FC2 FC4 FC6 FT8 T7 C5 C3 C1 Cz C2 "
    "C4 C6 T8 TP7 CP5 CP3 CP1 CPz CP2 CP4 CP6 TP8 P9 P7 P5 P3 P1 Pz P2 P4 P6 P8 P10 PO7 PO3 POz PO4 PO8 O1 Oz O2 "
    "Iz".split()
)


def front(
    channels: Sequence[str] | int, n_times: int, sfreq: float = 200.0, reference: str = "average", **more: Any
) -> FrontEnd:
    """The front end for these electrodes, or so many."""
    names = [f"channel {i + 1}" for i in range(channels)] if isinstance(channels, int) else channels
    return FrontEnd(Signal(tuple(names), sfreq, n_times, **more), reference)


def eeg(n: int, n_channels: int, n_times: int = 200, seed: int = 0, rhythm: float = 30.0) -> NDArray[np.float32]:
    """Windows in microvolt: shared sources of falling spectrum, a rhythm, a little noise of each channel's own."""
    rng = np.random.default_rng(seed)
    sources = np.cumsum(rng.normal(0, 3, (n, 6, n_times)), axis=2)
    mixed = np.einsum("cs,nst->nct", rng.normal(0, 1, (n_channels, 6)), sources)
    alpha = rhythm * np.sin(2 * np.pi * 10 * np.arange(n_times) / 200 + rng.uniform(0, 6, (n, 1, 1)))
    strengths = rng.uniform(0, 1, n_channels)[:, None]
    return (mixed + strengths * alpha + rng.normal(0, 2, (n, n_channels, n_times))).astype(np.float32)


def plain_features(windows: NDArray[np.float32], sfreq: float = 200.0) -> NDArray[np.float64]:
    """The front end in plain numpy, window by window, its logarithms and vectors by pyRiemann."""
    n_channels, n_times = windows.shape[1:]
    frequency = np.arange(n_times // 2 + 1) * sfreq / n_times
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_times) / n_times)
    rows = []
    for window in windows.astype(np.float64):
        if n_channels > 1:
            window = window - window.mean(axis=0)
        spectrum = np.fft.rfft((window - window.mean(axis=1, keepdims=True)) * taper)
        vectors, powers = [], []
        for low, high in BANDS:
            x = spectrum[:, (frequency >= low) & (frequency < high)]
            cross = (x @ x.conj().T).real
            shrunk = 0.9 * cross / (np.trace(cross) / n_channels) + 0.1 * np.eye(n_channels)
            vector = upper(logm(shrunk))
            # that is the tangent vector at the identity
            np.testing.assert_allclose(tangent_space(shrunk[None], np.eye(n_channels))[0], vector, atol=1e-10)
            vectors.append(vector)
            powers.append(np.diag(cross))
        shares = np.array(powers) / np.sum(powers, axis=0)
        rows.append(np.concatenate([*vectors, np.log(shares).ravel()]))
    return np.array(rows)


@pytest.mark.parametrize(("n_channels", "n_times"), [(19, 200), (32, 200), (5, 400), (19, 250), (1, 200)])
def test_equal_to_a_plain_computation(n_channels: int, n_times: int) -> None:
    windows = eeg(7, n_channels, n_times)
    front_end = front(n_channels, n_times)
    features = front_end(torch.from_numpy(windows))
    assert features.dtype == torch.float32
    assert features.shape == (7, front_end.dim)
    np.testing.assert_allclose(features.numpy(), plain_features(windows), atol=2e-5)


def test_the_parts_and_their_names() -> None:
    front_end = front(ADFTD_ORDER, 200)
    names = front_end.names
    assert (front_end.dim, len(names)) == (6 * 190 + 6 * 19, front_end.dim)
    assert {name.kind for name in names[front_end.covariance]} == {"covariance"}
    assert {name.kind for name in names[front_end.power]} == {"power"}
    assert names[1] == ("covariance", "1-4 Hz", "Fp1", "Fp2")
    assert names[-1] == ("power", "30-45 Hz", "O2", "O2")

    windows = np.random.default_rng(0).normal(0, 1, (50, 19, 200)).astype(np.float32)
    rhythm = 20 * np.sin(2 * np.pi * 10 * np.arange(200) / 200)
    windows[:, [3, 12]] += rhythm.astype(np.float32)  # F3 and T5 share an alpha rhythm
    mean = front_end(torch.from_numpy(windows)).mean(dim=0)
    pairs = [i for i, name in enumerate(names) if name.kind == "covariance" and name.first != name.second]
    strongest = max(pairs, key=lambda i: float(mean[i]))
    assert names[strongest] == ("covariance", "8-13 Hz", "F3", "T5")
    powers = range(front_end.power.start, front_end.power.stop)
    highest = sorted(powers, key=lambda i: float(mean[i]))[-2:]
    assert {names[i][1:3] for i in highest} == {("8-13 Hz", "F3"), ("8-13 Hz", "T5")}


def test_scale_offset_and_the_other_windows_change_nothing() -> None:
    windows = torch.from_numpy(eeg(6, 19))
    front_end = front(19, 200)
    features = front_end(windows)
    for changed in (windows * 1e-3, windows * 1e6, windows * -1):
        torch.testing.assert_close(front_end(changed), features, rtol=0, atol=2e-5)
    torch.testing.assert_close(front_end(windows + 100), features, rtol=0, atol=2e-3)  # float32 rounds the sum
    alone = torch.cat([front_end(window[None]) for window in windows])
    torch.testing.assert_close(alone, features, rtol=0, atol=1e-6)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = torch.from_numpy(eeg(20, 4))
    whole = front(4, 200)(windows)
    monkeypatch.setattr("bridgemil.backbones.covariance.BLOCK", 7)
    torch.testing.assert_close(front(4, 200)(windows), whole, rtol=0, atol=1e-6)


def test_permuted_channels_permute_the_features() -> None:
    windows = torch.from_numpy(eeg(3, 19))
    order = np.random.default_rng(0).permutation(19)
    straight, permuted = front(ADFTD_ORDER, 200), front([ADFTD_ORDER[i] for i in order], 200)
    features, changed = straight(windows), permuted(windows[:, order])
    place = {(n.kind, n.band, frozenset((n.first, n.second))): i for i, n in enumerate(permuted.names)}
    same = [place[n.kind, n.band, frozenset((n.first, n.second))] for n in straight.names]
    torch.testing.assert_close(changed[:, same], features, rtol=0, atol=1e-5)


def test_deficient_rank_works() -> None:
    windows = eeg(5, 19)
    referenced = windows - windows.mean(axis=1, keepdims=True)
    features = front(19, 200)(torch.from_numpy(referenced))
    np.testing.assert_allclose(features.numpy(), plain_features(referenced), atol=2e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 1234.567])
def test_windows_and_channels_without_signal_give_numbers(value: float) -> None:
    windows = torch.from_numpy(eeg(3, 4))
    windows[1] = value
    windows[2, 0] = value
    front_end = front(4, 200)
    features = front_end(windows)
    assert features.isfinite().all()
    assert (features[1, front_end.covariance] == 0).all()
    torch.testing.assert_close(features[1, front_end.power], torch.full((24,), -np.log(6)).float())
    windows[0, 2, 5] = float("nan")
    with pytest.raises(BadData, match="window 0 holds values that are not finite"):
        front_end(windows)


@pytest.mark.parametrize("n_channels", [5, 19, 32, 64])
def test_features_do_not_depend_on_the_recording_reference(n_channels: int) -> None:
    windows = eeg(6, n_channels)
    front_end = front(HIGH_DENSITY[:n_channels], 200)
    expected = front_end(torch.from_numpy(windows)).numpy()
    references = {
        "an electrode": windows[:, [2]],
        "two electrodes": windows[:, [0, 3]].mean(axis=1, keepdims=True),
        "the average": windows.mean(axis=1, keepdims=True),
        "an electrode off the head": eeg(6, 1, seed=9),
    }
    for name, reference in references.items():
        features = front_end(torch.from_numpy(windows - reference)).numpy()
        np.testing.assert_allclose(features, expected, atol=2e-4, err_msg=name)
    recorded = front(HIGH_DENSITY[:n_channels], 200, reference="recorded")
    assert np.abs(recorded(torch.from_numpy(windows)).numpy() - expected).max() > 0.1
    with pytest.raises(BadUse, match="reference must be one of average, recorded; got 'averge'; did you mean average"):
        front(5, 200, reference="averge")


def test_bands_that_rate_or_window_do_not_hold_are_left_out_and_listed() -> None:
    assert front(3, 200, 200.0, native_sfreq=90.0).left_out == {}
    front_end = front(3, 200, 200.0, native_sfreq=50.0)
    assert front_end.left_out == {"30-45 Hz": "recordings made at 50 Hz hold nothing above 25 Hz"}
    assert front_end.bands[-1] == (20, 25), "narrowed to what is held"
    front_end = front(3, 200, 200.0, native_sfreq=48.0)
    assert list(front_end.left_out) == ["20-30 Hz", "30-45 Hz"]
    windows = eeg(2, 3)
    kept = [i for i, name in enumerate(front(3, 200).names) if name.band not in front_end.left_out]
    expected = plain_features(windows)[:, kept][:, front_end.covariance]
    np.testing.assert_allclose(front_end(torch.from_numpy(windows))[:, front_end.covariance], expected, atol=2e-5)
    assert front(3, 50, 200.0).left_out == {"1-4 Hz": "the spectrum of a window of 0.25 s has no frequency in it"}
    with pytest.raises(BadData, match=r"hold nothing above 1 Hz.* higher rate, a wider band-pass or longer windows$"):
        front(3, 200, 2.0)


def test_bands_that_the_filters_removed_are_no_features() -> None:
    front_end = front(3, 200, low=0.5, high=20.0)
    assert front_end.left_out == dict.fromkeys(["20-30 Hz", "30-45 Hz"], "the low-pass at 20 Hz removed it")
    assert {name.band for name in front_end.names} == {"1-4 Hz", "4-8 Hz", "8-13 Hz", "13-20 Hz"}
    windows = torch.from_numpy(eeg(2, 3))
    residue = torch.zeros_like(windows)
    residue[:, 0] = torch.sin(2 * np.pi * 25 * torch.arange(200) / 200)
    torch.testing.assert_close(front_end(windows + residue), front_end(windows), atol=1e-4, rtol=1e-4)


def test_the_key_says_what_decides_the_features() -> None:
    keys = [
        json.dumps(front_end.key)
        for front_end in (
            front(19, 200),
            front(19, 400),
            front(18, 200),
            front(19, 200, 250.0),
            front(19, 200, native_sfreq=50.0),
            front(19, 200, high=40.0),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert json.dumps(front(ADFTD_ORDER, 200, native_sfreq=500.0, low=0.5, high=45.0).key) == keys[0]


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(BadUse, match="for windows of 3 x 200, got 2 x 4 x 200"):
        front(3, 200)(torch.zeros(2, 4, 200))


def test_high_density_is_thinned_by_name() -> None:
    kept = [HIGH_DENSITY[i] for i in thin(HIGH_DENSITY)]
    assert len(HIGH_DENSITY) == 64
    assert len(kept) == 32
    assert {electrode(name) for name in ADFTD_ORDER} <= set(kept)
    assert {"Iz", "P9", "P10"} <= set(kept)  # the rim lies far from the 10-20 sites
    backwards = HIGH_DENSITY[::-1]
    assert {backwards[i] for i in thin(backwards)} == set(kept)
    spelled = [f"EEG {name.upper()}-Ref" for name in HIGH_DENSITY]
    assert thin(spelled) == thin(HIGH_DENSITY)
    assert thin(rockhill2021.SETTINGS.channels) == tuple(range(32))

    windows = eeg(4, 64)
    front_end = front(HIGH_DENSITY, 200)
    assert list(front_end.electrodes) == kept
    np.testing.assert_allclose(
        front_end(torch.from_numpy(windows)), plain_features(windows[:, list(thin(HIGH_DENSITY))]), atol=2e-5
    )


def test_thinning_without_known_names_is_even() -> None:
    unknown = [f"E{i + 1}" for i in range(128)]
    kept = thin(unknown)
    assert len(kept) == 32
    assert (kept[0], kept[-1]) == (0, 127)
    assert set(np.diff(kept)) == {4, 5}
    mixed = [*ADFTD_ORDER, *unknown]
    assert set(range(19)) < set(thin(mixed))
    assert len(thin(mixed)) == 32
    no_first = [name for name in HIGH_DENSITY if name not in {electrode(n) for n in ADFTD_ORDER}]
    assert len(thin(no_first, 10)) == 10
    assert len(front(40, 200).electrodes) == 32


def test_channels_that_cannot_be_told_apart_are_named() -> None:
    names = ("Fz", "Cz", "Pz", "Oz")
    windows = eeg(9, 4)
    check_windows(windows, names)
    flat, twice, broken = windows.copy(), windows.copy(), windows.copy()
    flat[:, 2] = 7
    with pytest.raises(BadData, match=r"channel Pz is constant over the whole bag; .*--bad-channels drop"):
        check_windows(flat, names)
    with pytest.raises(BadData, match="channel Pz is constant"):
        check_windows(flat, names, "average")
    reference = windows - windows[:, [1]]
    check_windows(reference, names, "average")
    with pytest.raises(BadData, match="channel Cz is constant"):
        check_windows(reference, names)
    twice[:, 3] = twice[:, 0]
    with pytest.raises(BadData, match="channels Fz and Oz hold the same signal"):
        check_windows(twice, names)
    twice[4, 3, 5] += 1
    check_windows(twice, names)
    flat[0, 2, 0] = 8
    check_windows(flat, names)
    broken[3, 1, 1] = np.inf
    with pytest.raises(BadData, match="channel Cz holds values that are not finite"):
        check_windows(broken, names)
    with pytest.raises(BadUse, match="windows x 3 channels x time, got 9 x 4 x 200"):
        check_windows(windows, names[:3])


def test_the_backbone_reads_windows_and_features_alike() -> None:
    torch.manual_seed(0)
    backbone = Covariance(19, 200)
    windows = torch.from_numpy(eeg(16, 19))
    features = backbone.front_end(windows)
    assert backbone.embedding_dim == 64
    backbone(features).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())
    backbone.eval()
    torch.testing.assert_close(backbone(windows), backbone(features))
    assert backbone(windows[:0]).shape == (0, 64)
    assert backbones.create_head("covariance", 64, 3)(backbone(windows)).shape == (16, 3)
    assert sum(p.numel() for p in backbone.parameters()) == 1254 * 64 + 64


def test_the_state_dict_holds_what_was_learnt_only() -> None:
    backbone = Covariance(5, 200, embedding=8)
    expected = ["linear.bias", "linear.weight", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    assert sorted(backbone.state_dict()) == expected
    fresh = Covariance(5, 200, embedding=8)
    fresh.load_state_dict(backbone.state_dict())
    windows = torch.from_numpy(eeg(4, 5))
    torch.testing.assert_close(fresh.eval()(windows), backbone.eval()(windows))


def test_autocast_and_other_precisions_leave_the_front_end_exact() -> None:
    backbone = Covariance(5, 200)
    windows = torch.from_numpy(eeg(8, 5))
    exact = backbone.front_end(windows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(backbone.front_end(windows), exact)
        assert backbone(windows).isfinite().all()
    double = Covariance(5, 200).double()
    assert torch.equal(double.front_end(windows), exact)
    assert double(windows).dtype == torch.float64


def test_threads_are_left_as_they_were_and_change_nothing() -> None:
    windows, threads = torch.from_numpy(eeg(8, 19)), torch.get_num_threads()
    results = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(front(19, 200)(windows))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_created_by_name_with_its_options() -> None:
    assert "covariance" in backbones.names()
    backbone = backbones.create("covariance", 4, 200, native_sfreq=48.0, channels=["Fz", "Cz", "Pz", "Oz"])
    assert backbone.front_end.electrodes == ("Fz", "Cz", "Pz", "Oz")
    assert backbones.create_head("covariance", 64, 2)(torch.zeros(1, 64)).shape == (1, 2)
    with pytest.raises(BadUse, match="2 channel names for 4 channels"):
        backbones.create("covariance", 4, 200, channels=["Fz", "Cz"])
