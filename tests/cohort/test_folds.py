from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_score

from bridgemil import FoldPlan, SubjectKFold
from bridgemil.errors import BadData, BadUse


def subjects_of(**counts: int) -> tuple[list[str], list[str]]:
    labels = [name for name, count in counts.items() for _ in range(count)]
    return [f"s{i:03d}" for i in range(len(labels))], labels


@pytest.mark.parametrize(
    ("counts", "k", "sizes"),
    [
        ({"AD": 36, "FTD": 23, "HC": 29}, 10, [10, 10, 10, 9, 9, 9, 8, 8, 8, 7]),
        ({"MDD": 33, "HC": 30}, 10, [7, 7, 7, 6, 6, 6, 6, 6, 6, 6]),
        ({"PD": 15, "HC": 16}, 5, [7, 6, 6, 6, 6]),
    ],
)
def test_fold_sizes_are_the_papers(counts: dict[str, int], k: int, sizes: list[int]) -> None:
    plan = SubjectKFold(k).plan(*subjects_of(**counts))
    assert sorted(map(len, plan.folds), reverse=True) == sizes


def test_every_subject_is_tested_once_and_never_trains_in_that_round() -> None:
    subjects, labels = subjects_of(a=11, b=9)
    rounds = SubjectKFold(5, split_seed=3).plan(subjects, labels).cv_folds()
    assert sorted(s for r in rounds for s in r.test) == subjects
    for number, one in enumerate(rounds):
        assert sorted([*one.train, *one.validation, *one.test]) == subjects
        assert one.validation == rounds[(number + 1) % 5].test
        for part in (one.train, one.validation, one.test):
            assert {labels[subjects.index(s)] for s in part} == {"a", "b"}


def test_without_selection_all_but_the_test_fold_train() -> None:
    subjects, labels = subjects_of(a=11, b=9)
    plan = SubjectKFold(5, split_seed=3).plan(subjects, labels)
    for one, selecting in zip(plan.cv_folds(selects=False), plan.cv_folds(), strict=True):
        assert (one.number, one.test, one.validation) == (selecting.number, selecting.test, ())
        assert set(one.train) == {*selecting.train, *selecting.validation}
        assert len(set(one.train)) == len(one.train)


def test_split_seed_decides_the_split_alone() -> None:
    subjects, labels = subjects_of(a=20, b=20)
    assert SubjectKFold(5, 1).plan(subjects, labels) == SubjectKFold(5, 1).plan(subjects, labels)
    assert SubjectKFold(5, 1).plan(subjects, labels) != SubjectKFold(5, 2).plan(subjects, labels)


def test_plan_is_saved_and_replayed(tmp_path: Path) -> None:
    plan = SubjectKFold(4, 7).plan(*subjects_of(a=8, b=8))
    plan.save(tmp_path / "split.json")
    assert FoldPlan.load(tmp_path / "split.json") == plan


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"folds": 3}'])
def test_a_file_that_is_no_split_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(BadData, match="no split file"):
        FoldPlan.load(tmp_path / "split.json")


def test_a_split_may_not_repeat_a_subject_or_be_for_others(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps({"folds": [["a", "b"], ["c"], ["a"]]}))
    with pytest.raises(BadData, match="several places: a"):
        FoldPlan.load(tmp_path / "split.json")
    with pytest.raises(BadData, match="not in the split: d; not in the cohort: c"):
        FoldPlan((("a",), ("b",), ("c",))).check(["a", "b", "d"])


def test_fewer_subjects_than_folds_is_an_error() -> None:
    with pytest.raises(BadData, match="class 'b' has 4 subjects, fewer than the 5 folds; use at most --folds 4"):
        SubjectKFold(5).plan(*subjects_of(a=10, b=4))
    with pytest.raises(BadData, match="class 'b' has 1 subject; at least 3 are needed in every class"):
        SubjectKFold(1).plan(["a1", "a2", "a3", "b1"], list("aaab"))
    with pytest.raises(BadUse, match="at least 3 folds"):
        SubjectKFold(2).plan(*subjects_of(a=10, b=4))


def test_groups_stay_together() -> None:
    subjects, labels = subjects_of(a=30, b=30)
    groups = [i // 2 for i in range(60)]  # the same person twice
    plan = SubjectKFold(5).plan(subjects, labels, groups)
    where = {s: i for i, fold in enumerate(plan.folds) for s in fold}
    assert all(where[subjects[i]] == where[subjects[i + 1]] for i in range(0, 60, 2))
    assert len(where) == 60
    with pytest.raises(BadData, match="has 3 groups"):
        SubjectKFold(5).plan(subjects, labels, [i % 3 for i in range(60)])


def test_it_is_a_scikit_learn_splitter() -> None:
    subjects, labels = subjects_of(a=12, b=8)
    scores = cross_val_score(DummyClassifier(), np.zeros((20, 1)), labels, cv=SubjectKFold(4))
    assert len(scores) == SubjectKFold(4).get_n_splits() == 4
    sklearns = SubjectKFold(4, scheme="sklearn").plan(subjects, labels)
    assert sorted(map(len, sklearns.folds)) == [5, 5, 5, 5]
