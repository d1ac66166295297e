"""Fewer subjects, fewer windows: what every method is given, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.engine.benchmark import Where
from bridgemil.evaluation import metrics
from bridgemil.evaluation.protocol import Protocol
from bridgemil.studies import StudyContext, scarcity
from bridgemil.studies.scarcity import SUBJECTS, WINDOWS, Amount
from made_up import made_up
from people import people

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return people(12, windows=5, effect=0.4).save(tmp_path_factory.mktemp("scarce") / "some.cohort")


def context(
    cohort: Cohort, out: Path, seeds: tuple[int, ...] = (0,), folds: int = 4, recipe: str | None = None
) -> StudyContext:
    return StudyContext(
        (cohort,), out,
        Protocol(backbone="eegnet", recipe=recipe, budget="demo", folds=folds, seeds=seeds, settings=QUICK),
        progress=False, where=Where(jobs=1, device="cpu"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("k", "numbers"), [(10, [10, 8, 6, 4, 3]), (12, [12, 8, 6, 4, 3]), (5, [5, 4, 3]), (7, [7, 6, 4, 3]), (3, [3])]
)
def test_how_many_folds_stay(k: int, numbers: list[int]) -> None:
    amounts = [amount for amount in scarcity.amounts(k) if amount.what == SUBJECTS]
    assert [amount.value for amount in amounts] == numbers
    assert [amount.text for amount in amounts] == ["", *(f"{m} of {k} folds" for m in numbers[1:])]


def test_all_methods_get_the_same_folds_and_seeds_draw_others(tmp_path: Path) -> None:
    cohort = people(20, windows=1).save(tmp_path / "c")
    chosen, amount = context(cohort, tmp_path / "out", folds=10), Amount(SUBJECTS, 4, "4 of 10 folds")

    def subset(method: str, seed: int, split_seed: int = 0, amount: Amount = amount) -> tuple[tuple[str, ...], ...]:
        experiment = scarcity.reduced(chosen, cohort, method, amount, split_seed, seed)
        assert experiment.seeds == (seed,)
        assert experiment.part == amount.text
        return experiment.split.folds

    by_seed = [{subset(method, seed) for method in scarcity.METHODS} for seed in range(4)]
    assert [len(subsets) for subsets in by_seed] == [1] * 4
    assert len(set.union(*by_seed)) > 1
    whole = chosen.split(cohort, 0).folds
    assert set(subset("attention", 0)) < set(whole)
    assert set(subset("attention", 0, amount=Amount(SUBJECTS, 3, "3 of 10 folds"))) < set(subset("attention", 0))
    drawn = {tuple(whole.index(fold) for fold in subset("attention", seed)) for seed in range(4)}
    dealt_anew = chosen.split(cohort, 1).folds
    assert drawn != {tuple(dealt_anew.index(fold) for fold in subset("attention", seed, 1)) for seed in range(4)}


def test_every_fold_of_a_subset_is_test_once_and_the_next_validates(cohort: Cohort, tmp_path: Path) -> None:
    amount = Amount(SUBJECTS, 3, "3 of 4 folds")
    experiment = scarcity.reduced(context(cohort, tmp_path, recipe="paper"), cohort, "attention", amount, 0, 0)
    folds, rounds = experiment.split.folds, experiment.cv_folds()
    assert [r.test for r in rounds] == list(folds)
    assert [r.validation for r in rounds] == [folds[1], folds[2], folds[0]]
    assert [r.train for r in rounds] == [folds[2], folds[0], folds[1]]
    without_selection = scarcity.reduced(context(cohort, tmp_path), cohort, "attention", amount, 0, 0).cv_folds()
    assert [set(r.train) for r in without_selection] == [{*r.train, *r.validation} for r in rounds]


@pytest.mark.parametrize("percent", scarcity.PERCENTS)
def test_the_last_windows_stay_in_all_three_sets(cohort: Cohort, tmp_path: Path, percent: int) -> None:
    amount = next(one for one in scarcity.amounts(4) if (one.what, one.value) == (WINDOWS, percent))
    experiment = scarcity.reduced(context(cohort, tmp_path), cohort, "attention", amount, 0, 0)
    for one_round in experiment.cv_folds():
        for subject in (*one_round.train, *one_round.validation, *one_round.test):
            n = cohort.records[subject].n_windows
            rows = one_round.kept.get(subject, tuple(range(n)))
            assert rows == tuple(range(n))[-int(np.ceil(round(n * percent / 100, 9))) :]
    assert (experiment.cv_folds()[0].kept == {}) == (percent == 100)


def test_one_draw_is_called_one_and_what_cannot_be_compared_is_not(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyContext, "perform", lambda _, experiments: list(map(made_up, experiments)))
    said = scarcity.perform(context(cohort, tmp_path)).sentences
    assert "One seed is one draw of folds" in said[-1]
    assert sum("the losses below are not informative" in sentence for sentence in said) == 3, "12 people show nothing"
    findings = scarcity.perform(context(cohort, tmp_path, folds=3))
    assert all("fewer subjects were not tried" in sentence for sentence in findings.sentences)
    assert set(findings.tables["loss"]["what"]) == {WINDOWS}


def test_what_cannot_be_trained_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StudyContext, "perform", lambda _, experiments: list(map(made_up, experiments)))
    short = people(12, windows=1).save(tmp_path / "short.cohort")  # at most three windows in a recording
    findings = scarcity.perform(context(short, tmp_path / "out"))
    tried = findings.tables["scarcity"].query("what == 'instances'")["amount"].unique().tolist()
    assert tried == ["all", "last 80 % of the windows", "last 50 % of the windows"]
    left = [note for note in findings.footnotes if "were not tried" in note]
    assert [note.partition(": ")[2].partition(" %")[0] for note in left] == ["last 20", "last 10"]


@pytest.mark.parametrize(
    ("recordings", "last", "possible"),
    [
        ((5, 6), 11, True),
        ((5, 1), 3, True),
        ((1, 1), 2, False),
        ((5, 3), 1, False),
        ((4, 2), 4, True),
        ((5, 1), 2, False),
    ],
)
def test_training_needs_two_windows_in_a_row_in_one_recording(
    recordings: tuple[int, ...], last: int, possible: bool
) -> None:
    n = sum(recordings)
    record = SimpleNamespace(subject="a", label="x", n_windows=n, recording_windows=recordings)
    fold = Fold(1, ("a",), (), (), {"a": tuple(range(n))[-last:]})
    few: Any = SimpleNamespace(records={"a": record}, classes=["x"])
    assert scarcity._can_train(few, [fold]) is possible


def test_the_papers_losses_stand_beside_only_where_they_may(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyContext, "perform", lambda _, experiments: list(map(made_up, experiments)))
    monkeypatch.setattr(StudyContext, "matches_paper", lambda *_: True)
    monkeypatch.setitem(cohort.metadata, "source", "adftd")
    loss = scarcity.perform(context(cohort, tmp_path)).tables["loss"]
    assert loss["paper"].tolist() == [-8.18, -0.84, -14.54, -2.60, -9.40, -2.01]


def test_the_study_runs_once_and_gives_the_same_bytes(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scarcity, "METHODS", ("attention", "bridgemil"))
    monkeypatch.setattr(scarcity, "PERCENTS", (100, 10))
    chosen = context(cohort, tmp_path / "out", seeds=(0, 1))
    findings = studies.study("scarcity", chosen)
    table, loss = findings.tables["scarcity"], findings.tables["loss"]
    by_subjects = table[table["what"] == SUBJECTS]
    assert by_subjects["training_folds"].tolist() == [3, 3, 2, 2]
    assert by_subjects["train_subjects"].tolist()[:2] == [9, 9]
    assert by_subjects["train_subjects"].between(4, 8)[2:].all()
    whole = table[table["amount"] == "all"].groupby("method")["accuracy"]
    assert (whole.max() == whole.min()).all(), "all folds with all windows are one condition"
    for row in loss[loss["what"] == WINDOWS].itertuples():
        mine = table[(table["method"] == row.method) & (table["what"] == WINDOWS)]["accuracy"]
        assert row.change == pytest.approx(row.gain)
        assert row.change == pytest.approx(mine.iloc[-1] - mine.iloc[0])
    assert "paper" not in loss
    both = [said for said in findings.sentences if "% of the training subjects" in said and "% of the windows" in said]
    assert len(both) == 2
    assert not any("One seed" in said for said in findings.sentences)
    files = {file.name: file.read_bytes() for file in (tmp_path / "out" / "scarcity").iterdir()}
    runs = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "runs" / "runs").iterdir()}
    assert len(runs) == 2 * 2 * (4 + 3 + 4)
    studies.study("scarcity", chosen)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out" / "scarcity").iterdir()} == files
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "runs" / "runs").iterdir()} == runs
    _the_same_people_are_compared(findings, chosen)


def _the_same_people_are_compared(findings: studies.Findings, chosen: StudyContext) -> None:
    conditions, _ = scarcity._conditions(chosen)
    mine = [c for c in conditions if c.method == "attention" and c.amount.what == SUBJECTS]
    changes = []
    for few, all_folds in zip(mine[-1].results, mine[0].results, strict=True):
        people_tested = few.predictions["subject"]
        theirs = all_folds.predictions[all_folds.predictions["subject"].isin(people_tested)]
        assert len(people_tested) == len(theirs) < len(all_folds.predictions)
        changes.append(metrics.correctness(few.predictions) - metrics.correctness(theirs))
    loss = findings.tables["loss"]
    row = loss[(loss["method"] == "attention") & (loss["what"] == SUBJECTS)].iloc[0]
    by_subject = pd.concat(changes).groupby(level=0).mean()
    assert row["gain"] == pytest.approx(100 * by_subject.mean()), "each subject counts once"
