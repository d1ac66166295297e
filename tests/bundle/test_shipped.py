"""The models in the package: whole, found by name, and honest about where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bridgemil import bundle as bundles
from bridgemil.bundle.bundle import SHIPPED, Bundle, locate
from bridgemil.bundle.prediction import RecordingPrediction, predict
from bridgemil.cohort.channels import ADFTD_ORDER
from command import bridgemil
from recordings import write_edf

PACKAGE = Path(bundles.__file__).parents[1]
# One of the model's training people: a prediction for her shows that the model runs, and nothing else.
SOMEBODY = PACKAGE / "recordings" / "adftd-60s" / "sub-001" / "eeg" / "sub-001_task-eyesclosed_eeg.edf"


@pytest.fixture(scope="module")
def alzheimer() -> Bundle:
    return bundles.load("alzheimer")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_model_of_the_package_is_whole_small_and_names_no_place_it_was_made_at(name: str) -> None:
    folder = PACKAGE / "bundles" / name
    bundle = bundles.load(name)  # compares every file with its hash
    assert bundle.name == name
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 6e6
    for file in files:
        if file.suffix != ".safetensors":
            assert not {"/tmp/", "/home/", "/work/", "Users\\"} & set(file.read_text("utf-8").split('"'))
    for words in ("one site", "A1-A2", "49 to 79 years", "Research use only", "cleaned by their authors"):
        assert words in bundle.card


def test_the_list_of_names_is_what_is_there_and_the_help_says_them() -> None:
    assert sorted(folder.name for folder in (PACKAGE / "bundles").iterdir()) == sorted(SHIPPED)
    help_ = " ".join(bridgemil("predict", "--help").stdout.split())
    assert all(name in help_ for name in SHIPPED)


def test_a_notebook_shows_what_the_model_is(alzheimer: Bundle) -> None:
    page, found = alzheimer._repr_html_(), alzheimer.metadata["performance"]
    assert page.startswith(f"<strong>{alzheimer.title}: Alzheimer, healthy</strong>")
    low, high = found["auroc"]["ci95"]
    assert (
        f"<td>AUROC</td>\n      <td>{found['auroc']['value']:.3f}</td>\n      <td>{low:.3f} to {high:.3f}</td>" in page
    )
    assert "Research use only" in page
    assert all(warning["check"] in page for warning in alzheimer.warnings)


def test_the_card_says_what_cross_validation_found(alzheimer: Bundle) -> None:
    metadata = alzheimer.metadata
    assert alzheimer.classes == ("Alzheimer", "healthy")
    assert [row["n"] for row in metadata["provenance"]["people"]] == [36, 29]
    assert metadata["settings"]["method"] == "tangent+bridgemil"
    assert metadata["performance"]["balanced_accuracy"]["ci95"][0] > 0.7
    assert metadata["calibration"]["error"]["after"]["value"] < 0.10, "the goal"
    assert f"{metadata['performance']['accuracy']['value']:.3f}" in alzheimer.card
    assert "gamma" in alzheimer.reference.bands, "what the model reads, the out-of-distribution test reads too"


def test_it_predicts_a_recording_by_name_and_states_its_cautions() -> None:
    done = bridgemil("predict", "alzheimer", SOMEBODY, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    assert row["windows_used"] == 60
    assert not any("one site" in warning for warning in row["warnings"])
    for part in ("one site", "Research use only", "trained on 65 subjects"):
        assert any(part in caution for caution in row["model"]["cautions"]), part
    assert 0 <= row["out_of_distribution"]["percentile"] < 95
    assert row["out_of_distribution"]["withheld"] is False


def test_gain_changes_nothing_and_a_folder_of_that_name_comes_first(
    alzheimer: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mne

    signal = mne.io.read_raw_edf(SOMEBODY, preload=True, verbose="error").get_data() * 1e6
    p = []
    for gain in (0.1, 1.0, 10.0):
        file = write_edf(tmp_path / f"{gain}.bdf", gain * signal[:, : 95 * 20], 95, ADFTD_ORDER)
        (said,) = predict(alzheimer, [file])
        assert isinstance(said, RecordingPrediction), said
        p.append(said.probabilities)
    np.testing.assert_allclose(p[0], p[1], atol=0.01)
    np.testing.assert_allclose(p[2], p[1], atol=0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alzheimer").mkdir()
    assert locate("alzheimer") == Path("alzheimer")
