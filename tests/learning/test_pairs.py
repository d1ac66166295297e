from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bridgemil.learning.data import Layout
from bridgemil.learning.objectives.alignment import nearby, subbags, subject_deck, with_partner

RECORDINGS = [[5, 3], [1, 4], [12], [2]]  # windows of each recording of four subjects


@pytest.fixture
def layout() -> Layout:
    return Layout.of(RECORDINGS)


def test_partners_are_near_in_the_same_recording_and_uniform(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    recording = np.repeat(np.arange(6), [5, 3, 1, 4, 12, 2])
    anchors = with_partner(layout)
    assert anchors.tolist() == [t for t in range(27) if recording[t] != 2]
    seen: dict[int, Counter[int]] = {int(t): Counter() for t in anchors}
    for _ in range(4000):
        for t, partner in zip(anchors, nearby(rng, layout, anchors), strict=True):
            seen[int(t)][int(partner)] += 1
    for t, partners in seen.items():
        allowed = {u for u in range(27) if 0 < abs(u - t) <= 2 and recording[u] == recording[t]}
        assert set(partners) == allowed
        assert max(partners.values()) - min(partners.values()) < 8 * np.sqrt(4000 / len(allowed))


def test_subbags_stay_in_their_subject_and_do_not_repeat_where_they_need_not(layout: Layout) -> None:
    rng = np.random.default_rng(1)
    subject = np.repeat(np.arange(4), [8, 5, 12, 2])
    subjects = np.tile(np.arange(4), 500)
    drawn = subbags(rng, layout, subjects)
    assert drawn.shape == (2000, 8)
    assert (subject[drawn] == subjects[:, None]).all()
    for number, windows in zip(subjects, drawn, strict=True):
        if number in (0, 2):
            assert len(set(windows)) == 8
    counts = np.bincount(drawn[subjects == 2].ravel() - 13, minlength=12)
    expected = 500 * 8 / 12
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    places = [Counter(drawn[subjects == 2][:, k] - 13) for k in (0, 7)]  # every place of the sub-bag is uniform too
    assert all(len(c) == 12 and max(c.values()) < 80 for c in places)


def test_every_subject_comes_once_before_any_twice() -> None:
    deck = subject_deck(np.random.default_rng(2), 7, 5)
    drawn = np.concatenate([next(deck) for _ in range(28)])
    for start in range(0, len(drawn), 7):
        assert sorted(drawn[start : start + 7]) == list(range(7))


def test_the_same_seed_draws_the_same(layout: Layout) -> None:
    anchors = with_partner(layout)
    a, b = (nearby(np.random.default_rng(5), layout, anchors) for _ in range(2))
    assert (a == b).all()
