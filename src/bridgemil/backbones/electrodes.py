"""Electrodes of a montage: which ones a covariance is made of, and whether their signals can be told apart.

A covariance of C electrodes has C (C + 1) / 2 numbers, so a high-density montage is thinned first. The rule looks at
names only, never at signals, so every subject of every fold keeps the same electrodes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.channels import ADFTD_ORDER, electrode, template
from bridgemil.errors import BadData, BadUse

MOST = 32  # electrodes that a covariance is made of
_FIRST = [electrode(name) for name in ADFTD_ORDER]  # the 19 sites of the 10-20 system


def thin(channels: Sequence[str], most: int = MOST) -> tuple[int, ...]:
    """The electrodes to keep of a montage, at most ``most``, as indices in rising order.

    The 10-20 sites come first; then, again and again, the electrode that lies farthest from all that were kept, by the
    standard 10-05 positions. Where the names of fewer than ``most`` electrodes are known, the others fill up, evenly
    spaced by index. The order of the channels does not change which known electrodes are kept.
    """
    if len(channels) <= most:
        return tuple(range(len(channels)))
    names = [(electrode(name) or "").lower() for name in channels]
    places = {i: _positions()[name] for i, name in enumerate(names) if name in _positions()}
    first = [i for i in places if electrode(channels[i]) in _FIRST]
    kept = sorted(first, key=lambda i: _FIRST.index(electrode(channels[i])))[:most]
    rest = sorted(set(places) - set(kept), key=lambda i: electrode(channels[i]) or "")  # a tie goes by name
    if not kept and rest:
        middle = _positions()["cz"]
        kept = [rest.pop(int(np.argmin([np.linalg.norm(places[i] - middle) for i in rest])))]
    while rest and len(kept) < most:
        distances = [min(float(np.linalg.norm(places[i] - places[j])) for j in kept) for i in rest]
        kept.append(rest.pop(int(np.argmax(distances))))
    nameless = [i for i in range(len(channels)) if i not in places]
    spaced = np.linspace(0, len(nameless) - 1, min(most - len(kept), len(nameless))).round().astype(int)
    return tuple(sorted([*kept, *(nameless[i] for i in spaced)]))


def check_windows(windows: NDArray[np.float32], channels: Sequence[str], reference: str = "recorded") -> None:
    """Refuse a bag (windows x channels x time) whose covariance would mean nothing.

    That is one with values that are not finite, with a channel that is constant over the whole bag, or with two
    channels that are the same over the whole bag (a lead stored twice, or a copy written in place of a bad one). With
    the average reference one channel of zeros, the electrode that is itself the reference, is allowed: it is recovered.
    """
    if windows.ndim != 3 or windows.shape[1] != len(channels) or not windows.size:
        raise BadUse(f"expected windows x {len(channels)} channels x time, got {' x '.join(map(str, windows.shape))}")
    lowest, highest = windows.min(axis=(0, 2)), windows.max(axis=(0, 2))
    constant = lowest == highest
    if reference == "average" and constant.sum() == 1 < len(channels) and lowest[constant][0] == 0:
        constant[:] = False
    broken = {"holds values that are not finite": ~(np.isfinite(lowest) & np.isfinite(highest))}
    for what, bad in (broken | {"is constant over the whole bag": constant}).items():
        if bad.any():
            names = ", ".join(name for name, is_bad in zip(channels, bad, strict=True) if is_bad)
            raise BadData(
                f"channel {names} {what}; prepare the cohort without it (--channels, or --bad-channels drop), "
                f"or without this recording"
            )
    for first, second in combinations(range(len(channels)), 2):
        if lowest[first] == lowest[second] and np.array_equal(windows[:, first], windows[:, second]):
            raise BadData(
                f"channels {channels[first]} and {channels[second]} hold the same signal over the whole bag; "
                f"prepare the cohort without one of them (--channels), or without this recording"
            )


@functools.cache
def _positions() -> dict[str, NDArray[np.float64]]:
    """Where the electrodes of the 10-05 system lie on the standard head, in metres."""
    places = template().get_positions()["ch_pos"]
    return {name.lower(): np.asarray(place, dtype=np.float64) for name, place in places.items()}
