"""The scikit-learn face: its manners, all methods, and one person never on both sides of the validation split."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from bridgemil import BridgeMILClassifier, backbones, evaluate, methods
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.estimator import _validation
from bridgemil.evaluation.protocol import Protocol

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}
WITHOUT_GATES = {"majority_vote", "bandpower", "tangent"}
WITH_CONTRIBUTIONS = {"additive", "millet", "bandpower", "tangent"}


def quick(method: str) -> dict[str, Any]:
    return {key: value for key, value in QUICK.items() if methods.has_setting(method, key)}


def bags(n: int = 12, effect: float = 0.0, seed: int = 0, n_channels: int = 4) -> tuple[list[np.ndarray], np.ndarray]:
    """People of two kinds, bags of unequal length; the second kind has ``effect`` of slow waves."""
    rng = np.random.default_rng(seed)
    y, time, made = np.arange(n) % 2, np.arange(200) / 200, []
    for i in range(n):
        size = 4 + i % 3
        slow = (
            effect
            * y[i]
            * np.linspace(0, 2, n_channels)[:, None]
            * np.sin(2 * np.pi * 5 * time + rng.uniform(0, 6, (size, 1, 1)))
        )
        made.append((10 * (rng.normal(size=(size, n_channels, 200)) + slow)).astype(np.float32))
    return made, y


def as_epochs(bag: np.ndarray, sfreq: float = 200.0) -> Any:
    """A bag as MNE holds it: in volts, with its rate and channels, and a channel that is no EEG."""
    import mne

    names = [*["Fz", "Cz", "Pz", "Oz"][: bag.shape[1]], "EOG"]
    info = mne.create_info(names, sfreq, [*["eeg"] * bag.shape[1], "eog"])
    return mne.EpochsArray(np.concatenate([bag, bag[:, :1]], axis=1) * 1e-6, info, verbose="ERROR")


@pytest.fixture(scope="module")
def people() -> tuple[list[np.ndarray], np.ndarray]:
    return bags(16, effect=2.0)


@pytest.mark.parametrize("method", [*methods.names(), *methods.ablations(), "bandpower+tangent", "attention+bandpower"])
def test_every_method_fits_predicts_and_explains_what_it_can(method: str, tmp_path: Path) -> None:
    X, y = bags(8)
    clf = BridgeMILClassifier(method, budget="demo", sfreq=200, settings=quick(method)).fit(X, y)
    p = clf.predict_proba(X)
    assert p.shape == (8, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert set(clf.predict(X)) <= set(y)
    assert [len(e) for e in clf.embed(X)] == [
        1 if set(method.split("+")) <= {"bandpower", "tangent"} else len(b) for b in X
    ]
    for what, has in (
        ("gates", not set(method.split("+")) <= WITHOUT_GATES),
        ("contributions", bool(WITH_CONTRIBUTIONS & set(method.split("+")))),
    ):
        if has:
            assert [len(values) for values in getattr(clf, what)(X)] == [len(bag) for bag in X]
        else:
            with pytest.raises(BadUse, match=f"has no {what}"):
                getattr(clf, what)(X)
    clf.save(tmp_path / "clf")
    again = BridgeMILClassifier.load(tmp_path / "clf")
    assert np.array_equal(again.predict_proba(X), p)
    assert again.get_params() == clf.get_params()


@pytest.mark.parametrize("backbone", backbones.BACKBONES.built_in)
def test_every_backbone_and_recipe(backbone: str) -> None:
    X, y = bags(8, n_channels=8)
    settings = quick("attention") | {"stage2.min_steps": 0}
    clf = BridgeMILClassifier("attention", backbone, recipe="ours", budget="demo", sfreq=200, settings=settings).fit(
        X, y
    )
    assert clf.predict_proba(X).shape == (8, 2)


@pytest.mark.parametrize(
    ("method", "backbone"),
    [("bandpower", "eegnet"), ("tangent", "eegnet"), ("attention", "covariance"), ("bridgemil+tangent", "eegnet")],
)
def test_no_sampling_rate_is_guessed_where_it_matters(method: str, backbone: str) -> None:
    X, y = bags(6)
    with pytest.raises(BadUse, match=r"depends on the sampling rate .* BridgeMILClassifier\(sfreq=\.\.\.\)"):
        BridgeMILClassifier(method, backbone, budget="demo").fit(X, y)


def test_without_a_sampling_rate_a_network_that_does_not_use_it_is_the_same(tmp_path: Path) -> None:
    X, y = bags(6)
    how = {"budget": "demo", "settings": quick("bridgemil")}
    unknown = BridgeMILClassifier(**how).fit(X, y)
    assert (unknown.method, unknown.backbone, unknown.sfreq) == ("bridgemil", "eegnet", None)
    p = unknown.predict_proba(X)
    assert np.array_equal(p, BridgeMILClassifier(sfreq=128, **how).fit(X, y).predict_proba(X))
    unknown.save(tmp_path / "clf")
    assert json.loads((tmp_path / "clf/model/model.json").read_text())["signal"]["sfreq"] is None
    assert np.array_equal(BridgeMILClassifier.load(tmp_path / "clf").predict_proba(X), p)


def test_epochs_bring_their_rate_and_channels() -> None:
    X, y = bags(8)
    epochs = [as_epochs(bag) for bag in X]
    clf = BridgeMILClassifier("tangent").fit(epochs, y)
    signal = clf.model_.facts.signal
    assert (signal.sfreq, signal.channels) == (200, ("Fz", "Cz", "Pz", "Oz"))
    arrays = BridgeMILClassifier("tangent", sfreq=200, channels=signal.channels).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(epochs), arrays.predict_proba(X), atol=1e-4)
    with pytest.raises(BadUse, match="at 200 Hz, the Epochs have 100 Hz"):
        clf.predict([as_epochs(X[0], 100.0)])
    with pytest.raises(BadUse, match="takes the channels Fz, Cz, Pz, Oz in this order"):
        clf.predict([as_epochs(X[0]).reorder_channels(["Cz", "Fz", "Pz", "Oz"])])


def test_defaults_are_those_of_evaluate_but_for_method_and_backbone() -> None:
    theirs, mine = (
        dict(inspect.signature(Protocol).parameters) | dict(inspect.signature(evaluate).parameters),
        inspect.signature(BridgeMILClassifier).parameters,
    )
    shared = {"recipe", "budget", "settings", "device"}
    assert {name: mine[name].default for name in shared} == {name: theirs[name].default for name in shared}
    text = " ".join(BridgeMILClassifier.__doc__.split())
    assert f'BridgeMILClassifier("{methods.METHOD}", "{methods.BACKBONE}", sfreq=...)' in text


def test_an_effect_is_learnt_and_cross_validated(people: tuple[list[np.ndarray], np.ndarray]) -> None:
    X, y = people
    assert cross_val_score(BridgeMILClassifier("bandpower", sfreq=200), X, y, cv=4).mean() > 0.9
    p = cross_val_predict(BridgeMILClassifier("tangent", sfreq=200), X, y, cv=4, method="predict_proba")
    assert p.shape == (16, 2)


def test_grid_search_and_a_pipeline(people: tuple[list[np.ndarray], np.ndarray]) -> None:
    X, y = people
    gain = FunctionTransformer(lambda given: [2 * bag for bag in given])
    search = GridSearchCV(
        Pipeline([("gain", gain), ("mil", BridgeMILClassifier("bandpower", sfreq=200))]),
        {"mil__method": ["bandpower", "tangent"], "mil__settings": [None]},
        cv=StratifiedKFold(2),
    )  # fmt: skip
    search.fit(X, y)
    assert search.best_score_ > 0.9
    assert search.predict(X).shape == (16,)
    assert list(search.classes_) == [0, 1]


@pytest.mark.parametrize(
    "labels",
    [[10, 2], ["HC", "AD"], [True, False], [1.0, 0.0], np.array(["b", "a"], dtype=object), [-1, 10, 2]],
    ids=str,
)
def test_labels_of_any_type_in_their_own_order(labels: Any, tmp_path: Path) -> None:
    X, _ = bags(12)
    y = np.array([labels[i % len(labels)] for i in range(12)], dtype=np.asarray(labels).dtype)
    clf = BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    assert list(clf.classes_) == sorted(labels)
    assert clf.predict(X).dtype == y.dtype
    p = clf.predict_proba(X)
    assert np.array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(X))
    assert (clf.predict(X) == y).mean() > 0.8, "in the labels' own places"
    clf.save(tmp_path / "clf")
    again = BridgeMILClassifier.load(tmp_path / "clf")
    assert list(again.classes_) == list(clf.classes_)
    assert again.predict(X).dtype == y.dtype
    assert np.array_equal(again.predict(X), clf.predict(X))


def test_a_repeated_bag_is_never_on_both_sides() -> None:
    X, y = bags(10)
    settings = quick("attention")
    for seed in range(5):
        drawn = np.random.default_rng(seed).integers(0, 10, 30)
        if len(set(y[np.unique(drawn)])) < 2:
            continue
        clf = BridgeMILClassifier("attention", recipe="paper", budget="demo", seed=seed, settings=settings)
        clf.fit([X[i].copy() for i in drawn], y[drawn])
        held_back = set(drawn[clf.validation_])
        training = set(np.delete(drawn, clf.validation_))
        assert held_back
        assert training
        assert not held_back & training
        assert set(y[list(training)]) == {0, 1}


def test_groups_stay_together_and_repeated_bags_join_them() -> None:
    X, y = bags(16)
    groups = [f"family {i // 4}" for i in range(16)]
    how = {"recipe": "paper", "budget": "demo", "settings": quick("attention")}
    clf = BridgeMILClassifier("attention", **how, validation=0.3)
    clf.fit(X, y, groups)
    held_back = {groups[i] for i in clf.validation_}
    training = {groups[i] for i in range(16) if i not in set(clf.validation_)}
    assert held_back
    assert not held_back & training


def test_labels_and_groups_of_pandas_are_read_in_their_order_whatever_the_index() -> None:
    X, y = bags(16)
    groups = [f"family {i % 5}" for i in range(16)]
    how = {"recipe": "paper", "budget": "demo", "settings": quick("attention")}
    index = np.random.default_rng(0).permutation(16)
    plain = BridgeMILClassifier("attention", **how).fit(X, y, groups)
    for labels, families in ((y, pd.Series(groups, index=index)), (pd.Series(y, index=index + 100), groups)):
        clf = BridgeMILClassifier("attention", **how).fit(X, labels, families)
        assert np.array_equal(clf.validation_, plain.validation_)
        assert np.array_equal(clf.predict_proba(X), plain.predict_proba(X))


def test_the_share_of_validation_is_about_what_was_asked_for() -> None:
    X, y = bags(40)
    how = {"recipe": "paper", "budget": "demo", "settings": quick("attention")}
    for share in (0.1, 0.25, 0.5):
        clf = BridgeMILClassifier("attention", **how, validation=share).fit(X, y)
        assert len(clf.validation_) / 40 == pytest.approx(share, abs=0.05)
        assert set(y[clf.validation_]) == {0, 1}
    assert len(BridgeMILClassifier("bandpower", sfreq=200).fit(X, y).validation_) == 0, (
        "a baseline learns from everyone"
    )


@pytest.mark.parametrize("share", [0.05, 0.2, 0.7])
@pytest.mark.parametrize("counts", [(50, 50, 2), (50, 3), (30, 30)])
def test_a_small_class_does_not_change_how_many_of_the_others_are_held_back(
    counts: tuple[int, ...], share: float
) -> None:
    codes = np.repeat(np.arange(len(counts)), counts)
    held_back = _validation(codes, np.arange(len(codes)), share, 0, np.arange(len(counts)))
    for k, n in enumerate(counts):
        assert held_back[codes == k].sum() == min(max(1, round(share * n)), n - 1)


def test_groups_of_several_classes_are_held_back_whole_and_leave_every_class_to_train() -> None:
    rng = np.random.default_rng(0)
    for seed in range(50):
        units = rng.integers(0, 8, 40)
        codes = rng.choice(3, 40, p=[0.6, 0.3, 0.1])
        if min(len(set(units[codes == k])) for k in range(3)) < 2:
            continue
        held_back = _validation(codes, units, 0.3, seed, np.arange(3))
        assert not set(units[held_back]) & set(units[~held_back])
        assert 0 < held_back.mean() < 0.75
        assert set(codes[~held_back]) == {0, 1, 2}


@pytest.mark.parametrize("method", ["attention", "majority_vote", "bridgemil"])
def test_where_no_epoch_is_selected_nobody_is_held_back(method: str) -> None:
    X, y = bags(8)
    few, many = (
        BridgeMILClassifier(method, budget="demo", settings=quick(method), validation=share).fit(X, y)
        for share in (0.2, 0.5)
    )
    assert len(few.validation_) == len(many.validation_) == 0
    assert np.array_equal(few.predict_proba(X), many.predict_proba(X))


def test_a_bag_given_twice_counts_twice() -> None:
    X, y = bags(10)
    once = BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    twice = BridgeMILClassifier("bandpower", sfreq=200).fit([*X, X[0], X[0]], [*y, y[0], y[0]])
    assert twice.predict_proba(X[:1])[0, y[0]] > once.predict_proba(X[:1])[0, y[0]]


def test_the_same_call_gives_the_same_bits_and_another_seed_does_not() -> None:
    X, y = bags(8)
    made = [
        BridgeMILClassifier("bridgemil", budget="demo", seed=s, settings=quick("bridgemil")).fit(X, y)
        for s in (0, 0, 1)
    ]
    p = [clf.predict_proba(X) for clf in made]
    assert np.array_equal(p[0], p[1])
    assert not np.array_equal(p[0], p[2])


ELSEWHERE = """
import json, sys
import numpy as np
import pandas as pd
from bridgemil import BridgeMILClassifier
clf = BridgeMILClassifier.load(sys.argv[1])
X = [np.load(file) for file in sys.argv[2:]]
print(json.dumps([clf.predict_proba(X).tolist(), [g.tolist() for g in clf.gates(X)], clf.predict(X).tolist()]))
"""


def test_a_saved_classifier_says_the_same_in_another_process(tmp_path: Path) -> None:
    X, y = bags(8)
    names = np.where(y == 1, "patient", "control")
    clf = BridgeMILClassifier("bridgemil", budget="demo", settings=quick("bridgemil")).fit(X, names)
    clf.save(tmp_path / "clf")
    clf.save(tmp_path / "clf")  # a classifier may be replaced
    files = []
    for i, bag in enumerate(X):
        files.append(tmp_path / f"{i}.npy")
        np.save(files[-1], bag)
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "clf"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    p, gates, predicted = json.loads(done.stdout)
    assert p == clf.predict_proba(X).tolist()
    assert gates == [values.tolist() for values in clf.gates(X)]
    assert predicted == clf.predict(X).tolist()


def test_saving_and_loading_refuse_what_is_not_theirs(tmp_path: Path) -> None:
    X, y = bags(6)
    clf = BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("all there is")
    with pytest.raises(BadUse, match="is no classifier"):
        clf.save(tmp_path / "thesis")
    with pytest.raises(BadData, match="no classifier there"):
        BridgeMILClassifier.load(tmp_path / "thesis")
    clf.save(tmp_path / "clf")
    file = tmp_path / "clf" / "estimator.json"
    file.write_text(file.read_text().replace("bandpower", "tangent"))
    with pytest.raises(BadData, match=r"estimator\.json: was changed since it was written"):
        BridgeMILClassifier.load(tmp_path / "clf")
    with pytest.raises(NotFittedError):
        BridgeMILClassifier().save(tmp_path / "new")


def mistakes() -> dict[str, tuple[Any, Any, dict[str, Any], str]]:
    X, y = bags(6)
    selecting = {"method": "attention", "recipe": "paper"}
    return {
        "flat table": (np.zeros((6, 3)), y, {}, r"X\[0\]: a bag is an array"),
        "not a list": (3.0, y, {}, "X must be a list of bags"),
        "ragged": ([*X[:5], X[5][:, :2]], y, {}, "need one shape of 4 channels"),
        "NaN": ([*X[:5], X[5] * np.nan], y, {}, r"X\[5\]: contains NaN"),
        "no windows": ([*X[:5], X[5][:0]], y, {}, r"X\[5\]: a bag is"),
        "too few labels": (X, y[:4], {}, "6 bags, y has 4"),
        "one class": (X, np.zeros(6), {}, "one class only"),
        "two labels": ([*X, X[0]], [*y, 1 - y[0]], {}, "same bag under two labels"),
        "one person of a class": (X[:4], [0, 0, 0, 1], selecting, "too few subjects.*1 has 1"),
        "one person, four times": ([X[0], X[0], X[0], X[1]], [0, 0, 0, 1], selecting, "0 has 1, 1 has 1"),
        "share": (X, y, {"method": "attention", "validation": 1.5}, "between 0 and 1"),
        "method": (X, y, {"method": "magic"}, "method must be one of"),
        "channels": (X, y, {"channels": ["Fp1", "Fp2"]}, "2 channels x time"),
        "setting": (X, y, {"settings": {"baseline.depth": 2}}, "depth"),
        "rate": (X, y, {"sfreq": -1}, "sfreq is a rate in Hz, got -1"),
        "Epochs of one subject": (as_epochs(X[0]), y, {}, r"give \[epochs\]"),
        "Epochs of two rates": ([as_epochs(X[0]), as_epochs(X[1], 100.0), *X[2:]], y, {}, "differ in their rate"),
        "another rate than the Epochs'": ([as_epochs(x) for x in X], y, {"sfreq": 128}, "the Epochs have 200 Hz"),
        "other channels than the Epochs'": ([as_epochs(x) for x in X], y, {"channels": list("abcd")}, "leave it out"),
        "device": (X, y, {"device": "tpu"}, "device must be"),
    }  # fmt: skip


@pytest.mark.parametrize("what", mistakes())
def test_mistakes_are_sentences(what: str) -> None:
    X, y, parameters, words = mistakes()[what]
    with pytest.raises(ValueError, match=words):
        BridgeMILClassifier(**({"method": "bandpower", "sfreq": 200} | parameters)).fit(X, y)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, ""])
def test_missing_labels_are_refused_by_their_places(missing: Any) -> None:
    X, _ = bags(6)
    labels = ["a", "b", missing, "a", missing, "b"]
    for y in (labels, np.array(labels, dtype=object), pd.Series(labels, dtype=object)):
        with pytest.raises(BadUse, match=r"no label at y\[2\], y\[4\]"):
            BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    with pytest.raises(BadUse, match=r"no label at y\[2\]"):
        BridgeMILClassifier("bandpower", sfreq=200).fit(X, pd.Series([1, 2, None, 1, 2, 1], dtype="Int64"))


def test_parameters_of_numpy_are_saved_as_plain_ones(tmp_path: Path) -> None:
    X, y = bags(8)
    names = np.array(["Fz", "Cz", "Pz", "Oz"])
    clf = BridgeMILClassifier("bandpower", seed=np.int64(3), sfreq=np.float32(200), channels=names).fit(X, y)
    clf.save(tmp_path / "clf")
    again = BridgeMILClassifier.load(tmp_path / "clf")
    assert (again.seed, again.sfreq, again.channels) == (3, 200.0, ["Fz", "Cz", "Pz", "Oz"])
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_predicting_other_windows_is_refused() -> None:
    X, y = bags(6)
    clf = BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    with pytest.raises(ValueError, match=r"X\[1\]: the model takes windows of 4 channels x 200 samples"):
        clf.predict([X[0], X[0][:, :3]])
    assert clf.predict_proba([]).shape == (0, 2)


def test_volts_are_warned_of_in_predicting_as_in_fitting() -> None:
    X, y = bags(8)
    clf = BridgeMILClassifier("bandpower", sfreq=200).fit(X, y)
    volts = [bag * 1e-6 for bag in X]
    for call in (clf.predict, clf.predict_proba, clf.embed):
        with pytest.warns(BridgeMILWarning, match="looks like volts"):
            call(volts)
    with pytest.warns(BridgeMILWarning, match="looks like volts"):
        BridgeMILClassifier("bandpower", sfreq=200).fit(volts, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(X)
        clf.predict([])


def test_groups_need_one_entry_a_bag() -> None:
    X, y = bags(6)
    with pytest.raises(BadUse, match="groups has 2 entries"):
        BridgeMILClassifier("bandpower", sfreq=200).fit(X, y, groups=[1, 2])


# scikit-learn's own checks. They fit tables of numbers, so rows are turned into bags on the way.


AS_RECORDED = {"baseline.reference": "recorded"}  # numbers do not have an average reference


class OfRows(BridgeMILClassifier):
    """Rows of numbers as people: a channel a number, which decides how much of its power is theta."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> OfRows:
        return super().fit(_as_bags(X), y, groups)

    def _predictions(self, X: Any) -> Any:
        return super()._predictions(_as_bags(X))


def _as_bags(X: Any) -> Any:
    if isinstance(X, list) and all(isinstance(row, list) for row in X):
        X = np.array(X)
    if not isinstance(X, np.ndarray) or X.ndim != 2:
        return X
    time = np.arange(200) / 200
    theta, alpha = np.sin(2 * np.pi * 6 * time), np.sin(2 * np.pi * 10 * time)
    return [
        np.exp(5 * np.tanh(row / 50))[None, :, None] * theta + alpha + 0 * row[None, :, None] for row in X.astype(float)
    ]


TABLES = "about tables of numbers (their types, shape or columns), which bags are not"
NOT_OURS = {
    "check_n_features_in": TABLES,
    "check_fit2d_predict1d": TABLES,
    "check_complex_data": TABLES,
    "check_dtype_object": TABLES,
    "check_estimators_empty_data_messages": TABLES + "; bags without windows are tested above",
    "check_estimator_sparse_tag": TABLES,
    "check_estimator_sparse_array": TABLES,
    "check_estimator_sparse_matrix": TABLES,
    "check_classifier_data_not_an_array": TABLES,
    "check_array_api_input": "array API arrays are not offered",
}


def _checks() -> dict[str, Any]:
    class Table(OfRows):
        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True  # else scikit-learn yields no check at all
            return tags

    found = estimator_checks._yield_all_checks(Table("bandpower", sfreq=200, settings=AS_RECORDED), legacy=True)
    return {getattr(check, "func", check).__name__: check for check in found}


CHECKS = _checks()


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in NOT_OURS])
def test_scikit_learns_own_checks(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CHECKS[name]("BridgeMILClassifier", OfRows("bandpower", sfreq=200, settings=AS_RECORDED))


def test_enough_of_scikit_learns_checks_apply() -> None:
    assert set(NOT_OURS) <= set(CHECKS), "what scikit-learn no longer checks needs no reason"
    applied = set(CHECKS) - set(NOT_OURS)
    named = {
        "check_get_params_invariance", "check_set_params", "check_parameters_default_constructible",
        "check_no_attributes_set_in_init", "check_estimators_unfitted", "check_dict_unchanged", "check_fit_idempotent",
        "check_estimators_pickle", "check_classifiers_train", "check_classifiers_classes",
        "check_estimators_overwrite_params", "check_dont_overwrite_parameters", "check_methods_subset_invariance",
    }  # fmt: skip
    assert named <= applied


def test_clone_and_pickle() -> None:
    X, y = bags(6)
    clf = BridgeMILClassifier("attention", budget="demo", settings=quick("attention"), validation=0.4)
    assert clone(clf).get_params() == clf.get_params()
    again = pickle.loads(pickle.dumps(clf.fit(X, y)))  # noqa: S301 (ours, just made)
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert not hasattr(clone(clf), "model_")
