"""What a bundle's card says of held-out people: of the class that ``predict`` would say, and no praise for luck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import methods
from bridgemil.bundle.bundle import not_better_than_chance
from bridgemil.bundle.training import held_out, measure
from bridgemil.evaluation import calibration
from bridgemil.evaluation.results import Results


def made(labels: str, said: str, p_b: Sequence[float]) -> Results:
    """Held-out people in three folds, with what a method said of each and its probability of class b."""
    table = pd.DataFrame({"seed": 0, "fold": np.arange(len(labels)) % 3 + 1, "label": list(labels)})
    table = table.assign(subject=[f"s{i:02d}" for i in range(len(labels))], predicted=list(said))
    table = table.assign(p_a=1 - np.asarray(p_b), p_b=p_b)
    return Results(methods.settings("majority_vote"), ["a", "b"], table, pd.DataFrame(), [], 1.0)


def test_a_vote_is_judged_by_the_class_that_its_bundle_says() -> None:
    labels = "ab" * 12
    against = ["b" if label == "a" else "a" for label in labels]
    results = made(labels, "".join(against), [0.8 if label == "b" else 0.2 for label in labels])
    assert results.summary["accuracy"].iloc[0] == 0
    assert measure(results, calibration.cross_calibrated(*held_out(results)))["accuracy"]["value"] == 1


def test_three_people_who_are_right_by_luck_are_no_proof() -> None:
    said = "a" * 9 + "b" * 8 + "b" * 3
    results = made("a" * 17 + "b" * 3, said, [0.7 if name == "b" else 0.3 for name in said])
    found = measure(results, held_out(results)[0])
    assert found["balanced_accuracy"]["ci95"][0] < 0.5, "three who are all right leave a wide interval"
    assert 0.05 < found["p_guessing"] < 0.3
    assert "not shown to be better than chance" in str(not_better_than_chance(found))
    results = made("ab" * 15, "ab" * 15, [0.3, 0.7] * 15)
    good = measure(results, held_out(results)[0])
    assert not_better_than_chance(good) is None


def test_what_is_judged_may_choose_what_everyone_may(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[list[str]] = []
    decide = calibration.decide

    def listen(*arguments: Any) -> tuple[calibration.Calibration, dict[str, Any]]:
        decision = decide(*arguments)
        offered.append(list(decision[1]["log_loss"]))
        return decision

    monkeypatch.setattr(calibration, "decide", listen)
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1], 210)
    calibration.cross_calibrated(p, (rng.random(210) < p[:, 1]).astype(np.int64), np.arange(210) % 5)
    assert offered == [["none", "temperature", "isotonic"]] * 5, "though each has fewer than 200 people"
