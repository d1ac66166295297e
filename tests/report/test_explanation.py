"""Explanations: of the prediction, by the model that did not see the person; and they say when they say nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bridgemil.backbones.covariance import Feature
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.signal import CLINICAL_BANDS
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.run import Run
from bridgemil.methods import for_cohort
from bridgemil.models import LazyBag, fit
from bridgemil.report.explanation import Person, Ranking, Removal, explain, removal_test
from bridgemil.report.held_out import band_shares, find, observed_frequency, reliability_warnings
from bridgemil.report.scalp import electrode_table, haufe, pair_table, scalp_maps
from bridgemil.report.window_values import WindowValues, against_others, read
from bridgemil.runs import RunStore, open_store
from people import people

METHODS = ("attention", "bridgemil", "millet", "majority_vote", "tangent")
WHO = "subject-004"


@pytest.mark.parametrize("method", METHODS)
def test_an_explanation_is_of_the_prediction_that_was_made(explained: RunStore, method: str) -> None:
    held = find(explained, WHO, method=method)
    stored = explained.predictions(held.identity).set_index("subject").loc[WHO]
    found = explain(held.model(), held.person)
    assert found.classes[found.predicted] == stored["predicted"]
    np.testing.assert_allclose(found.probabilities, stored[["p_control", "p_patient"]].astype(float), atol=1e-6)
    assert len(found.windows) == len(held.person.bag)
    assert found.rankings


@pytest.mark.parametrize("method", ["attention", "millet"])
def test_contributions_sum_to_the_logits(explained: RunStore, method: str) -> None:
    held = find(explained, WHO, method=method)
    found = explain(held.model(), held.person)
    logits = found.windows[["contribution_control", "contribution_patient"]].sum().to_numpy()
    p = np.exp(logits - logits.max())
    np.testing.assert_allclose(p / p.sum(), found.probabilities, atol=1e-5)
    own = found.classes[found.predicted]
    other = next(name for name in found.classes if name != own)
    difference = found.windows[f"contribution_{own}"] - found.windows[f"contribution_{other}"]
    np.testing.assert_allclose(found.windows["contribution"], difference, atol=1e-7)


def test_a_windows_share_in_tangents_score_is_exact(explained: RunStore) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    contributions = read(model, held.person.bag).contributions
    members = model.classifier.members
    features = model.embed(held.person.bag)[0]
    logits = [
        (m.coefficients * ((features[a:b] - m.mean) / m.scale)).sum(axis=1) + m.intercept
        for m, (a, b) in zip(members, model.classifier.slices, strict=True)
    ]
    mean = np.mean(logits, axis=0)
    np.testing.assert_allclose(contributions.sum(axis=0), mean - mean.mean(), atol=1e-5)
    np.testing.assert_allclose(against_others(contributions).sum(axis=0), mean - mean[::-1], atol=1e-5)


def test_models_of_the_same_features_share_one_array(explained: RunStore) -> None:
    bag = LazyBag.of(find(explained, WHO, method="attention").person.bag)
    for method in ("attention", "tangent"):
        model = find(explained, WHO, method=method).model()
        first, second = (read(model, bag) for _ in range(2))
        first.weights()
        assert np.shares_memory(first.features, second.features)
        assert first.features.dtype == np.float32


@pytest.mark.parametrize("method", ["attention", "majority_vote"])
def test_a_networks_weights_say_what_a_small_change_of_all_windows_does(explained: RunStore, method: str) -> None:
    import torch

    held = find(explained, WHO, method=method)
    model = held.model()
    network, reading = model.network, read(model, held.person.bag)
    ((_, weights),) = reading.weights()
    direction = np.random.default_rng(0).normal(size=weights.shape[1])
    scores = []
    for step in (-1e-2, 1e-2):
        x = torch.from_numpy((reading.features + step * direction).astype(np.float32))
        with torch.no_grad():
            h = network.encoder(x)
            logits = network.aggregate(h, [len(h)]).logits[0] if method == "attention" else network.head(h).mean(dim=0)
        logits = logits.double().numpy()
        scores.append(logits[1] - logits[0])
    assert (scores[1] - scores[0]) / 2e-2 == pytest.approx(weights[1] @ direction, rel=2e-2)


def test_the_model_did_not_see_the_person(explained: RunStore) -> None:
    for subject in ("subject-001", WHO, "subject-012"):
        held = find(explained, subject, method="attention")
        assert subject in held.metadata["test"]
        assert subject not in [*held.metadata["train"], *held.metadata["validation"]]
        assert f"fold {held.metadata['fold']} of 3" in held.sentence
        features, words = held.background(held.model())
        assert features is not None
        assert "training subjects" in words


def test_a_run_on_a_part_of_the_windows_is_explained_by_these_windows(explained: RunStore, tmp_path: Path) -> None:
    cohort = Cohort.open(explained.root.parent / "cohort")
    part = {subject: tuple(range(8, 12)) for subject in cohort.subjects}
    people = [tuple(cohort.subjects[i::3]) for i in range(3)]
    who = Fold(1, (*people[0], *people[1]), (), people[2], part)
    run = Run(cohort, who, for_cohort(cohort, "tangent"), 0, {"k": 3, "part": "four windows"})
    store = open_store(tmp_path)
    said = store.predictions(run.perform(store, torch.device("cpu"))).set_index("subject")
    subject = people[2][0]
    found = find(store, subject)
    model = found.model()
    explanation = explain(model, found.person, *found.background(model))
    assert len(found.person.bag) == 4
    assert found.person.starts.tolist() == cohort.window_starts(subject)[8:12].tolist()
    np.testing.assert_allclose(explanation.probabilities, said.loc[subject, ["p_control", "p_patient"]].astype(float))
    features, _ = found.background(model)
    first = cohort.windows(min(people[0]))[8:12]
    np.testing.assert_allclose(features[0], model.baseline.features(first), rtol=1e-4, atol=1e-5)


def test_candidates_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    (tmp_path / "pipe.py").write_text(
        "from sklearn.dummy import DummyClassifier\n\ndef mine():\n    return DummyClassifier(strategy='prior')\n"
    )
    cohort, how = people(6, windows=3), {"folds": 3, "baselines": False, "progress": False, "out": tmp_path / "runs"}
    network = {"recipe": "paper", "threads": 1, **how}
    for budget, epochs in (("demo", 1), ("demo", 2), ("laptop", 1)):
        settings = {"stage2.epochs": epochs, "stage2.burn_in": 0}
        evaluate(cohort, "attention", "eegnet", budget=budget, settings=settings, **network)
    evaluate(cohort, "bandpower", **how)
    evaluate(cohort, f"{tmp_path / 'pipe.py'}:mine", **how)
    store, who = RunStore(tmp_path / "runs"), cohort.subjects[0]
    with pytest.raises(BadUse) as caught:
        find(store, who)
    for words in ("budget demo, stage2.epochs 1 (--run", "budget demo, stage2.epochs 2", "budget laptop"):
        assert words in str(caught.value)
    assert str(caught.value).count("--run ") == 3
    assert "split" not in str(caught.value)
    with pytest.raises(BadUse, match="method must be one of attention, bandpower "):
        find(store, who, method="mine")


def test_what_is_not_clear_is_refused(explained: RunStore, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="several runs held subject-004 out; choose with --method or --run: attention"):
        find(explained, WHO)
    with pytest.raises(BadUse, match="no finished run held 'sub-99' out; held out were subject-001"):
        find(explained, "sub-99")
    with pytest.raises(BadUse, match="ensemble"):
        find(explained, WHO, method="attention+tangent")
    with pytest.raises(BadUse, match="method must be one of"):
        find(explained, WHO, method="timemil")
    with pytest.raises(BadData, match="no finished run"):
        find(RunStore(tmp_path), WHO)
    held = find(explained, WHO, method="tangent")
    assert find(explained, WHO, run=held.identity[:8]).identity == held.identity
    other = tmp_path / "other"
    shutil.copytree(held.cohort.path, other)
    assert find(explained, WHO, method="tangent", cohort=other).cohort.path == other
    with pytest.raises(BadData, match="no cohort there"):
        find(explained, WHO, method="tangent", cohort=tmp_path / "none")


def test_the_only_network_is_taken_among_baselines(explained: RunStore, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for identity in explained.finished():
        if explained.metadata(identity)["settings"]["method"] in ("attention", "tangent"):
            shutil.copytree(explained.run_folder(identity), store.run_folder(identity))
    assert find(store, WHO).metadata["settings"]["method"] == "attention"


def test_haufes_pattern_is_the_formula_and_leaves_out_what_only_cancels_noise() -> None:
    rng = np.random.default_rng(0)
    signal, noise = rng.normal(size=500), rng.normal(size=500)
    features = np.stack([signal + noise, noise, rng.normal(size=500)], axis=1)
    weights = np.array([1.0, -1.0, 0.0])  # the second feature is read only to take the noise out of the first
    pattern = haufe(features, weights)
    covariance = np.cov(features.T)
    np.testing.assert_allclose(pattern, covariance @ weights / np.var(features @ weights, ddof=1), atol=1e-10)
    assert pattern[0] == pytest.approx(1, abs=0.1)
    assert abs(pattern[1]) < 0.1
    assert not haufe(np.ones((4, 3)), weights).any()


def test_pairs_fold_back_to_electrodes() -> None:
    names = [
        Feature("covariance", "8-13 Hz", *pair)
        for pair in (("Fz", "Fz"), ("Fz", "Cz"), ("Fz", "Pz"), ("Cz", "Cz"), ("Cz", "Pz"), ("Pz", "Pz"))
    ]
    pairs = pd.DataFrame(names).assign(weight=0.0, pattern=[1.0, -2.0, 3.0, 4.0, 5.0, -6.0])
    pairs.insert(0, "class", "AD")
    table = electrode_table(pairs).set_index("electrode")
    assert table["own"].to_dict() == {"Fz": 1.0, "Cz": 4.0, "Pz": -6.0}
    assert table["coupling"].to_dict() == {"Fz": 5.0, "Cz": 7.0, "Pz": 8.0}
    features = np.random.default_rng(0).normal(size=(20, 6))
    made = pair_table(names, [(slice(0, 6), np.stack([np.arange(6.0), -np.arange(6.0)]))], features, ["AD", "HC"])
    assert made.loc[1, "weight"] == pytest.approx(np.sqrt(2))
    assert made.loc[1, "pattern"] == pytest.approx(haufe(features, np.arange(6.0))[1] / np.sqrt(2))


def test_maps_need_known_electrodes(explained: RunStore) -> None:
    held = find(explained, WHO, method="tangent")
    found = explain(held.model(), held.person)
    rows, unknown = scalp_maps(found.electrodes, "patient")
    assert [row.quantity for row in rows] == ["own", "coupling", "power"]
    assert not unknown
    assert all(scalp.picture.startswith("data:image/png;base64,") for row in rows for scalp in row.maps)
    numbered = {name: f"E{i}" for i, name in enumerate(dict.fromkeys(found.electrodes["electrode"]))}
    rows, unknown = scalp_maps(found.electrodes.replace({"electrode": numbered}), "patient")
    assert unknown == list(numbered.values())
    assert all(scalp.picture is None and len(scalp.values) == 19 for row in rows for scalp in row.maps)


def test_slow_waves_of_patients_show_at_four_to_eight_hertz(explained: RunStore) -> None:
    held = find(explained, WHO, method="tangent")
    model = held.model()
    found = explain(model, held.person, *held.background(model))
    patient = found.electrodes[found.electrodes["class"] == "patient"]
    power = patient.groupby("band")["power"].mean()
    assert power.idxmax() == "4-8 Hz"
    assert "training subjects" in found.notes[0]
    assert "the subject's own windows" in explain(model, held.person).notes[0]


def test_flat_gates_are_called_flat() -> None:
    rng = np.random.default_rng(0)
    flat = Ranking("gate", 0.5 + 0.001 * rng.normal(size=100), None)
    assert flat.is_flat
    assert "do not single out windows: they are nearly equal" in flat.verdict
    assert "5-95 %" in flat.sentences[0]
    moved = Ranking("gate", flat.values, Removal("AD", 10, 0.2, np.full(20, 0.01)))
    assert not moved.singles_out, "what moves the prediction is not the weights"
    spread = Ranking("gate", rng.uniform(size=100), None)
    assert not spread.is_flat
    assert "nearly equal" not in spread.verdict


def toy(values: np.ndarray) -> WindowValues:
    """The probability of the second class rises with the mean value of the windows that are left."""

    def probabilities(keep: np.ndarray) -> np.ndarray:
        p = 1 / (1 + np.exp(-values[keep].mean()))
        return np.array([1 - p, p])

    return WindowValues(probabilities)


def test_the_removal_test_tells_windows_that_matter_from_windows_that_do_not() -> None:
    values = np.zeros(100)
    values[:10] = 30.0
    model = toy(values)
    p = model.probabilities(np.arange(100))
    found = removal_test(model, values, "AD", 1)
    assert found.n == 10
    assert found.top == pytest.approx(0.5 - p[1])
    assert len(found.random) == 20
    assert found.more_than_chance
    unrelated = removal_test(model, np.random.default_rng(1).normal(size=100), "AD", 1)
    assert not unrelated.more_than_chance
    assert not Ranking("gate", np.arange(100.0), unrelated).singles_out
    assert Ranking("gate", np.arange(100.0), found).singles_out
    assert not Ranking("gate", np.full(100, 0.5), found).singles_out
    assert removal_test(model, values[:1], "AD", 1) is None
    assert "1 window)" in Ranking("gate", np.arange(2.0), Removal("AD", 1, 0.1, np.zeros(20))).verdict
    halved = removal_test(model, values, "AD", 1, lambda p: (p + 0.5) / 2)
    assert halved.top == pytest.approx(found.top / 2), "it is of the probability that is shown"


def test_several_models_are_averaged(explained: RunStore) -> None:
    held = find(explained, WHO, method="attention")
    models = [
        explained.model(identity)
        for identity in sorted(explained.finished())
        if _method(explained, identity) == "attention"
    ]
    found = explain(models, held.person)
    expected = np.mean([model.predict(held.person.bag).probabilities for model in models], axis=0)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    gates = np.mean([model.predict(held.person.bag).gates for model in models], axis=0)
    np.testing.assert_allclose(found.windows["gate"], gates, atol=1e-6)


def test_patterns_are_of_the_models_whose_features_the_background_is_of(explained: RunStore) -> None:
    held = find(explained, WHO, method="attention")
    cohort = held.cohort
    power = fit(cohort, held.metadata["train"], [], for_cohort(cohort, "bandpower")).model
    background = np.stack([power.baseline.features(cohort.windows(who)) for who in held.metadata["train"]])
    network = held.model()
    both = explain([network, power], held.person, background, "the training people")
    alone = explain(power, held.person, background, "the training people")
    np.testing.assert_allclose(both.pairs["pattern"], alone.pairs["pattern"])
    assert "Scalp maps show some of the member models: the others have other features." in both.notes
    assert any("over the training people" in note for note in both.notes)


def test_patterns_over_the_persons_own_windows_are_called_so(explained: RunStore) -> None:
    held = find(explained, WHO, method="attention")
    found = explain(held.model(), held.person, np.zeros((3, 7)), "the training people")
    assert found.notes[-1].endswith("over the subject's own windows (those of training subjects are not available).")
    pd.testing.assert_frame_equal(found.pairs, explain(held.model(), held.person).pairs)


def _method(explained: RunStore, identity: str) -> str:
    return str(explained.metadata(identity)["settings"]["method"])


def test_csv_holds_all_of_it(explained: RunStore, tmp_path: Path) -> None:
    held = find(explained, WHO, method="attention")
    found = explain(held.model(), held.person)
    written = found.write_csv(tmp_path / "csv")
    assert [file.name for file in written] == ["windows.csv", "pairs.csv", "electrodes.csv"]
    windows = pd.read_csv(written[0])
    assert list(windows.columns[:5]) == ["window", "recording", "second", "gate", "contribution"]
    assert windows["recording"].nunique() == 2
    assert len(pd.read_csv(written[1])) == 2 * (6 * 190 + 6 * 19)
    assert len(pd.read_csv(written[2])) == 2 * 6 * 19


def test_calibration_counts_other_people_near_the_probability() -> None:
    table = pd.DataFrame(
        {"subject": list("abcdefg"), "label": ["AD"] * 4 + ["HC"] * 3, "p_AD": [0.7, 0.72, 0.68, 0.1, 0.75, 0.65, 0.7]}
    )
    found = observed_frequency(table, "a", "AD", 0.7)
    assert found.startswith("Observed frequency of AD among 5 other held-out subjects")
    assert found.endswith("between 60% and 80%: 40%.")
    assert "too few" in observed_frequency(table, "a", "AD", 0.1)


def test_a_method_no_better_than_chance_is_warned_of() -> None:
    good = pd.DataFrame({"seed": 0, "fold": [0, 1] * 10, "subject": range(20), "label": ["a", "b"] * 10})
    assert reliability_warnings(good.assign(predicted=good["label"])) == []
    assert "not better than chance" in reliability_warnings(good.assign(predicted="a"))[0]


def test_band_shares_are_percent_of_the_power() -> None:
    time = np.arange(200) / 200
    bag = (np.sin(2 * np.pi * 10 * time) * np.ones((5, 3, 1))).astype(np.float32)
    shares = band_shares(bag, 200.0, tuple(CLINICAL_BANDS.values()))
    assert shares.shape == (3, len(CLINICAL_BANDS))
    assert shares.sum(axis=1) == pytest.approx(100)
    assert (shares[:, 2] > 95).all()


def test_windows_and_their_times_must_fit() -> None:
    bag = np.zeros((4, 2, 10), dtype=np.float32)
    with pytest.raises(BadData, match="4 windows, but 3 times"):
        Person("x", bag, np.arange(3.0))
    with pytest.raises(BadData, match="its recordings have 5"):
        Person("x", bag, np.arange(4.0), [("a", 5)])
