"""Folders of runs, of studies, and what an earlier report left in them."""

from __future__ import annotations

from pathlib import Path

from bridgemil.runs import find_store


def test_a_folder_of_studies_stands_for_its_runs(tmp_path: Path) -> None:
    (tmp_path / "studies" / "runs" / "runs").mkdir(parents=True)
    (tmp_path / "runs" / "runs").mkdir(parents=True)
    assert find_store(tmp_path / "studies").root == tmp_path / "studies" / "runs"
    assert find_store(tmp_path / "studies" / "runs").root == tmp_path / "studies" / "runs"
    assert find_store(tmp_path / "runs").root == tmp_path / "runs"
