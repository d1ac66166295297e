"""Which frequency bands windows hold: rates, filters, notches and the length of a window decide."""

from __future__ import annotations

import json

import pytest

from bridgemil.backbones.covariance import BANDS
from bridgemil.cohort.signal import CLINICAL_BANDS, Signal, band_name, held_bands

ALL = {band_name(band): band for band in BANDS}


def signal(
    native: float | None = 500.0, low: float | None = 0.5, high: float | None = 45.0, notch: float = 0
) -> Signal:
    return Signal(("Fz",), 200.0, 200, native, low, high, (notch,) if notch else ())


def test_the_usual_preparations_hold_every_band_as_it_is() -> None:
    for usual in (signal(), signal(256.0, 0.3, 75.0, 50.0), Signal(("Fz",), 200.0, 200)):
        for bands in (ALL, CLINICAL_BANDS):
            assert held_bands(bands, usual) == (bands, {})


@pytest.mark.parametrize(
    ("windows", "last", "left_out"),
    [
        (signal(high=20.0), (13, 20), ["20-30 Hz", "30-45 Hz"]),
        (signal(high=24.0), (13, 20), ["20-30 Hz", "30-45 Hz"]),
        (signal(high=25.0), (20, 25), ["30-45 Hz"]),
        (signal(high=40.0), (30, 40), []),
        (signal(native=64.0), (20, 30), ["30-45 Hz"]),
        (signal(low=6.0), (30, 45), ["1-4 Hz"]),
        (signal(low=6.1), (30, 45), ["1-4 Hz", "4-8 Hz"]),
        (signal(notch=25.0), (30, 45), []),
        (signal(notch=2.5), (30, 45), ["1-4 Hz"]),
    ],
)
def test_a_band_is_held_where_half_of_it_passes(
    windows: Signal, last: tuple[float, float], left_out: list[str]
) -> None:
    held, reasons = held_bands(ALL, windows)
    assert list(reasons) == left_out
    assert list(held.values())[-1] == last


def test_the_lowest_edge_gives_the_reason() -> None:
    gamma = {"gamma": (30.0, 45.0)}
    assert held_bands(gamma, signal(high=20.0))[1]["gamma"] == "the low-pass at 20 Hz removed it"
    assert "recordings made at 50 Hz" in held_bands(gamma, signal(native=50.0, high=28.0))[1]["gamma"]
    assert "the high-pass at 40 Hz" in held_bands(gamma, signal(low=40.0))[1]["gamma"]
    assert "the filters of the preparation" in held_bands(gamma, signal(low=34.0, high=40.0))[1]["gamma"]


def test_filters_are_kept_with_a_model() -> None:
    for windows in (signal(notch=50.0), Signal(("Fz",), 200.0, 200)):
        assert Signal.from_json(json.loads(json.dumps(windows.for_json()))) == windows
