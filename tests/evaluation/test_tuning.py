"""Settings chosen within the training subjects of each fold: the rule, the grid, and that no test subject decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import audit, methods
from bridgemil.bundle.training import train
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.engine.evaluate import evaluate
from bridgemil.engine.execute import Where
from bridgemil.engine.forecast import forecast
from bridgemil.engine.plan import Experiment, Plan
from bridgemil.errors import BadUse
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.run import Run
from bridgemil.evaluation.tuning import brier, simplest_within_one_error
from bridgemil.parallel import device_of
from bridgemil.report.benchmark import build
from bridgemil.runs import RunStore, open_store
from command import bridgemil as command
from people import people

FILE = """
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

def power(X):
    import numpy as np
    return np.log(np.diagonal(X, axis1=1, axis2=2))

def pick(learns=False, C=1.0, features="mean_covariance"):
    return make_pipeline(FunctionTransformer(power), LogisticRegression(C=C) if learns else DummyClassifier())
"""
HALVES = FoldPlan(tuple(tuple(f"subject-{i:03d}" for i in range(first, 19, 2)) for first in (1, 2)))
QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}


@pytest.fixture
def pick(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(FILE)
    return f"{tmp_path}/mine.py:pick"


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(18, windows=2, effect=1.0).save(tmp_path / "cohort")


def tuned(cohort: Cohort, method: str, tune: dict[str, Any], out: Path | None = None, **options: Any) -> Any:
    quick: dict[str, Any] = {"jobs": 1, "progress": False, "baselines": False}
    quick |= {} if "split" in options else {"folds": 3}
    return evaluate(cohort, method, out=out, tune=tune, **(quick | options))


def test_the_simplest_within_one_standard_error_of_the_lowest_is_chosen() -> None:
    assert simplest_within_one_error([0.30, 0.25, 0.24], [0.01, 0.01, 0.02]) == 1
    assert simplest_within_one_error([0.30, 0.25, 0.24], [0.01, 0.01, 0.06]) == 0
    assert simplest_within_one_error([0.30, 0.25, 0.20], [0.20, 0.20, 0.01]) == 2, "the error is that of the lowest"
    table = pd.DataFrame({"label": ["a", "b"], "p_a": [0.9, 0.6], "p_b": [0.1, 0.4]})
    np.testing.assert_allclose(brier(table, ["a", "b"]), [0.02, 0.72])


def test_candidates_are_all_combinations_the_default_first_then_as_listed(cohort: Cohort) -> None:
    grid = {"stage2.lr": [1e-4, 5e-3], "stage1.radius": [4, 2]}
    made = Protocol("bandpower+bridgemil", "eegnet", tune=grid).method_settings(cohort)
    bandpower, bridgemil = made.members
    assert not bandpower.candidates
    changes = [one for one, _ in bridgemil.candidates]
    assert changes[0] == {"stage2.lr": 5e-3, "stage1.radius": 2}, "recipe ours has 5e-3, and the radius is 2"
    assert {(c["stage2.lr"], c["stage1.radius"]) for c in changes} == {(5e-3, 2), (5e-3, 4), (1e-4, 2), (1e-4, 4)}
    assert changes[-1] == {"stage2.lr": 1e-4, "stage1.radius": 4}
    assert all(s.stage1.radius == c["stage1.radius"] for c, s in bridgemil.candidates)
    plain = methods.for_cohort(cohort, "bandpower+bridgemil", "eegnet")
    assert plain.members[1].hash == bridgemil.candidates[0][1].hash
    assert methods.changed_from_budget(bridgemil) == {f"tune.{key}": values for key, values in grid.items()}
    assert made.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("tune", "options", "message"),
    [
        ({"stage2.lr": [1, 2]}, {}, r"bandpower has no setting stage2\.lr that could be tuned"),
        ({"baseline.classifier": ["logistic"]}, {}, r"nothing to choose: give baseline\.classifier two values or more"),
        ({"baseline.classifier": ["logistic", "svm"]}, {}, r"baseline\.classifier: should be 'logistic' or 'extra_t"),
        ({"baseline.classifier": ["logistic", "extra_trees"]}, {"split": HALVES}, "needs a split of 3 folds or more"),
        ({"stage2.selection": ["last", "loss"]}, {"method": "attention", "backbone": "eegnet"}, "decides who trains"),
        ({"site_adjust": ["none", "people"]}, {}, "site_adjust cannot be tuned: by whom features are adjusted"),
        ({"adjust": ["", "age"], "baseline.C": [1, 2]}, {}, "adjust cannot be tuned"),
    ],
)
def test_what_cannot_be_tuned_is_refused_first(
    tune: dict[str, Any], options: dict[str, Any], message: str, cohort: Cohort
) -> None:
    with pytest.raises(BadUse, match=message):
        tuned(cohort, **({"method": "bandpower", "tune": tune} | options))


def test_settings_are_not_a_way_around(cohort: Cohort, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="tune is no setting; values to choose from are given with --tune"):
        methods.for_cohort(cohort, "bandpower", changes={"tune.baseline.C": 1})
    with pytest.raises(BadUse, match="train chooses no settings: choose them with evaluate --tune"):
        train(cohort, tmp_path / "model", "bandpower", tune={"baseline.classifier": ["logistic", "extra_trees"]})


def test_every_fold_chooses_by_its_training_subjects_and_says_so(cohort: Cohort, pick: str, tmp_path: Path) -> None:
    out, grid = tmp_path / "runs", {"baseline.learns": [False, True]}
    results = tuned(cohort, pick, grid, out)
    assert [row["chosen"] for row in results.tuning] == [{"baseline.learns": True}] * 3
    assert results.summary["accuracy"][0] > 0.8
    first = results.to_dict()["tuning"][0]
    json.dumps(first)
    assert (first["seed"], first["fold"]) == (0, 1)
    assert [one["changes"]["baseline.learns"] for one in first["candidates"]] == [False, True]
    assert first["lowest_brier"] == first["brier"] < first["candidates"][0]["brier"] - first["se"]
    store = RunStore(out)
    assert len(store.finished()) == 3 + 3 * 2 * 2, "two candidates on two inner folds of each fold"
    for identity in store.finished() - set(results.runs):
        inner = store.metadata(identity)
        outer = next(o for o in map(store.metadata, results.runs) if f"of fold {o['fold']}" in inner["split"]["part"])
        assert {*inner["train"], *inner["test"]} == set(outer["train"])
    tuned(cohort, pick, grid, out)
    assert len(store.finished()) == 15, "nothing is done twice"
    tuned(cohort, pick, grid | {"baseline.C": [1.0, 0.1]}, out)
    assert len(store.finished()) == 15 + 3 + 3 * 2 * 2, "another grid is another run; fits that it shares are reused"


def test_a_tuned_method_in_reports_and_in_the_audit(cohort: Cohort, tmp_path: Path) -> None:
    out, grid = tmp_path / "runs", {"baseline.classifier": ["logistic", "extra_trees"]}
    results = tuned(cohort, "bandpower", grid, out)
    tuned(cohort, "bandpower", None, out)
    labels = {cell.label for cell in build(RunStore(out)).cells}
    assert any("tune.baseline.classifier" in label for label in labels)
    assert len(labels) == 2
    found = {finding.name: finding for finding in audit.audit(cohort, out).findings}
    assert found["provenance"].status == found["recomputed"].status == "PASS", found["recomputed"].evidence
    model = RunStore(out).model(results.runs[0])
    assert model.facts.settings.baseline == {
        key.partition(".")[2]: v for key, v in results.tuning[0]["chosen"].items() if v != "logistic"
    }


def with_noise(cohort: Cohort, subjects: tuple[str, ...]) -> Cohort:
    """Other signals and labels for these subjects."""
    rng, bags, labels = np.random.default_rng(3), [], []
    for subject, label in zip(cohort.subjects, cohort.labels, strict=True):
        replaced = subject in subjects
        windows = cohort.windows(subject)
        bags.append(rng.normal(20, 300, windows.shape).astype(np.float32) if replaced else windows)
        labels.append({"control": "patient", "patient": "control"}[label] if replaced else label)
    return Cohort.from_arrays(bags, labels, cohort.subjects, cohort.sfreq, cohort.channels, burn_in=1)


@pytest.mark.parametrize(
    ("method", "changes", "tune"),
    [
        ("mine", {}, {"baseline.learns": [False, True], "baseline.C": [1.0, 0.01]}),
        ("tangent", {}, {"baselines.reference": ["average", "recorded"]}),
        ("bridgemil", QUICK, {"stage1.radius": [2, 4], "stage2.lr": [5e-3, 1e-5]}),
    ],
)
def test_noise_in_place_of_the_test_subjects_changes_no_choice(
    method: str, changes: dict[str, Any], tune: dict[str, Any], pick: str, tmp_path: Path
) -> None:
    cohort = people(12, windows=2, effect=0.3)
    plan = SubjectKFold(3).plan(cohort.subjects, cohort.labels)
    found = []
    for name in ("as it is", "noise"):
        fold = plan.cv_folds(selects=False)[0]
        data = with_noise(cohort, ()) if name == "as it is" else with_noise(cohort, fold.test)
        name_of = pick if method == "mine" else method
        protocol = Protocol(name_of, "eegnet", budget="demo", settings=changes, tune=tune)
        store = open_store(tmp_path / name)
        identity = Run(data, fold, protocol.method_settings(data), seed=0).perform(store, device_of("cpu"))
        record = store.metadata(identity)["tuning"]
        found.append({key: value for key, value in record.items() if key != "seconds"})
    assert found[0] == found[1]
    assert len({row["brier"] for row in found[0]["candidates"]}) > 1


class Stop(Exception):
    """As if interrupted."""


def test_an_interrupted_choice_resumes_where_it_stopped(
    cohort: Cohort, pick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridgemil.evaluation import run as module

    out, grid, honest, fits = tmp_path / "runs", {"baseline.learns": [False, True]}, module.fit, list[int]()

    def counting(*arguments: Any, **how: Any) -> Any:
        fits.append(1)
        if len(fits) == 4:
            raise Stop
        return honest(*arguments, **how)

    monkeypatch.setattr(module, "fit", counting)
    with pytest.raises(Stop):
        tuned(cohort, pick, grid, out)
    assert len(RunStore(out).finished()) == 3
    resumed = tuned(cohort, pick, grid, out)
    assert len(fits) == 4 + 15 - 3
    monkeypatch.undo()
    pd.testing.assert_frame_equal(resumed.predictions, tuned(cohort, pick, grid).predictions, check_exact=True)


def test_two_workers_choose_the_same(cohort: Cohort, pick: str, tmp_path: Path) -> None:
    grid = {"baseline.learns": [False, True]}
    alone, workers = tuned(cohort, pick, grid), tuned(cohort, pick, grid, tmp_path / "runs", jobs=2)
    assert [r["candidates"] for r in alone.tuning] == [r["candidates"] for r in workers.tuning]
    pd.testing.assert_frame_equal(alone.predictions, workers.predictions, check_exact=True)


def test_the_command_announces_the_cost_and_prints_every_choice(cohort: Cohort, pick: str, tmp_path: Path) -> None:
    words = ["evaluate", cohort.path, "--method", pick, "--folds", 3, "--no-baselines", "--jobs", 1]
    done = command(*words, "--tune", "baseline.learns=false,true", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert "3 runs: 0 done, 3 to do, with 12 further fits to choose settings within the folds; about" in done.stderr
    assert "settings chosen within the training subjects of each fold" in done.stdout
    assert done.stdout.count("baseline.learns=True") >= 3
    assert "one-standard-error rule" in done.stdout
    wrong = command(*words, "--tune", "baseline.learns")
    assert wrong.returncode == 2
    assert "expected key=value,value" in wrong.stderr


def test_the_forecast_counts_the_fits_of_every_candidate(cohort: Cohort) -> None:
    plan = Protocol(folds=3).fold_plan(cohort)
    seconds = []
    for tune in ({}, {"stage2.epochs": [2, 20]}):
        protocol = Protocol("attention", "eegnet", budget="demo", settings=QUICK_STAGE2, tune=tune)
        work = Plan([Experiment(cohort, plan, protocol.method_settings(cohort), (0,))], RunStore(Path("nowhere")))
        seconds.append(forecast(work, Where("inline", device="cpu")).left())
    assert seconds[1] > 1.2 * seconds[0], "steps are timed, so only roughly"


QUICK_STAGE2 = {key: value for key, value in QUICK.items() if key.startswith("stage2")}
