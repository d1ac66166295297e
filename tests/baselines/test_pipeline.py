"""A user's scikit-learn pipeline as a method: what it is given, what is refused, what identifies it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import BridgeMILClassifier, baselines, methods
from bridgemil.baselines.pipeline import FORMS, covariances
from bridgemil.bundle.training import train
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, benchmark, plan
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.models import fit
from bridgemil.report.benchmark import build
from bridgemil.runs import RunStore
from people import people

FILE = '''
import json
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC


def power(X):
    return np.log([np.var(windows, axis=2).mean(axis=0) for windows in X]) * 1.0


def logistic(C=1.0):
    return make_pipeline(FunctionTransformer(power), StandardScaler(), LogisticRegression(C=C))


def diagonal(X):
    return np.log(np.diagonal(X, axis1=1, axis2=2))


def nested():
    pipeline = make_pipeline(FunctionTransformer(diagonal), LogisticRegression())
    return GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2)
nested.features = "mean_covariance"


def forest(sfreq, channels, features="covariances"):
    assert sfreq == 200.0 and len(channels) == 4
    flat = FunctionTransformer(lambda X: [np.ravel(matrices.mean(axis=0)) for matrices in X])
    return make_pipeline(flat, RandomForestClassifier(5))


class Spy(ClassifierMixin, BaseEstimator):
    """Writes down how many subjects it was given, and how."""

    features = "epochs"

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.calls = [["fit", type(X).__name__, len(X), X[0].ndim, str(X[0].dtype), sorted(map(int, y))]]
        return self

    def predict_proba(self, X):
        file = Path(__file__).with_name("calls.jsonl")
        with file.open("a") as stream:
            stream.write(json.dumps([*self.calls, ["predict", len(X)]]) + "\\n")
        return np.full((len(X), 2), 0.5)


class Wide(Spy):
    def predict_proba(self, X):
        return np.full((len(X), 3), 0.5)


ready = make_pipeline(FunctionTransformer(diagonal), LogisticRegression())
ready.features = "mean_covariance"


def three():
    return 3


def no_probabilities():
    return SVC()


def flat():
    return LogisticRegression()


def needs(depth):
    return LogisticRegression()


def misspelt():
    return LogisticRegression()
misspelt.features = "covariance"


def raises():
    raise ValueError("first line\\n\\nthe cause")
'''


EDITED = FILE.replace("* 1.0", "* 2.0").replace("StandardScaler(), ", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(12, windows=3, effect=0.5).save(tmp_path / "cohort")


def results(cohort: Cohort, method: str, out: Path | None = None, **options: Any) -> Any:
    quick: dict[str, Any] = {"folds": 3, "jobs": 1, "progress": False, "baselines": False, "out": out}
    return evaluate(cohort, method, **(quick | options))


def test_the_forms_are_those_of_one_subject_on_the_average_reference() -> None:
    bag = np.random.default_rng(0).normal(0, 10, (7, 4, 200)).astype(np.float32)
    shared = bag + np.random.default_rng(1).normal(0, 50, (7, 1, 200)).astype(np.float32)
    matrices = covariances(bag)
    assert matrices.shape == (7, 4, 4)
    assert (np.linalg.eigvalsh(matrices) > 0).all()
    x = bag[0] - bag[0].mean(axis=0)
    plain = np.cov(x.astype(np.float64))
    np.testing.assert_allclose(matrices[0], 0.9 * plain + 0.1 * np.trace(plain) / 4 * np.eye(4), rtol=1e-5)
    for make in FORMS.values():
        np.testing.assert_allclose(make(bag, "average"), make(shared, "average"), rtol=1e-3, atol=1e-3)
        assert not np.allclose(make(bag, "recorded"), make(shared, "recorded"), rtol=1e-3, atol=1e-3)
    assert np.array_equal(FORMS["mean_covariance"](bag, "average"), matrices.mean(axis=0))


def test_it_is_fitted_on_one_entry_per_training_subject_and_predicts_one_subject_at_a_time(
    file: Path, cohort: Cohort
) -> None:
    results(cohort, f"{file}:Spy")
    calls = [json.loads(line) for line in (file.parent / "calls.jsonl").read_text().splitlines()]
    assert len(calls) == len(cohort)
    assert calls[0][0] == ["fit", "list", 8, 3, "float32", [0] * 4 + [1] * 4]
    assert all(call[1] == ["predict", 1] for call in calls)


@pytest.mark.parametrize("name", ["logistic", "nested", "forest", "ready"])
def test_pipelines_learn_and_repeat_to_the_last_bit(name: str, file: Path, cohort: Cohort) -> None:
    first = results(cohort, f"{file}:{name}")
    assert first.name == f"mine.py:{name}"
    assert first.summary["accuracy"][0] >= 0.75
    again = results(cohort, f"{file}:{name}")
    pd.testing.assert_frame_equal(first.predictions, again.predictions, check_exact=True)


def test_recordings_of_a_subject_are_not_on_both_sides_of_a_pipelines_own_folds(file: Path, cohort: Cohort) -> None:
    changes = {"bags": "recording"}
    with pytest.raises(
        BadUse, match=r"mine\.py:nested cross-validates within its training set .* leave --bags recording"
    ):
        methods.for_cohort(cohort, f"{file}:nested", changes=changes)
    assert methods.for_cohort(cohort, f"{file}:logistic", changes=changes).bags == "recording"


@pytest.mark.parametrize("name", ["mdm", "tangent_space_tuned", "filter_bank"])
def test_the_examples_of_the_documentation_learn(name: str) -> None:
    pytest.importorskip("pyriemann")
    file = Path(__file__).parents[2] / "examples" / "own" / "pipelines.py"
    cohort = people(20, windows=3, effect=2.0)
    assert results(cohort, f"{file}:{name}", folds=3).summary["accuracy"][0] >= 0.75


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("three", r"must be, or return, a scikit-learn classifier, got int without fit.*expected: def NAME\(\)"),
        ("no_probabilities", "got SVC without predict_proba"),
        ("needs", "is called without depth, give them defaults"),
        ("misspelt", "features must be one of windows, epochs, covariances, mean_covariance; got 'covariance'"),
        ("raises", "the function failed with ValueError: first line … the cause"),
        ("flat", r"fit failed with ValueError.*X has one entry per subject \(features: windows\); expected: def"),
        ("Wide", r"predict_proba must give 1 x 2 probabilities .*shape \(1, 3\)"),
        ("logistik", "it has no logistik; did you mean logistic"),
    ],
)
def test_what_is_no_pipeline_is_refused_in_one_sentence(name: str, message: str, file: Path, cohort: Cohort) -> None:
    with pytest.raises(BadUse, match=message) as caught:
        results(cohort, f"{file}:{name}")
    assert "\n" not in str(caught.value)


def test_keyword_arguments_of_the_function_are_settings(file: Path, cohort: Cohort) -> None:
    method = f"{file}:logistic"
    assert methods.has_setting(method, "baseline.C")
    made = methods.for_cohort(cohort, method, changes={"baseline.C": 0.1, "baselines.reference": "recorded"})
    assert made.baseline == {"C": 0.1, "reference": "recorded"}
    assert baselines.create(made.source, made.baseline, cohort.signal).estimator[-1].C == 0.1
    with pytest.raises(BadUse, match=r"no setting baseline\.D; did you mean baseline\.C\?"):
        methods.for_cohort(cohort, method, changes={"baseline.D": 1})
    with pytest.raises(BadUse, match="no fixed features that could be adjusted"):
        methods.for_cohort(cohort, method, changes={"adjust": "age"})


def test_an_edited_pipeline_gives_new_runs_and_a_moved_one_none(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"

    def run(path: Path = file) -> pd.DataFrame:
        table: pd.DataFrame = results(cohort, f"{path}:logistic", out).predictions
        return table

    before = run()
    pd.testing.assert_frame_equal(run(), before)
    assert len(RunStore(out).finished()) == 3, "the same code is not run again"
    arrays = list((out / "features").rglob("*.npy"))
    file.write_text(EDITED)
    assert not run()["p_patient"].equals(before["p_patient"])
    assert len(RunStore(out).finished()) == 6
    assert list((out / "features").rglob("*.npy")) == arrays, "the arrays of an edited pipeline are the same"
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "mine.py").write_text(FILE)
    pd.testing.assert_frame_equal(run(tmp_path / "moved" / "mine.py"), before)
    assert len(RunStore(out).finished()) == 6
    labels = {cell.label for cell in build(RunStore(out)).cells}
    assert len(labels) == 2
    assert all(label.startswith("mine.py:logistic (mine.py ") for label in labels)


def test_two_workers_give_the_same_numbers_also_after_an_edit(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    for source in (FILE, EDITED):
        file.write_text(source)
        work = plan([cohort], [f"{file}:logistic"], out=tmp_path / "runs", folds=3)
        outcome = benchmark(work, Where(jobs=2, device="cpu"), progress=False)
        assert (outcome.done, outcome.failed) == (3, {})
        predictions = work.experiments[0].results(work.store).predictions
        expected = results(cohort, f"{file}:logistic").predictions
        pd.testing.assert_frame_equal(predictions, expected, check_exact=True)


def test_one_edited_between_planning_and_running_is_refused(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    work = plan([cohort], [f"{file}:logistic"], out=tmp_path / "runs", folds=3)
    file.write_text(FILE + "\n")
    outcome = benchmark(work, Where("inline", device="cpu"), progress=False)
    assert set(outcome.failed.values()) == {
        f"{file}:logistic: has changed since this run was planned; run the same command again"
    }


BY_RAY = """
import sys
from pathlib import Path
from bridgemil.engine.benchmark import Where, benchmark, plan
import ray
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
cohort, method, out = sys.argv[1:]
work = plan([cohort], [method], out=out, folds=3)
outcome = benchmark(work, Where("ray", device="cpu"), progress=False)
assert outcome.done == 3 and not outcome.failed, outcome
ray.shutdown()
"""


def test_on_ray_it_gives_the_same_numbers(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    method = f"{file}:logistic"
    words = [sys.executable, "-c", BY_RAY, str(cohort.path), method, str(tmp_path / "ray")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    finished = results(cohort, method, tmp_path / "ray")
    pd.testing.assert_frame_equal(finished.predictions, results(cohort, method).predictions, check_exact=True)
    assert len(RunStore(tmp_path / "ray").finished()) == 3


def test_noise_in_place_of_the_test_subjects_changes_no_fit(file: Path) -> None:
    cohort = people(12, windows=3, effect=0.5)
    chosen = methods.for_cohort(cohort, f"{file}:nested")
    train, test, rng = cohort.subjects[:8], cohort.subjects[8:], np.random.default_rng(9)
    bags = [rng.normal(0, 99, cohort.windows(s).shape) if s in test else cohort.windows(s) for s in cohort.subjects]
    noisy = Cohort.from_arrays(bags, cohort.labels, cohort.subjects, 200.0, cohort.channels)
    one, other = (fit(data, train, [], chosen).model.classifier.estimator for data in (cohort, noisy))
    assert one.cv_results_["mean_test_score"].tolist() == other.cv_results_["mean_test_score"].tolist()
    assert np.array_equal(one.best_estimator_[-1].coef_, other.best_estimator_[-1].coef_)


def test_ensembles_and_the_estimator_take_it_and_nothing_stores_it(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out, method = tmp_path / "runs", f"{file}:logistic"
    joined = results(cohort, f"{method}+bandpower", out)
    assert joined.name == "mine.py:logistic+bandpower"
    assert list(joined.members) == ["mine.py:logistic", "bandpower"]
    assert {cell.method for cell in build(RunStore(out)).cells} == {joined.name, *joined.members}
    store = RunStore(out)
    folder = store.run_folder(joined.members["mine.py:logistic"].runs[0])
    assert not list(folder.glob("*.safetensors"))
    with pytest.raises(BadUse, match=r"mine\.py:logistic is a pipeline of the user's own, and what it learnt was not"):
        store.model(folder.name)
    with pytest.raises(BadUse, match="a member is named twice"):
        results(cohort, f"{method}+{method}")
    with pytest.raises(BadUse, match=r"is your own pipeline and cannot be stored: models are arrays, never pickles"):
        train(cohort, tmp_path / "model", f"{method}+bandpower", folds=3)
    assert not (tmp_path / "model").exists()
    bags = [cohort.windows(subject) for subject in cohort.subjects]
    classifier = BridgeMILClassifier(method).fit(bags, cohort.labels)
    assert (classifier.predict(bags) == cohort.labels).mean() > 0.8
    with pytest.raises(BridgeMILError, match="cannot be stored"):
        classifier.save(tmp_path / "classifier")
    assert not (tmp_path / "classifier").exists()
