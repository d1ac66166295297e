"""``bridgemil reproduce`` on the true layout of one of the paper's data sets, filled with synthetic signals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import bridgemil
from layouts import fill_ds002778

LAYOUTS = Path(__file__).parents[3] / "shared" / "data" / "layouts"


@pytest.mark.skipif(not LAYOUTS.is_dir(), reason="needs ../shared/data/layouts")
def test_prepares_plans_runs_and_reports_what_is_there(tmp_path: Path) -> None:
    fill_ds002778(LAYOUTS / "ds002778", tmp_path / "data" / "rockhill2021", seconds=12)
    small = ["--budget", "demo", "--seeds", "1", "--folds", "3", "--backbones", "covariance", "--methods", "bandpower"]
    command = ["reproduce", "--data", tmp_path / "data", "--out", tmp_path / "out", "--only", "table1", *small]

    planned = bridgemil(*command, "--plan", "--json")
    assert planned.returncode == 0, planned.stderr
    (row,) = json.loads(planned.stdout)["plan"]
    assert (row["part"], row["runs"], row["todo"], list(row["hours"])) == ("table1", 3, 3, ["cpu"])
    assert "adftd; its columns and studies are left out" in planned.stderr
    assert not (tmp_path / "out" / "runs" / "runs").exists()

    done = bridgemil(*command, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "runs" / "report" / "report.html").is_file()
    assert len(list((tmp_path / "out" / "runs" / "runs").iterdir())) == 3


def test_a_folder_without_the_data_sets_is_named(tmp_path: Path) -> None:
    refused = bridgemil("reproduce", "--data", tmp_path, "--out", tmp_path / "out")
    assert refused.returncode == 2
    assert "holds none of adftd, mumtaz2017, rockhill2021" in refused.stderr
    wrong = bridgemil("reproduce", "--data", tmp_path, "--out", tmp_path, "--only", "x")
    assert "--only must be one of table1" in wrong.stderr
