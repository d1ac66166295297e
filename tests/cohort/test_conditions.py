"""Tasks and conditions of manifests and flat folders; recordings as bags of one person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridgemil import Cohort, evaluate, prepare
from bridgemil import bundle as bundles
from bridgemil.audit import audit
from bridgemil.bundle.prediction import describe
from bridgemil.bundle.training import train
from bridgemil.cohort.sources import Recording, canonical, named
from bridgemil.cohort.views import RecordingBags
from bridgemil.errors import BadData, BadUse
from bridgemil.models import EnsembleModel, FitCache, ModelFacts, fit, predict_subject
from bridgemil.runs import RunStore
from recordings import MONTAGE, noise, write_edf


def flat(root: Path, n: int = 6, column: str = "") -> Path:
    """Two recordings of each person, eyes closed and open; patients are louder with closed eyes."""
    rows = [f"subject,label,file,age{',' if column else ''}{column}"]
    for i in range(n):
        for k, name in enumerate(("EC", "EO")):
            signal = noise(2 * i + k, 8, 250) * (1.5 if i % 2 and not k else 1)
            write_edf(root / f"P{i:02d} {name}.edf", signal, 250, MONTAGE)
            value = f",{('closed eyes', 'open eyes')[k]}" if column else ""
            rows.append(f"P{i:02d},{'ac'[i % 2]},P{i:02d} {name}.edf,{50 + i}{value}")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.mark.parametrize(
    ("file", "subject", "found"),
    [
        ("P01 EC.edf", "P01", "eyes_closed"),
        ("a/EC01_eyes-open_run2.edf", "EC01", "eyes_open"),
        ("sub-01/eeg/sub-01_task-eyesclosed_eeg.set", "sub-01", "eyes_closed"),
        ("resting_state_EyesOpen1.bdf", "x", "eyes_open"),
        ("S3_EO2.edf", "S3", "eyes_open"),
        ("P01 rest.edf", "P01", "rest"),
    ],
)
def test_names_say_the_condition_but_not_the_subjects(file: str, subject: str, found: str) -> None:
    words = named(Recording(subject, Path(file), file))
    assert found in words
    assert len(words & {"eyes_closed", "eyes_open"}) == (found != "rest")
    assert canonical("Eyes closed") == canonical("EC") == canonical("eyes_closed_2") == "eyes_closed"


def test_one_condition_of_a_flat_folder_is_chosen_by_name(tmp_path: Path) -> None:
    source = flat(tmp_path / "r")
    cohort = prepare(source, tmp_path / "c", condition="eyes_closed", jobs=1, progress=False)
    assert [record.recordings for record in cohort.records.values()] == [(f"P{i:02d} EC.edf",) for i in range(6)]
    assert {"what": "P00, P00 EO.edf", "why": "not of the condition 'eyes_closed'"} in cohort.metadata["left_out"]
    same = prepare(source, tmp_path / "d", condition="*ec.EDF", jobs=1, progress=False)
    assert same.hash == cohort.hash
    whole = prepare(source, tmp_path / "e", jobs=1, progress=False)
    assert "2 conditions are used together: eyes_closed, eyes_open" in " ".join(whole.metadata["notes"])
    with pytest.raises(BadUse, match="--condition asleep: no recording is of it; there are eyes_closed, eyes_open"):
        prepare(source, tmp_path / "f", condition="asleep", jobs=1, progress=False)
    table = source / "manifest.csv"
    for who in ("P03", "P04"):
        (source / f"{who} EC.edf").rename(source / f"{who} rest.edf")
        table.write_text(table.read_text().replace(f"{who} EC.edf", f"{who} rest.edf"))
    with pytest.raises(BadData, match="P03: has no recording of the condition 'EC'"):
        prepare(source, tmp_path / "f", condition="EC", jobs=1, progress=False)
    assert len(prepare(source, tmp_path / "f", task="rest", jobs=1, progress=False, skip_bad=True)) == 2


@pytest.mark.filterwarnings("ignore:no labels")
def test_a_column_wins_over_the_names(tmp_path: Path) -> None:
    source = flat(tmp_path / "r", column="Condition")
    cohort = prepare(source, tmp_path / "c", condition="eyes_open", jobs=1, progress=False, unlabelled=True)
    assert cohort.records["P01"].recordings == ("P01 EO.edf",)
    assert cohort.column("Condition") == ["open eyes"] * 6


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    root = tmp_path_factory.mktemp("conditions")
    return prepare(flat(root / "r", 12), root / "c", jobs=2, progress=False)


def test_recordings_are_bags_of_their_person(cohort: Cohort) -> None:
    view = RecordingBags(cohort)
    assert view.subjects[:3] == ["P00/1", "P00/2", "P01/1"]
    both = np.concatenate([view.windows("P01/1"), view.windows("P01/2")])
    np.testing.assert_array_equal(both, cohort.windows("P01"))
    assert len({record.signal_hash for record in view.records.values()}) == 24
    for mine, whole in zip(
        view.normalisation(view.of(["P01", "P02"])), cohort.normalisation(["P01", "P02"]), strict=True
    ):
        np.testing.assert_array_equal(mine, whole)


@pytest.mark.parametrize("method", ["bandpower", "attention"])
def test_people_are_held_out_whole_and_their_probability_is_the_mean(
    cohort: Cohort, tmp_path: Path, method: str
) -> None:
    settings = {} if method == "bandpower" else {"stage2.epochs": 2}
    how = {"budget": "demo", "folds": 3, "baselines": False, "progress": False, "settings": settings, "seeds": 1}
    results = evaluate(cohort, method, out=tmp_path / "runs", bags="recording", **how)
    usual = evaluate(cohort, method, out=tmp_path / "runs", **how)
    assert sorted(results.predictions["subject"]) == cohort.subjects, "n is people"
    assert results.split == usual.split
    assert set(results.runs).isdisjoint(usual.runs)
    assert "bags" not in usual.settings.changed

    store = RunStore(tmp_path / "runs")
    metadata, model = store.metadata(results.runs[0]), store.model(results.runs[0])
    subject = metadata["test"][0]
    lengths = cohort.records[subject].recording_windows
    parts = np.split(cohort.windows(subject), [lengths[0]])
    mean = np.mean([model.predict(part).probabilities for part in parts], axis=0)
    stored = results.predictions.set_index("subject").loc[subject, ["p_a", "p_c"]].to_numpy(dtype=float)
    np.testing.assert_allclose(stored, mean, atol=1e-6)
    if method != "bandpower":
        return
    recomputed = [f for f in audit(cohort, tmp_path / "runs").findings if f.name == "recomputed"]
    assert [finding.status for finding in recomputed] == ["PASS"], recomputed


def test_two_bags_of_a_person_train_as_two(cohort: Cohort) -> None:
    from bridgemil.methods import for_cohort

    settings = for_cohort(cohort, "bandpower", changes={"bags": "recording"})
    model = fit(cohort, cohort.subjects[:8], (), settings).model
    one = predict_subject(model, cohort, cohort.subjects[9], FitCache())
    view = RecordingBags(cohort)
    same = fit(view, view.of(cohort.subjects[:8]), (), for_cohort(cohort, "bandpower")).model
    p = [same.predict(view.windows(name)).probabilities for name in view.of([cohort.subjects[9]])]
    np.testing.assert_allclose(one.probabilities, np.mean(p, axis=0), rtol=1e-12)
    both = for_cohort(cohort, "tangent+bandpower", changes={"bags": "recording"})
    ensemble = EnsembleModel(ModelFacts.of(cohort, both, 0), {"fold-01": model})
    pooled = predict_subject(ensemble, cohort, cohort.subjects[9], FitCache())
    np.testing.assert_allclose(pooled.probabilities, one.probabilities, rtol=1e-12)
    with pytest.raises(BadUse, match="bags: should be 'subject' or 'recording'"):
        for_cohort(cohort, "bandpower", changes={"bags": "person"})


def test_a_model_of_single_recordings_says_so(cohort: Cohort, tmp_path: Path) -> None:
    made = train(cohort, tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False, bags="recording")
    cautions = " ".join(describe(bundles.load(made.bundle.folder))["cautions"])
    assert "trained on 2 recordings per subject (median), one by one" in cautions
