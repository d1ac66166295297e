"""The three data sets of the paper on their true layouts, with short synthetic signals; full lengths in tests/real."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bridgemil import prepare
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.sources import mumtaz2017, rockhill2021
from bridgemil.errors import BadData, BadUse
from bridgemil.report.terminal import print_summary
from layouts import fill_ds002778, fill_ds004504, fill_mumtaz2017


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
    with pytest.raises(BadData, match=r"sub-001, derivatives/sub-001/.*: file not found"):
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


def test_mumtaz2017_names_links_and_folders_in_the_place_of_recordings(shared: Path, tmp_path: Path) -> None:
    root = fill_mumtaz2017(shared / "layouts/mumtaz2017-files.tsv", tmp_path / "ds", seconds=2)
    (root / "H S1 EC.edf").unlink()
    (root / "H S1 EC.edf").symlink_to(tmp_path / "not fetched")
    (root / "MDD S1 EO.edf").unlink()
    (root / "MDD S1 EO.edf").mkdir()
    with pytest.raises(BadData) as refused:
        prepare(root, tmp_path / "c", preset="mumtaz2017", progress=False)
    assert list(map(str, refused.value.problems)) == [
        "H01, H S1 EC.edf: its content is not here (a broken link; `datalad get` or `git annex get` fetches it)",
        "MDD01, MDD S1 EO.edf: is a folder, a recording was expected",
    ]


@pytest.mark.parametrize("preset", ["adftd", "mumtaz2017", "rockhill2021"])
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
