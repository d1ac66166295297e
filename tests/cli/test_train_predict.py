"""``bridgemil train`` and ``predict`` from outside: what they print, their exit codes, and time and memory."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from bridgemil.cohort.prepare import prepare
from command import bridgemil
from people import people
from recordings import MONTAGE, build_bids, noise, write_edf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort of noise, and a model trained on it."""
    root = tmp_path_factory.mktemp("work")
    build_bids(root / "bids", {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 10)}, seconds=20)
    prepare(root / "bids", root / "cohort", label="Group", jobs=1, progress=False)
    done = bridgemil(
        "train", root / "cohort", "--out", root / "model", "--method", "bandpower", "--folds", 3, "--no-baselines"
    )
    assert done.returncode == 0, done.stderr
    (root / "said.txt").write_text(done.stdout)
    return root


def test_train_prints_the_evaluation_the_calibration_and_what_is_next(folder: Path) -> None:
    out = (folder / "said.txt").read_text()
    for words in ("9 subjects, each held out once", "Calibration:", "cross-fitted", "card.md", "Research use only",
                  "the other folds alone would choose", "applied only if both are lower",
                  "Next:  bridgemil predict", "not shown to be better than chance"):  # fmt: skip
        assert words in out, words
    assert (folder / "model.runs" / "runs").is_dir()


def test_a_model_of_arrays_is_not_sent_to_predict_and_a_reference_is_kept(tmp_path: Path) -> None:
    people(12).save(tmp_path / "cohort")
    done = bridgemil(
        "train", tmp_path / "cohort", "--out", tmp_path / "m", "--method", "bandpower", "--folds", 3, "--no-baselines",
        "--recorded-reference", "A1-A2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bridgemil predict" not in done.stdout
    assert "in Python: it was trained on arrays" in done.stdout
    assert json.loads((tmp_path / "m" / "bundle.json").read_text())["recorded_reference"] == "A1-A2"


def test_train_goes_on_where_it_stopped_and_prints_json(folder: Path, tmp_path: Path) -> None:
    command = (
        "train",
        folder / "cohort",
        "--out",
        tmp_path / "m",
        "--method",
        "attention",
        "--budget",
        "demo",
        "--folds",
        3,
        "--no-baselines",
        "--set",
        "stage2.epochs=2",
        "--threads",
        1,
        "--runs",
        tmp_path / "runs",
        "--json",
    )
    first = bridgemil(*command)
    assert first.returncode == 0, first.stderr
    content = json.loads(first.stdout)
    assert content["ensemble"] == "folds"
    assert set(content["performance"]["auroc"]) == {"value", "ci95"}
    assert content["calibration"]["kind"] in ("none", "temperature")
    assert content["calibration"]["error"]["after"]["ci95"][0] <= content["calibration"]["error"]["after"]["value"]
    again = json.loads(bridgemil(*command).stdout)
    assert again["evaluation"] == content["evaluation"], "its runs were kept"
    single = json.loads(bridgemil(*command, "--single", "--overwrite").stdout)
    assert single["ensemble"] == "single"
    assert not list((tmp_path / "m" / "model").glob("fold-*"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train", "COHORT", "--out", "COHORT"), 2, "is no bundle"),
        (("train", "COHORT", "--out", "m", "--method", "magic"), 2, "method must be one of"),
        (("train", "COHORT", "--out", "m", "--folds", "7", "--method", "bandpower"), 1, "fewer than the 7 folds"),
        (("train", "nowhere", "--out", "m"), 2, "no cohort there"),
        (("predict", "COHORT", "x.edf"), 1, "is a cohort in format"),
        (("predict", "MODEL", "x.edf"), 1, "no such file"),
        (("predict", "MODEL", "x.edf", "--bad-channels", "guess"), 2, "must be stop or interpolate"),
        (("predict", "MODEL", "x.edf", "--csv", "nowhere/said.csv"), 2, "--csv nowhere/said.csv: no folder nowhere"),
        (("predict", "MODEL", "x.edf", "--csv", "COHORT"), 2, "is a folder; expected a file"),
        (("predict", "MODEL"), 2, "Missing argument"),
    ],
)  # fmt: skip
def test_mistakes_end_with_their_code_and_a_sentence(
    folder: Path, tmp_path: Path, arguments: tuple, code: int, words: str
) -> None:
    names = {"COHORT": folder / "cohort", "MODEL": folder / "model", "m": tmp_path / "m"}
    done = bridgemil(*(names.get(argument, argument) for argument in arguments))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_predict_prints_warnings_before_probabilities(folder: Path, tmp_path: Path) -> None:
    strange = noise(50, 20, 250)
    strange[0] += 300 * np.sin(2 * np.pi * 10 * np.arange(strange.shape[1]) / 250)
    done = bridgemil("predict", folder / "model", write_edf(tmp_path / "strange.edf", strange, 250, MONTAGE))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    warned = next(i for i, line in enumerate(lines) if "WARNING: out of distribution" in line)
    probabilities = next(i for i, line in enumerate(lines) if "%   " in line and " A " in f" {line}")
    assert warned < probabilities
    assert "20 windows used of 20 s" in done.stdout
    assert "Research use only" in done.stdout


def test_without_a_prediction_there_are_no_cautions(folder: Path) -> None:
    done = bridgemil("predict", folder / "model", "missing.edf")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "missing.edf: no such file" in done.stderr


@pytest.mark.parametrize("verb", ["validate", "prepare"])
def test_a_single_recording_is_no_source(folder: Path, tmp_path: Path, verb: str) -> None:
    recording = folder / "bids" / "sub-01" / "eeg" / "sub-01_task-rest_eeg.edf"
    names = {"validate": (folder / "model", recording), "prepare": (recording, tmp_path / "c")}
    done = bridgemil(verb, *names[verb])
    assert done.returncode == 2
    assert "is a single recording; name a" in done.stderr


def test_one_bad_file_does_not_stop_the_others_and_tables_are_written(folder: Path, tmp_path: Path) -> None:
    good = write_edf(tmp_path / "good.edf", noise(51, 20, 250), 250, MONTAGE)
    bad = write_edf(tmp_path / "bad.edf", noise(52, 20, 250, 5), 250, MONTAGE[:5])
    done = bridgemil("predict", folder / "model", bad, good, "--json", "--csv", tmp_path / "said.csv")
    assert done.returncode == 1
    assert "missing electrode O2" in done.stderr
    refused, said = json.loads(done.stdout)
    assert refused["file"] == str(bad)
    assert "missing electrode O2" in refused["error"]
    assert said["file"] == str(good)
    assert set(said["probabilities"]) == {"A", "C"}
    assert sum(said["probabilities"].values()) == pytest.approx(1)
    assert said["windows_used"] == 20
    assert said["model"]["name"] == "model"
    with (tmp_path / "said.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["file"] for row in rows] == [str(bad), str(good)]
    assert float(rows[1]["p_A"]) == said["probabilities"]["A"]
    assert rows[0]["p_A"] == ""


def test_recordings_refused_for_one_reason_are_one_line(folder: Path, tmp_path: Path) -> None:
    for i in range(5):
        write_edf(tmp_path / f"bad{i}.edf", noise(60 + i, 12, 250, 5), 250, [*MONTAGE[:4], f"EEG {MONTAGE[4]}-X{i}"])
    done = bridgemil("predict", folder / "model", tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "missing electrode" in line]
    assert line.startswith(f"bridgemil: 5 recordings: missing electrode {MONTAGE[4]}, O2 (it has ")
    assert line.endswith("bad2.edf; and 2 more")
    assert "5 of 5 recordings refused" in done.stderr


def test_a_bids_folder_at_once(folder: Path) -> None:
    done = bridgemil("predict", folder / "model", folder / "bids", "--json")
    assert done.returncode == 0, done.stderr
    assert [Path(row["file"]).name for row in json.loads(done.stdout)] == [
        f"sub-{i:02d}_task-rest_eeg.edf" for i in range(1, 10)
    ]
