"""A second cohort for Stage 1: who is among its subjects, which cohorts fit, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.views import Unlabelled, tag_of
from bridgemil.engine.evaluate import evaluate
from bridgemil.engine.plan import grid
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import Results
from bridgemil.learning.data import WindowSet
from bridgemil.runs import RunStore
from command import bridgemil as command
from people import people

QUICK = {"stage1.epochs": 2, "stage1.subbag_pairs": 4, "stage2.epochs": 2}


def healthy(n: int = 5, seed: int = 9, **more: Any) -> Cohort:
    return people(n, classes=("healthy",), windows=4, seed=seed, **more)


def quickly(cohort: Cohort, other: Cohort | Path | None, method: str = "bridgemil", **more: Any) -> Results:
    usual: dict[str, Any] = {"budget": "demo", "folds": 3, "settings": QUICK, "progress": False, "baselines": False}
    return evaluate(cohort, method, pretrain_on=other, **usual | more)


def test_subjects_of_the_second_cohort_are_numbered_after_the_training_subjects_and_have_no_label() -> None:
    cohort, other = people(6, windows=4), healthy()
    further = Unlabelled.beside(cohort, other)
    both = further.joined(cohort)
    assert list(further.bags) == [f"arrays/{subject}" for subject in other.subjects]
    assert both.classes == cohort.classes
    windows = WindowSet(both, [*cohort.subjects[:2], *further.bags], cohort.normalisation(cohort.subjects[:2]))
    assert windows.y.tolist() == [0, 1, -1, -1, -1, -1, -1]
    mean, std = (values.astype(np.float32)[:, None] for values in cohort.normalisation(cohort.subjects[:2]))
    last = (other.windows(other.subjects[-1]) - mean) / std
    np.testing.assert_array_equal(windows.take(windows.bag_index(6)).numpy(), last)
    assert (windows.layout.recording_end - windows.layout.recording_start)[-1] == other.records[
        other.subjects[-1]
    ].recording_windows[-1], "nearby windows are of one recording"


def test_who_is_in_both_cohorts_is_known_by_the_signal_and_left_out() -> None:
    cohort, other = people(6, windows=4), healthy(3)
    bags = [*(cohort.windows(subject) for subject in cohort.subjects[:2]), *map(other.windows, other.subjects)]
    mixed = Cohort.from_arrays(bags, ["healthy"] * 5, sfreq=200.0, channels=cohort.channels)
    found = Unlabelled.beside(cohort, mixed)
    assert found.shared == tuple(mixed.subjects[:2])
    assert found.subjects == tuple(mixed.subjects[2:])
    with pytest.warns(BridgeMILWarning, match=f"{mixed.subjects[0]}, {mixed.subjects[1]} have the signal of"):
        Protocol("bridgemil", pretrain_on=mixed).second(cohort)
    with pytest.raises(BadData, match="all of its subjects are in the evaluated cohort"):
        Unlabelled.beside(cohort, cohort)


def test_cohorts_of_other_windows_are_refused() -> None:
    cohort = people(6, windows=4)
    with pytest.raises(BadData, match=r"electrodes are E1 E2 E3, those of the evaluated cohort are E1 E2 E3 E4"):
        Unlabelled.beside(cohort, healthy(n_channels=3))
    with pytest.raises(BadData, match=r"a cohort to pretrain on must be prepared alike"):
        Unlabelled.beside(cohort, healthy(n_times=100))
    bags = list(map(healthy().windows, healthy().subjects))
    slow = Cohort.from_arrays(bags, ["x"] * 5, sfreq=200.0, channels=cohort.channels, native_sfreq=60.0)
    with pytest.raises(BadData, match=r"hold nothing above 30 Hz, those of the evaluated cohort up to 100 Hz"):
        Unlabelled.beside(cohort, slow)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("attention", "attention has no Stage 1 .*: --pretrain-on is for masked, bridgemil"),
        ("tangent+attention", "has no Stage 1"),
        ("supcon", "supcon has no Stage 1 that learns without labels"),
        ("supervised", "supervised has no Stage 1 that learns without labels"),
    ],
)
def test_methods_that_cannot_learn_without_labels_refuse_it(method: str, message: str) -> None:
    with pytest.raises(BadUse, match=message):
        quickly(people(6, windows=4), healthy(), method, backbone="eegnet", settings=None)


def test_features_adjusted_to_sites_and_a_name_without_the_cohort_are_refused() -> None:
    cohort, other = people(6, windows=4), healthy()
    with pytest.raises(BadUse, match=r"stage1\.pretrain_on names the cohort of --pretrain-on"):
        Protocol("bridgemil", settings={"stage1": {"pretrain_on": "x@1"}})
    with pytest.raises(BadUse, match="leave out --pretrain-on"):
        Protocol("bridgemil", adjust=("age",), pretrain_on=other).method_settings(cohort)


def test_it_is_a_part_of_the_identity_only_where_it_is_given() -> None:
    cohort, other = people(6, windows=4), healthy()
    plain, with_other = (
        Protocol("tangent+bridgemil", pretrain_on=one).method_settings(cohort) for one in (None, other)
    )
    assert plain.hash != with_other.hash
    assert plain.members[0] == with_other.members[0], "a baseline has nothing to learn from it"
    assert with_other.members[1].stage1.pretrain_on == tag_of(other)
    renamed = with_other.members[1].stage1.model_copy(update={"pretrain_on": f"moved@{other.hash[:24]}"})
    assert with_other.members[1].model_copy(update={"stage1": renamed}).hash == with_other.members[1].hash
    assert methods.changed_from_budget(with_other) == {"bridgemil: stage1.pretrain_on": tag_of(other)}


def test_a_grid_gives_it_to_the_methods_that_can_use_it() -> None:
    cohort = people(6, windows=4)
    made = grid([cohort], ["tangent", "attention", "bridgemil"], ["covariance"], Protocol(pretrain_on=healthy()))
    named = [experiment.settings.stage1 and experiment.settings.stage1.pretrain_on for experiment in made]
    assert [bool(name) for name in named] == [False, False, True]
    assert [bool(experiment.jobs(0)[0].pretrain_on) for experiment in made] == [False] * 3, "it is in memory"
    with pytest.raises(BadUse, match="attention has no Stage 1"):
        grid([cohort], ["tangent", "attention"], ["covariance"], Protocol(pretrain_on=healthy()))


def test_results_do_not_depend_on_the_number_of_workers_and_resume(tmp_path: Path) -> None:
    cohort, other = people(9, windows=4).save(tmp_path / "cohort"), healthy().save(tmp_path / "healthy.cohort")
    method = "tangent+bridgemil"
    one, two = (quickly(cohort, other.path, method, out=tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.predictions, two.predictions, check_exact=True)
    again = quickly(cohort, other.path, method, out=tmp_path / "2")
    assert again.runs == two.runs
    store = RunStore(tmp_path / "1")
    recorded = [store.metadata(run).get("pretrain_on") for run in one.members["bridgemil"].runs]
    assert recorded == 3 * [{"hash": other.hash, "path": str(other.path), "subjects": other.subjects}]
    without = quickly(cohort, None, "bridgemil", out=tmp_path / "1")
    assert not set(without.runs) & set(one.members["bridgemil"].runs)
    assert len(store.names("stage1")) == 6, "an encoder with, and one without it, for each fold"


def test_from_the_command_line(tmp_path: Path) -> None:
    cohort, other = people(9, windows=4).save(tmp_path / "cohort"), healthy().save(tmp_path / "healthy.cohort")
    common = [cohort.path, "--folds", 3, "--budget", "demo", "--set", "stage1.epochs=1", "--set", "stage2.epochs=1"]
    common += ["--pretrain-on", other.path, "--jobs", 1]
    refused = command("evaluate", *common, "--method", "attention", "--out", tmp_path / "runs")
    assert refused.returncode == 2
    model = command(
        "train", *common, "--method", "bridgemil", "--no-baselines", "--single", "--out", tmp_path / "model"
    )
    assert model.returncode == 0, model.stderr
    assert "Stage 1 also learned from 5 subjects of healthy, without labels" in model.stdout
