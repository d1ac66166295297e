"""Artefacts are no leak: cohorts with electrode pops, drifts and line noise pass, and copies in them are found."""

from __future__ import annotations

import numpy as np
import pytest

from bridgemil.audit import AuditInput, audit, same_signal
from bridgemil.audit.resemblance import (
    SAME_PIECE,
    referenced_to_median,
    shared,
    window_correlation,
    without_artefacts,
)
from leaky import cleaned_again, made, signals, with_artefacts


def _headset(n: int = 97, seconds: int = 60, seed: int = 3) -> dict[str, np.ndarray]:
    """14 electrodes at 128 Hz; the first person has four seconds of pops of 7 mV."""
    return with_artefacts(signals(n, n_channels=14, seconds=seconds, sfreq=128.0, seed=seed), sfreq=128.0, seed=seed)


def test_a_headsets_electrode_pops_are_no_duplicate_signals() -> None:
    (finding,) = same_signal.check(AuditInput(made(_headset(), sfreq=128.0, n_times=128)))
    assert finding.status == "PASS", finding
    assert "Not detected: shared stretches under about 12 s" in finding.message


@pytest.mark.parametrize("seed", range(10))
def test_ten_clean_cohorts_with_artefacts_do_not_fail(seed: int) -> None:
    n_channels, sfreq = (2, 6, 14, 19, 32)[seed % 5], (128.0, 200.0, 250.0)[seed % 3]
    people = signals(20 + seed, n_channels=n_channels, seconds=20 + 5 * seed, sfreq=sfreq, seed=100 + seed)
    noisy = with_artefacts(people, sfreq=sfreq, pops=1 + seed, seed=seed)
    assert max(np.abs(signal).max() for signal in noisy.values()) > 2000
    looked = audit(made(noisy, sfreq=sfreq, n_times=round(sfreq)))
    assert looked.failed == []
    assert looked.named("same_signal")[0].status == "PASS"


def test_one_recording_cleaned_twice_is_found_among_pops() -> None:
    """28 s of the second id are 28 s of the first, 1.00 s later and with a correlation of .88 to .95."""
    people = _headset(24, seconds=120)
    again = cleaned_again(signals(24, n_channels=14, seconds=120, sfreq=128.0, seed=3)["sub-11"], 128.0)
    part = slice(40 * 128, 68 * 128)
    people["sub-05"][:, part] = again[:, part]
    (finding,) = same_signal.check(AuditInput(made(people, sfreq=128.0, n_times=128)))
    assert finding.status == "FAIL"
    (copy,) = finding.numbers["copies"]
    assert (copy["first"], copy["second"]) == ("sub-05", "sub-11")
    assert copy["offset"] == pytest.approx(-1.0, abs=0.02)
    assert 20 <= copy["seconds"] <= 30
    assert 0.8 < copy["r"] < 0.97


def test_a_correlation_rests_on_most_channels_and_not_on_a_pop() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 10, (2, 8, 400)).cumsum(axis=-1).astype(np.float32) / 5
    popped = [signal.copy() for signal in (a, b)]
    for signal in popped:
        signal[:3, 200:230] += 5000
    assert abs(window_correlation(*popped, 200.0)) < 0.5
    assert window_correlation(a, -2 * a + 50 * b[:1], 200.0) < -0.99, "scale, sign and reference do not matter"
    partly = a.copy()
    partly[:3] = b[:3]
    assert window_correlation(a, partly, 200.0) > SAME_PIECE, "three of eight channels were replaced"
    partly[:6] = b[:6]
    assert abs(window_correlation(a, partly, 200.0)) < 0.5, "six were"


@pytest.mark.parametrize(("seconds", "expected"), [(60, 0.0), (7, 6.0)])
def test_few_pieces_that_agree_are_enough_of_a_short_recording_only(seconds: int, expected: float) -> None:
    people = signals(2, seconds=seconds, seed=5)
    one, two = people["sub-01"], people["sub-02"]
    two[:, :1200] = one[:, :1200]
    channels = list(range(len(one)))
    cleaned = [without_artefacts(referenced_to_median(signal, channels), 200.0) for signal in (one, two)]
    assert shared(*cleaned, 0.0, 200.0)[0] == expected
