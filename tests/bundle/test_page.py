"""The page of a new recording, by ``predict --report`` and ``explain MODEL``: warnings first, patterns of training."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgemil import bundle as bundles
from bridgemil.bundle.page import explain_recording, write_page
from bridgemil.bundle.prediction import RecordingPrediction, predict
from bridgemil.bundle.training import train
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.report.explanation import explain
from command import bridgemil
from recordings import MONTAGE, noise, write_edf

SFREQ = 250.0
QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}
CAUTION = "trained in one room"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    root = tmp_path_factory.mktemp("cohort")
    rows = ["subject,label,file"]
    for i in range(10):
        write_edf(root / f"p{i}.edf", noise(i, 15, SFREQ), SFREQ, MONTAGE)
        rows.append(f"p{i},{'ab'[i % 2]},p{i}.edf")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    return prepare(root, root / "cohort", jobs=1, progress=False)


@pytest.fixture(scope="module")
def model(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixed ensemble: baselines without gates, networks with them."""
    out = tmp_path_factory.mktemp("bundle") / "model"
    train(
        cohort, out, "tangent+attention", "covariance", budget="demo", folds=3, baselines=False, progress=False,
        settings=QUICK, cautions=[CAUTION], recorded_reference="A1-A2",
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def recorded_model(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that depends on the recorded reference."""
    out = tmp_path_factory.mktemp("bundle") / "recorded"
    how: dict[str, Any] = {"settings": {"baselines.reference": "recorded"}, "recorded_reference": "A1-A2"}
    train(cohort, out, "bandpower", folds=3, baselines=False, progress=False, **how)
    return out


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_edf(tmp_path_factory.mktemp("new") / "new.edf", noise(77, 15, SFREQ), SFREQ, MONTAGE)


def said(bundle: bundles.Bundle, path: Path) -> RecordingPrediction:
    (answer,) = predict(bundle, [path])
    assert isinstance(answer, RecordingPrediction), answer
    return answer


def test_the_page_holds_every_part_and_warnings_come_first(model: Path, recording: Path, tmp_path: Path) -> None:
    bundle = bundles.load(model)
    answer = replace(said(bundle, recording), warnings=("too short",))
    write_page(tmp_path / "page.html", bundle, answer)
    text = (tmp_path / "page.html").read_text("utf-8")
    places = [text.index(f'<section {part}') for part in ('class="warnings"', 'id="prediction"', 'id="when"',
                                                          'id="eeg"', 'id="bands"', 'id="cautions"',
                                                          'id="provenance"')]  # fmt: skip
    assert places == sorted(places)
    assert CAUTION in text[places[-2] : places[-1]]
    assert CAUTION not in text[: places[-2]], "what holds for every recording does not hide its own warnings"
    for p in answer.probabilities:
        assert f"{100 * p:.1f} %" in text[places[1] : places[2]], "calibrated probabilities are shown"
    for words in (answer.recording.sha256, "Research use only", "held-out training subjects", "middle half"):
        assert words in text
    assert not re.search(r'(src|href)="https?:', text)


def test_patterns_are_those_over_the_training_people_though_nobody_of_them_is_kept(
    cohort: Cohort, model: Path, recording: Path
) -> None:
    bundle = bundles.load(model)
    answer = said(bundle, recording)
    from_bundle = explain_recording(bundle, answer)
    assert "training subjects" in "".join(from_bundle.notes)
    tangent = next(member for name, member in bundle.model.members.items() if name.endswith("tangent"))
    features = np.stack([tangent.baseline.features(cohort.windows(who)) for who in cohort.subjects])
    direct = explain(bundle.model, from_bundle.person, features, predicted=from_bundle.predicted)
    np.testing.assert_allclose(from_bundle.pairs["pattern"], direct.pairs["pattern"], rtol=1e-3, atol=1e-6)
    kept = bundle.reference.covariance_rows
    nearest = max(
        abs(float(np.corrcoef(row - features.mean(0), other)[0, 1])) for row in features for other in kept[1:]
    )
    assert nearest < 0.999, "a row is a mixture of people"


def test_gates_are_of_the_members_that_have_some(model: Path, recording: Path) -> None:
    bundle = bundles.load(model)
    answer = said(bundle, recording)
    explanation = explain_recording(bundle, answer)
    assert [ranking.name for ranking in explanation.rankings] == ["gate", "contribution"]
    np.testing.assert_allclose(explanation.rankings[0].values, answer.prediction.gates, rtol=1e-5)
    np.testing.assert_allclose(explanation.probabilities, answer.prediction.probabilities, atol=1e-6)
    assert any("those of the member models that have them" in note for note in explanation.notes)


def test_the_page_states_calibration_and_class_frequencies(model: Path, recording: Path, tmp_path: Path) -> None:
    bundle = bundles.load(model)
    write_page(tmp_path / "page.html", bundle, said(bundle, recording))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert re.search(r"Of the \d+ held-out training subjects .* \d+ % were classified correctly", text)
    assert "Expected calibration error on held-out subjects" in text
    assert "5 a, 5 b" in text


def test_predict_writes_a_page_each_and_explain_the_same(model: Path, recording: Path, tmp_path: Path) -> None:
    second = write_edf(tmp_path / "other.edf", noise(78, 15, SFREQ), SFREQ, MONTAGE)
    done = bridgemil("predict", model, recording, second, "--report", tmp_path / "page.html", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["page"] for row in rows] == [str(tmp_path / "page.html"), str(tmp_path / "page-2.html")]
    assert all(CAUTION in row["model"]["cautions"] and CAUTION not in row["warnings"] for row in rows)
    folder = bridgemil("predict", model, recording, "--report", tmp_path / "pages")
    assert folder.returncode == 0, folder.stderr
    assert "Page:" in folder.stdout
    page = (tmp_path / "pages" / "new.html").read_text()
    assert page == (tmp_path / "page.html").read_text()
    done = bridgemil("explain", model, recording, "--csv", tmp_path / "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new.html").read_text() == page
    assert (tmp_path / "csv" / "windows.csv").is_file()
    assert done.stdout.count(CAUTION) == 1
    assert done.stdout.index(CAUTION) < done.stdout.index("Contributions:")
    assert done.stdout.count("without a random tenth by") == 1
    assert "windows with the highest contribution" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("explain", "MODEL"), 2, "name a recording"),
        (("explain", "MODEL", "RECORDING", "--subject", "x"), 2, "--subject is for folders of runs"),
        (("explain", "MODEL", "nowhere.edf"), 1, "no such file"),
        (("explain", "nowhere", "RECORDING"), 2, "no model of the package (alzheimer)"),
        (("predict", "nowhere", "RECORDING"), 2, "no model of the package (alzheimer)"),
        (("predict", "MODEL", "RECORDING", "--report", "RECORDING/page.html"), 1, "the page cannot be written"),
    ],
)  # fmt: skip
def test_mistakes_are_told(model: Path, recording: Path, arguments: tuple, code: int, words: str) -> None:
    shown = [word.replace("MODEL", str(model)).replace("RECORDING", str(recording)) for word in arguments]
    done = bridgemil(*shown)
    assert done.returncode == code, done.stderr
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("stated", "warned"),
    [("Cz", True), ("average", True), ("M1-M2", True), ("A1-A2", False), ("linked ears (A2+A1)", False),
     ("(A1+A2)/2", False), ("Linked earlobes", False), ("n/a", False)],
)  # fmt: skip
def test_a_sidecar_that_says_another_reference_is_warned_of(
    model: Path, recorded_model: Path, tmp_path: Path, stated: str, warned: bool
) -> None:
    eeg = tmp_path / "sub-1" / "eeg"
    eeg.mkdir(parents=True)
    file = write_edf(eeg / "sub-1_task-rest_eeg.edf", noise(77, 15, SFREQ), SFREQ, MONTAGE)
    (eeg / "sub-1_task-rest_eeg.json").write_text(json.dumps({"EEGReference": stated}))
    answer = said(bundles.load(recorded_model), file)
    assert any(warning.startswith("reference:") for warning in answer.warnings) == warned
    assert not any(warning.startswith("reference:") for warning in said(bundles.load(model), file).warnings)


@pytest.mark.parametrize(
    ("label", "warned"), [("AVG", True), ("M1", True), ("LE", False), ("A1A2", False), ("REF", False), ("", False)]
)
def test_a_reference_in_channel_names_counts_where_no_sidecar_says_it(
    recorded_model: Path, tmp_path: Path, label: str, warned: bool
) -> None:
    names = [f"EEG {name}-{label}" if label else name for name in MONTAGE]
    file = write_edf(tmp_path / "new.edf", noise(77, 15, SFREQ), SFREQ, names)
    answer = said(bundles.load(recorded_model), file)
    assert any(warning.startswith("reference:") for warning in answer.warnings) == warned
