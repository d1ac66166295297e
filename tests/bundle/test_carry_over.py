"""Does a model carry over: external validation refuses training subjects, adaptation moves features alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgemil import bundle as bundles
from bridgemil.bundle.adaptation import adapt
from bridgemil.bundle.bundle import Bundle
from bridgemil.bundle.novelty import TrainingSignals
from bridgemil.bundle.page import write_validation
from bridgemil.bundle.prediction import RecordingPrediction, predict
from bridgemil.bundle.training import train
from bridgemil.bundle.validation import validate
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.errors import BadData, BadUse, BridgeMILWarning
from bridgemil.evaluation.calibration import Calibration, calibration_line, fit_shift, from_json
from bridgemil.models import EnsembleModel
from command import bridgemil
from recordings import MONTAGE, noise, write_edf

SFREQ = 250.0
SEXES = "FM"


def eeg(seed: int, slow: float, site: float = 1.0, seconds: float = 12) -> np.ndarray:
    """Noise; patients have slow waves. At another site the amplifier multiplies what is below 8 Hz."""
    rng = np.random.default_rng(seed)
    signal = noise(seed, seconds, SFREQ) + 8 * rng.normal(size=round(seconds * SFREQ))
    time, gains = np.arange(signal.shape[1]) / SFREQ, np.linspace(0.2, 2, len(MONTAGE))[:, None]
    signal += gains * slow * np.sin(2 * np.pi * 5 * time + rng.uniform(0, 6)) * rng.uniform(0.7, 1.3)
    spectrum, frequency = np.fft.rfft(signal), np.fft.rfftfreq(len(time), 1 / SFREQ)
    spectrum[:, frequency < 8] *= site
    return np.fft.irfft(spectrum, len(time))


def recordings(root: Path, seeds: range, site: float = 1.0, ill: int = 2) -> Path:
    """A folder with a manifest; one in ``ill`` is a patient."""
    rows = ["subject,label,file,age,sex"]
    for i in seeds:
        patient = i % ill == 1
        write_edf(root / f"p{i}.edf", eeg(i, 12.0 * patient, site), SFREQ, MONTAGE)
        rows.append(f"p{i},{('control', 'patient')[patient]},p{i}.edf,{50 + i % 20},{SEXES[i // 2 % 2]}")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training recordings, a model of two members, and other subjects at the same site and at another one."""
    root = tmp_path_factory.mktemp("sites")
    cohort = prepare(recordings(root / "training", range(24)), root / "cohort", jobs=1, progress=False)
    how: dict[str, Any] = {"settings": {"stage2.epochs": 2, "stage2.burn_in": 0}, "budget": "demo"}
    train(
        cohort, root / "model", "tangent+attention", "covariance", folds=3, baselines=False, progress=False, **how
    )  # fmt: skip
    recordings(root / "same", range(100, 116))
    recordings(root / "other", range(200, 224), site=1.3)
    prepare(root / "same", root / "same.cohort", jobs=1, progress=False)
    return root


@pytest.fixture
def bundle(root: Path) -> Bundle:
    return bundles.load(root / "model")


def controls(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("p*.edf")) if int(file.stem[1:]) % 2 == 0]


def patients(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("p*.edf")) if int(file.stem[1:]) % 2 == 1]


def answers(bundle: Bundle, files: list[Path]) -> list[RecordingPrediction]:
    found = list(predict(bundle, files))
    assert all(isinstance(one, RecordingPrediction) for one in found)
    return found  # type: ignore[return-value]


# Signals


def test_a_part_of_a_training_signal_is_recognised_whatever_its_gain_sign_and_reference(root: Path) -> None:
    cohort = Cohort.open(root / "cohort")
    signals = TrainingSignals.of(map(cohort.windows, cohort.subjects), cohort.signal)
    again = TrainingSignals(*signals.tensors().values())
    for number, subject in enumerate(cohort.subjects):
        bag = cohort.windows(subject)
        assert again.holds(bag, cohort.signal)
        if number < 5:
            changed = -3 * (bag - bag.mean(axis=1, keepdims=True))
            assert again.holds(changed[3:], cohort.signal)
    for subject in (other := Cohort.open(root / "same.cohort")).subjects:
        assert not again.holds(other.windows(subject), other.signal)


# Validation


def test_a_training_subject_is_refused_and_can_be_left_out(root: Path, bundle: Bundle) -> None:
    with pytest.raises(BadData, match="24 of 24 subjects were used to train"):
        validate(bundle, root / "cohort", progress=False)
    mixed = root / "mixed"
    rows = (root / "training" / "manifest.csv").read_text().splitlines()[:4]
    rows += (root / "same" / "manifest.csv").read_text().splitlines()[1:7]
    for name in [row.split(",")[2] for row in rows[1:]]:
        source = next(f for f in (root / "training" / name, root / "same" / name) if f.exists())
        (mixed / name).parent.mkdir(exist_ok=True)
        (mixed / name).write_bytes(source.read_bytes())
    (mixed / "manifest.csv").write_text("\n".join(rows) + "\n")
    found = validate(bundle, mixed, label="label", exclude_known=True, progress=False)
    assert len(found.predictions) == 6
    assert {item["what"] for item in found.left_out} == {"p0", "p1", "p2"}


def test_validation_of_a_cohort_agrees_with_predict_and_is_written(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    done = bridgemil(
        "validate", root / "model", root / "same.cohort", "--json", "--report", tmp_path / "page.html"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    rows = {row["subject"]: row for row in content["subjects"]}
    for one in answers(bundle, sorted((root / "same").glob("p*.edf"))[:4]):
        row = rows[one.recording.path.stem]
        assert [row["p_control"], row["p_patient"]] == pytest.approx(one.probabilities.tolist())
        assert row["percentile"] == pytest.approx(one.percentile)
        assert tuple(row["prediction_set"]) == one.prediction_set
    assert content["n_subjects"] == 16
    assert content["sensitivity"]["value"] > 0.7
    assert content["auroc"]["ci95"][0] <= content["auroc"]["value"]
    assert set(content["calibration"]) == {"error", "slope", "intercept"}
    assert len(content["curves"]["decision_curve"]["threshold"]) == 99
    assert {row["group"] for row in content["subgroups"]} == {"sex F", "sex M", "age 57.5 or less", "age above 57.5"}
    assert content["internal"]["performance"]["auroc"]["value"] > 0.7
    page = (tmp_path / "page.html").read_text()
    for words in ("External validation", "calibration slope", "Decision curve", "sex F", "p115"):
        assert words in page, words


def test_one_class_gives_specificity_and_says_what_is_missing(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    found = validate(bundle, root / "same.cohort", classes={"control": "control"}, progress=False)
    assert "specificity" in found.measures
    assert not {"sensitivity", "auroc"} & set(found.measures)
    assert "no subjects of patient" in found.not_computed[0]
    (withheld,) = (row for row in found.table.rows if row[0] == "out of distribution: withheld")
    assert withheld[2] == "0.04", "of 24 training subjects, 1 / 25 is beyond all"
    assert len(found.left_out) == 8
    json.dumps(found.to_dict(), allow_nan=False)
    write_validation(tmp_path / "page.html", found)
    assert "cannot be computed" in (tmp_path / "page.html").read_text()


def test_what_does_not_fit_the_model_is_refused(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="--classes LABEL=control"):
        validate(bundle, root / "same.cohort", classes={"control": "healthy"}, progress=False)
    with pytest.raises(BadUse, match="--label is for recordings"):
        validate(bundle, root / "same.cohort", label="label", progress=False)
    narrow = prepare(root / "same", tmp_path / "narrow", jobs=1, progress=False, high=30.0)
    with pytest.raises(BadData, match="--high 30, not 45"):
        validate(bundle, str(narrow.path), progress=False)


# A model whose training recordings were cleaned


def test_validate_and_adapt_clean_raw_recordings_as_those_of_training_were(root: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text("def clean(raw):\n    return raw.filter(None, 30, verbose='error')\n")
    code = f"{tmp_path / 'clean.py'}:clean"
    cohort = prepare(root / "training", tmp_path / "cohort", jobs=1, progress=False, clean=code)
    train(cohort, tmp_path / "model", "bandpower", folds=3, baselines=False, progress=False)
    model, same = bundles.load(tmp_path / "model"), root / "same"
    alone = {one.recording.path.stem: one for one in predict(model, sorted(same.glob("p*.edf"))[:3], clean=[code])}
    done = bridgemil("validate", tmp_path / "model", same, "--label", "label", "--clean", code, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["subject"]: row for row in json.loads(done.stdout)["subjects"]}
    for name, one in alone.items():
        assert rows[name]["p_patient"] == pytest.approx(one.probabilities[1])
    with pytest.raises(BadUse, match=r"cleaned by clean\.py:clean, and a model contains no code: name it again"):
        validate(model, same, label="label", progress=False)

    healthy = controls(root / "other")[:10]
    done = bridgemil("adapt", tmp_path / "model", *healthy, "--out", tmp_path / "m", "--clean", code, "--json")
    assert done.returncode == 0, done.stderr
    (one,) = predict(model, healthy[:1], clean=code)
    before = json.loads(done.stdout)["recordings"][0]["before"]["probabilities"]
    assert before["patient"] == pytest.approx(one.probabilities[1])
    with pytest.raises(BadUse, match="a model contains no code: name it again"):
        adapt(model, healthy, tmp_path / "n")


# Withheld predictions and prediction sets


def test_a_recording_far_out_of_distribution_is_withheld_everywhere(root: Path, tmp_path: Path) -> None:
    strange = eeg(900, 0.0)
    strange[0] += 300 * np.sin(2 * np.pi * 10 * np.arange(strange.shape[1]) / SFREQ)
    file = write_edf(tmp_path / "strange.edf", strange, SFREQ, MONTAGE)
    done = bridgemil(
        "predict", root / "model", file, "--json", "--csv", tmp_path / "t.csv", "--report", tmp_path / "p.html"
    )
    (row,) = json.loads(done.stdout)
    assert row["predicted"] is None
    assert row["out_of_distribution"] == {"percentile": row["out_of_distribution"]["percentile"], "withheld": True}
    assert row["prediction_set"] == ["control", "patient"], "nothing is excluded"
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    assert "bridgemil adapt" in row["warnings"][0]
    assert "10 or more healthy subjects" in row["warnings"][0]
    page = (tmp_path / "p.html").read_text()
    assert "Prediction withheld" in page
    assert "bridgemil adapt" in page
    assert (tmp_path / "t.csv").read_text().splitlines()[1].startswith(f"{file},,control | patient,")
    shown = bridgemil("predict", root / "model", file).stdout
    assert "prediction withheld" in shown
    assert "no class is excluded" in shown


def test_the_coverage_of_sets_is_an_option(root: Path, bundle: Bundle) -> None:
    file = controls(root / "same")[0]
    (usual,), (wide,) = (list(predict(bundle, [file], **how)) for how in ({}, {"coverage": 0.97}))
    assert isinstance(usual, RecordingPrediction)
    assert isinstance(wide, RecordingPrediction)
    assert (usual.to_dict()["coverage"], wide.to_dict()["coverage"]) == (0.9, 0.97)
    assert set(usual.prediction_set) <= set(wide.prediction_set)
    assert wide.prediction_set == ("control", "patient"), "12 subjects cannot exclude at 97 %"
    assert bridgemil("predict", root / "model", file, "--coverage", "1").returncode == 2


# Adaptation


def knowing_nobody(bundle: Bundle) -> Bundle:
    """The bundle without hashes of its training signals."""
    return replace(bundle, signals=TrainingSignals(*np.zeros((2, 0), dtype=np.int64)))


def test_training_subjects_are_nobody_of_the_new_site(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    files = [*controls(root / "other")[:10], controls(root / "training")[0]]
    with pytest.raises(BadData, match=r"p0\.edf: was used to train or adapt model"):
        adapt(bundle, files, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_the_training_site_is_mapped_to_itself(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    moved = adapt(knowing_nobody(bundle), controls(root / "training"), tmp_path / "m").bundle
    assert isinstance(moved.model, EnsembleModel)
    for member in moved.model.members.values():
        first, second = member.harmonisation.scale({})  # type: ignore[union-attr, misc]
        np.testing.assert_allclose(second, 1, atol=1e-3)
        assert np.abs(first).max() < 1e-3
    file = patients(root / "same")[:1]
    (before,), (after,) = answers(bundle, file), answers(moved, file)
    np.testing.assert_allclose(before.prediction.probabilities, after.prediction.probabilities, atol=1e-3)
    assert before.percentile == pytest.approx(after.percentile, abs=0.5)


def test_another_site_is_moved_by_its_controls_and_reported_by_leave_one_out(
    root: Path, bundle: Bundle, tmp_path: Path
) -> None:
    folder = root / "other"
    files = controls(folder)
    done = bridgemil("adapt", root / "model", *files[:10], "--out", tmp_path / "m", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    found = content["adapted"]["summary"]["controls"]
    assert found["n"] == 10
    assert found["before"]["median_percentile"] > 90
    assert found["after"]["median_percentile"] < 75
    assert found["before"]["withheld"]["value"] > found["after"]["withheld"]["value"]
    moved = bundles.load(tmp_path / "m")
    assert [row["file"] for row in content["recordings"]] == [str(file) for file in files[:10]]
    new = answers(moved, [*files[10:], *patients(folder)[:4]])
    assert [one.most_probable for one in new] == ["control"] * 2 + ["patient"] * 4
    assert "adapted to another site by recordings of 10 healthy subjects" in moved.metadata["cautions"][-1]
    assert "## Adaptation to another site" in moved.card
    with pytest.raises(BadData, match="10 of 24 subjects were used to train or adapt"):
        validate(moved, folder, label="label", progress=False)


def test_a_subject_has_no_part_in_its_own_after(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    files = controls(root / "other")[:11]
    row = adapt(bundle, files, tmp_path / "all").rows[0]["after"]
    (one,) = answers(adapt(bundle, files[1:], tmp_path / "others").bundle, files[:1])
    assert row["percentile"] == pytest.approx(one.percentile, abs=1e-6)
    assert row["probabilities"]["patient"] == pytest.approx(one.probabilities[1], abs=0.05)


def test_controls_of_the_new_site_are_predicted_as_held_out_training_controls_were(
    root: Path, bundle: Bundle, tmp_path: Path
) -> None:
    made = adapt(bundle, controls(root / "other")[:10], tmp_path / "m")
    (target, found) = (np.clip(one.sets.scores["control"], 0.001, 0.999) for one in (bundle, made.bundle))
    assert np.mean(np.log(found / (1 - found))) == pytest.approx(np.mean(np.log(target / (1 - target))), abs=0.3)
    assert len(made.bundle.sets.scores["patient"]) == 12, "those of training stay"


def test_with_patients_the_probabilities_are_calibrated_again(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    folder = root / "other"
    made = adapt(bundle, controls(folder)[:10], tmp_path / "m", patients=patients(folder)[:10])
    assert made.bundle.calibration.kind == "shift"
    patient = [row["after"]["probabilities"]["patient"] for row in made.rows]
    assert np.mean(patient[:10]) < 0.3 < 0.7 < np.mean(patient[10:])
    assert len(made.bundle.sets.scores["patient"]) == 10
    card = made.bundle.card
    assert "10 controls and 10 patients" in card
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    shift = fit_shift(p, np.array([0, 0, 1, 1]), [0.5, 0.5], 0, Calibration())
    assert shift(p)[:, 1].mean() == pytest.approx(0.5)
    np.testing.assert_array_equal(from_json(shift.for_json())(p), shift(p))


def test_unlabelled_recordings_are_mapped_to_all_training_subjects(root: Path, bundle: Bundle, tmp_path: Path) -> None:
    everyone = sorted((root / "training").glob("p*.edf"))
    made = adapt(knowing_nobody(bundle), everyone, tmp_path / "m", unlabelled=True)
    first, second = made.bundle.model.members["fold-01-tangent"].harmonisation.scale({})  # type: ignore[attr-defined]
    np.testing.assert_allclose(second, 1, atol=1e-3)
    assert np.abs(first).max() < 1e-3
    assert "transductive" in made.bundle.metadata["cautions"][-1]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"n": 9}, BadData, "9 recordings of controls; at least 10 are needed"),
        ({"twice": True}, BadData, "several recordings of one subject"),
        ({"patients": 9}, BadData, "9 recordings of patients"),
        ({"patients": 10, "unlabelled": True}, BadUse, "leave --unlabelled out"),
        ({"bad": True}, BadData, "recordings that cannot be used"),
    ],
)
def test_too_few_or_wrong_recordings_are_refused(
    root: Path, bundle: Bundle, tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    files: list[Path] = controls(root / "other")[: change.get("n", 10)]
    files += [files[0]] if change.get("twice") else [tmp_path / "nowhere.edf"] if change.get("bad") else []
    ill = patients(root / "other")[: change.get("patients", 0)]
    with pytest.raises(error, match=words):
        adapt(bundle, files, tmp_path / "m", patients=ill, unlabelled=change.get("unlabelled", False))
    assert not (tmp_path / "m").exists()


# A model whose features are adjusted


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"adjust": ["age"]}, r"a new recording has no columns \(age\) that its features could be adjusted for"),
        ({"adjust": ["age"], "single": True}, "leave --adjust out of train"),
        ({"settings": {"site_adjust": "people", "site_column": "sex"}, "single": True}, "--single fits no maps of the"),
    ],
)
def test_adjustment_that_no_recording_could_have_is_refused_before_training(
    how: dict[str, Any], words: str, root: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadUse, match=words):
        train(root / "cohort", tmp_path / "m", "bandpower", folds=3, baselines=False, progress=False, **how)
    assert not (tmp_path / "m.runs").exists()


@pytest.fixture(scope="module")
def per_site(root: Path) -> Path:
    """A model of recordings of two sites; nothing else is known of the amplifiers of others."""
    rows = (root / "training" / "manifest.csv").read_text().splitlines()
    lines = [f"{row},{'AB'[i // 2 % 2] if i else 'site'}" for i, row in enumerate(rows)]
    (root / "training" / "sites.csv").write_text("\n".join(lines) + "\n")
    cohort = prepare(root / "training" / "sites.csv", root / "sites.cohort", jobs=1, progress=False)
    how: dict[str, Any] = {"settings": {"site_adjust": "people"}, "folds": 3, "baselines": False, "progress": False}
    with pytest.warns(BridgeMILWarning, match="at a new site the model needs `bridgemil adapt`"):
        made = train(cohort, root / "per-site", "bandpower", **how)
    assert "at a new site the model needs `bridgemil adapt`" in made.bundle.card
    return root / "per-site"


def test_a_model_adjusted_per_site_predicts_no_other_site_before_it_is_adapted(
    root: Path, per_site: Path, tmp_path: Path
) -> None:
    files, model = controls(root / "other"), bundles.load(per_site)
    done = bridgemil("predict", per_site, files[0])
    assert done.returncode == 2
    assert "none of its training sites (A, B): run `bridgemil adapt MODEL RECORDINGS of healthy" in done.stderr
    bag = Cohort.open(root / "same.cohort").windows("p100")
    with pytest.raises(BadData, match="run `bridgemil adapt"):
        model.probabilities(bag)
    made = adapt(model, files[:10], tmp_path / "m")
    assert made.rows[0]["before"]["predicted"] in (None, "control", "patient")
    assert "at a new site the model needs" in made.bundle.metadata["cautions"][0]
    assert [one.most_probable for one in answers(made.bundle, patients(root / "other")[:4])] == ["patient"] * 4


def test_validation_says_as_which_site_features_were_adjusted(root: Path, per_site: Path, tmp_path: Path) -> None:
    model, same = bundles.load(per_site), Cohort.open(root / "same.cohort")

    def at(*sites: str) -> Path:
        first, *rows = (root / "same" / "manifest.csv").read_text().splitlines()
        lines = [f"{first},site", *(f"{row},{sites[i % len(sites)]}" for i, row in enumerate(rows))]
        file = root / "same" / f"at-{'-'.join(sites)}.csv"
        file.write_text("\n".join(lines) + "\n")
        return file

    found = validate(model, at("A"), label="label", progress=False)
    assert found.to_dict()["site_maps"] == ["Features of 16 subjects were adjusted as those of training site A."]
    assert "16 subjects were adjusted as those of training site A" in str(found.table.after)
    p = model.calibration(model.model.for_subject({"site": "A"}).predict(same.windows("p100")).probabilities)
    assert found.predictions.set_index("subject")["p_patient"]["p100"] == pytest.approx(p[1])
    with pytest.raises(BadData, match=r"C is none of its training sites \(A, B\): run `bridgemil adapt"):
        validate(model, at("A", "C"), label="label", progress=False)
    with pytest.raises(BadData, match="site of the recording, not stated, is none of its training sites"):
        validate(model, root / "same.cohort", progress=False)
    moved = adapt(model, controls(root / "other")[:10], tmp_path / "m").bundle
    assert validate(moved, at("A", "C"), label="label", progress=False).site_maps == [
        "Features of 8 subjects were adjusted as those of training site A.",
        "Features of 8 subjects were adjusted as those of the site that the model was adapted to.",
    ]


def test_networks_on_the_raw_signal_are_not_adapted(root: Path, tmp_path: Path) -> None:
    cohort = Cohort.open(root / "cohort")
    how: dict[str, Any] = {"settings": {"stage2.epochs": 1, "stage2.burn_in": 0}, "budget": "demo", "recipe": "paper"}
    train(cohort, tmp_path / "raw", "attention", "eegnet", folds=3, baselines=False, progress=False, **how)
    raw = bundles.load(tmp_path / "raw")
    with pytest.raises(BadUse, match="learns from the raw signal"):
        adapt(raw, controls(root / "other"), tmp_path / "m")
    nothing = replace(raw.reference.novelty, quantiles=np.zeros_like(raw.reference.novelty.quantiles))
    far = replace(raw, reference=replace(raw.reference, novelty=nothing))
    (one,) = answers(far, controls(root / "same")[:1])
    assert "cannot be adapted to another site" in one.warnings[0]


def test_calibration_slope_and_intercept() -> None:
    rng = np.random.default_rng(0)
    logit = rng.normal(size=4000)
    y = rng.random(4000) < 1 / (1 + np.exp(-(0.5 * logit - 0.4)))
    found = calibration_line(1 / (1 + np.exp(-logit)), y)
    assert found["slope"]["ci95"][0] < 0.5 < found["slope"]["ci95"][1]
    assert -0.6 < found["intercept"]["value"] < -0.2
    assert (
        calibration_line(np.array([0.2, 0.3, 0.7, 0.8]), np.array([False, False, True, True]))["slope"]["value"] is None
    )
