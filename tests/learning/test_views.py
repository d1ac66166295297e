"""What SupCon and masked reconstruction do to windows before the encoder sees them."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from bridgemil.learning.objectives.masked import span_mask
from bridgemil.learning.objectives.supcon import augment


def runs(row: torch.Tensor) -> list[int]:
    return [len(list(group)) for hidden, group in itertools.groupby(row.tolist()) if hidden]


def test_two_spans_of_sixteen_in_every_channel_of_200_samples() -> None:
    torch.manual_seed(0)
    mask = span_mask(300, 4, 200)
    assert mask.shape == (300, 4, 200)
    assert (mask.sum(dim=2) == 32).all()
    assert {tuple(runs(row)) for row in mask.flatten(0, 1)} == {(16, 16), (32,)}
    assert not torch.equal(mask[:, 0], mask[:, 1])


def test_every_placement_is_equally_likely() -> None:
    torch.manual_seed(1)
    mask = span_mask(20_000, 1, 34)  # one span in 19 places
    starts = Counter(mask[:, 0].int().argmax(dim=1).tolist())
    assert set(starts) == set(range(19))
    assert max(starts.values()) < 1.2 * min(starts.values())


def test_short_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        span_mask(1, 1, 15)


def test_views_are_jittered_scaled_and_shifted_as_said() -> None:
    torch.manual_seed(2)
    n, n_times = 4000, 200
    ramp = torch.arange(n_times, dtype=torch.float64).expand(n, 2, n_times).clone()
    torch.manual_seed(3)
    view = augment(ramp)
    spread = ramp.std(dim=2)[0, 0]
    shift = torch.empty(n, dtype=torch.int64)
    clean = 0
    for i in range(n):
        drop = (view[i, 0, :-1] - view[i, 0, 1:]).max(dim=0)  # where the ramp jumps back, if it does
        shift[i] = int(drop.indices) + 1 if drop.values > 100 else 0
        back = torch.roll(view[i], -int(shift[i]), dims=1)
        scale = float((back[0] @ ramp[i, 0]) / (ramp[i, 0] @ ramp[i, 0]))
        assert 0.79 < scale < 1.21
        noise = (back[0] / scale - ramp[i, 0]).std() / spread
        clean += int(noise < 1e-6)
        assert noise < 0.08
    assert 0.45 < clean / n < 0.55  # half of them have no jitter
    moved = torch.where(shift > 100, shift - 200, shift)
    assert int(moved.abs().max()) == 10
    assert 0.4 < float((moved != 0).double().mean()) < 0.7


def test_features_are_jittered_only() -> None:
    x = torch.randn(4000, 60, dtype=torch.float64) * torch.linspace(1, 9, 4000).unsqueeze(1)
    torch.manual_seed(5)
    change = augment(x) - x
    moved = (change != 0).any(dim=1)
    assert 0.47 < float(moved.double().mean()) < 0.53
    share = change[moved].std(dim=1) / x[moved].std(dim=1)
    assert float(share.mean()) == pytest.approx(0.05, rel=0.02)
