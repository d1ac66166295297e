"""Presets on the true layouts of their data sets, with short synthetic signals; full lengths in tests/real."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bridgemil
from bridgemil import Cohort, prepare
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.sources import PRESETS, mumtaz2017, rockhill2021, tuab
from bridgemil.errors import BadData, BadUse
from bridgemil.report.benchmark import build
from bridgemil.report.pages.results import report_page
from bridgemil.report.terminal import print_summary
from bridgemil.runs import RunStore
from command import bridgemil as command
from layouts import fill_ds002778, fill_ds004504, fill_mumtaz2017, fill_tuab


def test_adftd(shared: Path, tmp_path: Path) -> None:
    root = fill_ds004504(shared / "layouts/ds004504", tmp_path / "ds", seconds=3)
    cohort = prepare(root, tmp_path / "c", preset="adftd", progress=False)
    assert Counter(cohort.labels) == {"AD": 36, "FTD": 23, "HC": 29}
    assert tuple(cohort.channels) == ADFTD_ORDER
    assert cohort.n_windows == 3 * 88
    assert (cohort.folds, cohort.burn_in) == (10, 10)
    assert cohort.column("MMSE")[0] == "16"
    assert all(file["file"].startswith("derivatives/") for file in cohort.metadata["files"])

    (root / "derivatives/sub-001/eeg/sub-001_task-eyesclosed_eeg.set").unlink()
    with pytest.raises(BadData, match=r"sub-001, derivatives/sub-001/.*: no such file"):
        prepare(root, tmp_path / "d", preset="adftd", progress=False)


def test_adftd_without_derivatives_points_to_raw(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="pass --raw"):
        prepare(shared / "adftd-300s", tmp_path / "c", preset="adftd", progress=False)


def test_mumtaz2017(shared: Path, tmp_path: Path) -> None:
    root = fill_mumtaz2017(shared / "layouts/mumtaz2017-files.tsv", tmp_path / "ds", seconds=2)
    cohort = prepare(root, tmp_path / "c", preset="mumtaz2017", progress=False)
    assert Counter(cohort.labels) == {"MDD": 33, "HC": 30}
    assert tuple(cohort.channels) == mumtaz2017.SETTINGS.channels
    assert {"H01", "MDD01"} <= set(cohort.subjects)
    assert cohort.records["H01"].recordings == ("H S1 EC.edf", "H S1 EO.edf")  # eyes closed first
    assert cohort.records["H01"].signal_hash != cohort.records["MDD01"].signal_hash
    assert cohort.records["H15"].recordings == ("H S15 EC.edf", "6921143_H S15 EO.edf")
    assert (cohort.folds, cohort.burn_in) == (10, 0)
    left_out = {item["what"]: item["why"] for item in cohort.metadata["left_out"]}
    assert left_out["6921959_H S15 EO.edf"] == "identical to 6921143_H S15 EO.edf"
    assert left_out["H S1 TASK.edf"] == "TASK recordings are not used"
    assert "neither an EC nor an EO" in left_out["MDD S8 TASK.edf"]
    for lead in ("A2-A1", "23A-23R", "24A-24R"):
        assert f"channel EEG {lead}" in left_out


def test_mumtaz2017_keeps_the_lower_of_two_ids_with_the_same_recordings_and_says_so(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fill_mumtaz2017(shared / "layouts/mumtaz2017-files.tsv", tmp_path / "ds", seconds=2, copies=True)
    cohort = prepare(root, tmp_path / "c", preset="mumtaz2017", progress=False)
    assert Counter(cohort.labels) == {"MDD": 32, "HC": 29}
    assert {"MDD33", "H27"} <= set(cohort.subjects)
    assert not {"MDD34", "H30"} & set(cohort.subjects)
    left_out = {item["what"]: item["why"] for item in cohort.metadata["left_out"]}
    assert left_out["MDD34"] == "its recordings are identical to those of MDD33, which is kept"
    assert "MDD S33 EC.edf of MDD33, which is kept" in left_out["MDD34, MDD S34 EC.edf"]
    print_summary(cohort)
    printed = " ".join(capsys.readouterr().out.split())
    for copy, kept in (("MDD34", "MDD33"), ("H30", "H27")):
        assert f"{copy} is left out: its recordings are identical to those of {kept}, which is kept as the" in printed
    with pytest.raises(BadData, match=r"duplicate: byte for byte identical to MDD S33 EC\.edf of MDD33"):
        prepare(root, tmp_path / "d", preset="mumtaz2017", duplicates="stop", progress=False)


def test_mumtaz2017_names_links_in_the_place_of_recordings(shared: Path, tmp_path: Path) -> None:
    root = fill_mumtaz2017(shared / "layouts/mumtaz2017-files.tsv", tmp_path / "ds", seconds=2)
    (root / "H S1 EC.edf").unlink()
    (root / "H S1 EC.edf").symlink_to(tmp_path / "not fetched")
    with pytest.raises(BadData) as refused:
        prepare(root, tmp_path / "c", preset="mumtaz2017", progress=False)
    assert list(map(str, refused.value.problems)) == [
        "H01, H S1 EC.edf: its content is not here (a broken link; `datalad get` or `git annex get` fetches it)",
    ]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("option", ["label", "task", "session"])
def test_what_a_preset_settles_cannot_be_asked_for(tmp_path: Path, preset: str, option: str) -> None:
    with pytest.raises(BadUse, match=f"--{option} does not go with --preset {preset}"):
        prepare(tmp_path, tmp_path / "c", preset=preset, progress=False, **{option: "x"})


def test_rockhill2021(shared: Path, tmp_path: Path) -> None:
    root = fill_ds002778(shared / "layouts/ds002778", tmp_path / "ds", seconds=2)
    cohort = prepare(root, tmp_path / "c", preset="rockhill2021", progress=False)
    assert Counter(cohort.labels) == {"PD": 15, "HC": 16}
    assert tuple(cohort.channels) == rockhill2021.SETTINGS.channels
    assert cohort.n_windows == 3 * 31  # half-overlapping windows of 2 s
    assert (cohort.folds, cohort.burn_in) == (5, 15)
    assert not any("ses-off" in file["file"] for file in cohort.metadata["files"])
    left_out = [item["what"] for item in cohort.metadata["left_out"]]
    assert sum("ses-off" in what for what in left_out) == 15
    assert {f"channel EXG{i}" for i in range(1, 9)} <= set(left_out)
    assert any("Status" in what for what in left_out)
    shortcuts = [note for note in cohort.metadata["notes"] if note.startswith("possible shortcut")]
    assert [note.split()[2] for note in shortcuts] == ["sub-pd16", "sub-pd6"]
    assert np.isfinite(cohort.windows("sub-pd6")).all()


@pytest.fixture(scope="module")
def abnormal(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """The corpus's layout, prepared."""
    root = fill_tuab(tmp_path_factory.mktemp("tuab") / "tuh_eeg_abnormal")
    return prepare(root, root.parent / "tuab.cohort", preset="tuab", progress=False)


def test_tuab(abnormal: Cohort) -> None:
    assert Counter(zip(abnormal.labels, abnormal.column("part"), strict=True)) == {
        ("normal", "train"): 6, ("abnormal", "train"): 6, ("normal", "eval"): 4, ("abnormal", "eval"): 3
    }  # fmt: skip
    assert tuple(abnormal.channels) == tuab.SETTINGS.channels
    assert len(abnormal.channels) == 21
    assert abnormal.n_windows == 2 * 20
    rows = {row["subject"]: row for row in abnormal.rows()}
    assert {rows["aaaaaaan"]["sex"], rows["aaaaaaan"]["age"]} == {"F", "40"}
    mean = abnormal.windows("aaaaaaan").mean(axis=1)
    np.testing.assert_allclose(mean, 0, atol=1e-3)  # the average reference: recordings state two others
    left_out = " ".join(item["what"] for item in abnormal.metadata["left_out"])
    assert "channel EEG EKG1" in left_out
    assert "PHOTIC-REF" in left_out


def test_tuab_people_of_several_sessions_parts_and_classes_are_named(abnormal: Cohort) -> None:
    assert abnormal.records["aaaaaaan"].recordings == (
        "edf/train/normal/01_tcp_ar/aaaaaaan_s001_t000.edf", "edf/train/normal/01_tcp_ar/aaaaaaan_s002_t000.edf"
    )  # fmt: skip
    assert abnormal.records["aaaaaaay"].recordings == ("edf/eval/normal/01_tcp_ar/aaaaaaay_s003_t001.edf",)
    left_out = {item["what"]: item["why"] for item in abnormal.metadata["left_out"]}
    assert "aaaaaaay is an evaluation subject" in left_out["edf/train/normal/01_tcp_ar/aaaaaaay_s001_t000.edf"]
    assert left_out["aaaaaaaz"] == "has sessions of both classes (abnormal: s002; normal: s001)"
    assert {
        "1 with several sessions: one subject each (aaaaaaan)",
        "1 in train and eval: evaluation subjects, without their recordings of train (aaaaaaay)",
        "1 with sessions of both classes: left out (aaaaaaaz)",
    } <= set(abnormal.metadata["notes"])


def test_tuab_is_tested_on_its_official_people(abnormal: Cohort, tmp_path: Path) -> None:
    split = tmp_path / "official.json"
    done = command("folds", abnormal.path, "--test", "part=eval", "--folds", "3", "--out", split)
    assert done.returncode == 0, done.stderr
    assert "test:   7 subjects (3 abnormal, 4 normal)" in done.stdout
    plan = FoldPlan.load(split)
    part = dict(zip(abnormal.subjects, abnormal.column("part"), strict=True))
    for selects in (False, True):
        (fold,) = plan.cv_folds(selects)
        assert {part[subject] for subject in fold.test} == {"eval"}
        assert {part[subject] for subject in (*fold.train, *fold.validation)} == {"train"}
        assert len(fold.test) + len(fold.train) + len(fold.validation) == len(abnormal)
        assert bool(fold.validation) == selects
    runs = tmp_path / "runs"
    results = bridgemil.evaluate(abnormal, "bandpower", split=split, out=runs, progress=False, jobs=1, seeds=1)
    assert set(results.predictions["subject"]) == {subject for subject in part if part[subject] == "eval"}
    assert "test set of 7 subjects" in repr(results)
    assert results.comparisons["tangent"].sentence
    report = build(RunStore(runs))
    assert [len(cell.results.predictions) for cell in report.cells] == [7, 7]
    assert "The test set was given: test set of 7 subjects" in report_page(report)
    wrong = command("folds", abnormal.path, "--test", "part=test")
    assert wrong.returncode == 2
    assert "no subject has that value" in wrong.stderr


def test_another_folder_is_no_tuab(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="the layout of TUH Abnormal"):
        prepare(tmp_path, tmp_path / "c", preset="tuab", progress=False)
