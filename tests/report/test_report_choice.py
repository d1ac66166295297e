"""What to show of a folder of runs: names that fit, and sentences where none does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridgemil.errors import BadUse
from bridgemil.report.benchmark import build
from bridgemil.report.choice import Choice
from bridgemil.runs import open_store


def shown(runs: Path, **choice: tuple[str, ...]) -> set[tuple[str, str]]:
    cells = build(open_store(runs), Choice(**choice)).cells
    return {(cell.method, cell.split.title) for cell in cells}


def test_methods_are_chosen_by_name(runs: Path) -> None:
    title = "3 folds, split seed 0"
    assert shown(runs, methods=("attention", "tangent+attention")) == {
        ("attention", title),
        ("tangent+attention", title),
    }
    assert shown(runs, methods=("bandpower",), budgets=("demo",)) == {("bandpower", title)}


def test_a_choice_of_networks_leaves_the_baselines(runs: Path) -> None:
    methods = {method for method, _ in shown(runs, backbones=("eegnet",), budgets=("demo",), recipes=("paper",))}
    assert methods == {"bandpower", "tangent", "attention", "majority_vote", "tangent+attention"}


def test_the_family_of_comparisons_is_what_is_shown(runs: Path) -> None:
    report = build(open_store(runs), Choice(methods=("bandpower", "attention")))
    assert [(c.one, c.other, c.p_holm == c.p) for cs in report.comparisons.values() for c in cs] == [
        ("attention", "bandpower", True)
    ]


def test_a_split_is_chosen_by_words_hash_or_file(many: Path, tmp_path: Path) -> None:
    plans = {plan.title: plan for _, plan in open_store(many).splits()}
    plan = plans["3 folds, split seed 1"]
    plan.save(tmp_path / "split.json")
    for words in ("split seed 1", "3 folds, split seed 1", plan.hash[:6], plan.hash, str(tmp_path / "split.json")):
        assert {title for _, title in shown(many, splits=(words,))} == {plan.title}, words
    assert {title for _, title in shown(many, splits=("4 folds",))} == {"4 folds, split seed 0"}
    assert len({title for _, title in shown(many, splits=("split seed 1", "split seed 2"))}) == 2


def test_split_seed_1_is_not_split_seed_10(many: Path) -> None:
    """Words of a title are whole words."""
    cell = build(open_store(many), Choice(splits=("split seed 1",))).cells[0]
    tenth = replace(cell, split=replace(cell.split, folds=cell.split.folds[::-1], split_seed=10))
    for words, seeds in (("split seed 1", [1]), ("split seed 10", [10]), ("Split Seed 1", [1]), ("3 folds", [1, 10])):
        assert [c.split.split_seed for c in Choice(splits=(words,)).among([cell, tenth])] == seeds
    with pytest.raises(BadUse, match="got 'split see'"):
        Choice(splits=("split see",)).among([cell, tenth])


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"methods": ("atention",)}, r"--methods must be one of attention, .*got 'atention'; did you mean attention\?"),
        ({"backbones": ("mtdnet",)}, r"--backbones must be one of eegnet \(what is complete here\); got 'mtdnet'"),
        ({"budgets": ("laptop",)}, "--budget must be one of demo "),
        ({"recipes": ("ours",)}, "--recipe must be one of paper "),
        ({"splits": ("split seed 7",)}, r"--split must be one of 3 folds, split seed 0 \([0-9a-f]{12}\) "),
    ],
)
def test_a_name_that_fits_nothing_is_refused_with_what_there_is(runs: Path, choice: dict, words: str) -> None:
    with pytest.raises(BadUse, match=words):
        build(open_store(runs), Choice(**choice))


def test_names_that_do_not_fit_together_are_refused(many: Path) -> None:
    with pytest.raises(BadUse, match='nothing here fits --methods attention --split "4 folds" together'):
        build(open_store(many), Choice(methods=("attention",), splits=("4 folds",)))
