"""``bridgemil explain`` and ``report --html`` from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluated import evaluated


def bridgemil(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridgemil", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(tmp_path_factory.mktemp("cli"), "attention", "tangent").root


def test_a_person_gets_the_fold_the_spread_the_test_and_the_files(runs: Path, tmp_path: Path) -> None:
    done = bridgemil("explain", runs, "--subject", "subject-003", "--csv", tmp_path / "csv")
    assert done.returncode == 0, done.stderr
    for words in ("attention, covariance, fold", "of 3, seed 0 did not see subject-003", "Gates: mean", "5-95 %",
                  "without a random tenth by", "strongest patterns", "Research use only"):  # fmt: skip
        assert words in done.stdout, words
    assert (runs / "explain" / "subject-003.html").is_file()
    assert sorted(file.name for file in (tmp_path / "csv").iterdir()) == ["electrodes.csv", "pairs.csv", "windows.csv"]


def test_json_for_machines(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "folder" / "page.html"
    done = bridgemil("explain", runs, "--subject", "subject-003", "--method", "tangent", "--out", page, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["subject"] == "subject-003"
    assert sum(content["probabilities"].values()) == pytest.approx(1)
    assert content["files"] == [str(page)]
    assert content["research_use_only"] is True
    removal = content["windows"]["contribution"]["removal"]
    assert set(removal) == {"windows", "top_tenth", "random_tenth", "random_range", "more_than_chance"}
    assert len(content["top_windows"]["contribution"]) == 5


def test_mistakes_are_told(runs: Path, tmp_path: Path) -> None:
    unknown = bridgemil("explain", runs, "--subject", "nobody")
    assert unknown.returncode == 2
    assert "no finished run held 'nobody' out" in unknown.stderr
    missing = bridgemil("explain", tmp_path / "none", "--subject", "x")
    assert missing.returncode == 1
    assert "no such folder" in missing.stderr
    model = next((runs / "runs").iterdir())
    wrong = bridgemil("explain", model, "--subject", "x")
    assert wrong.returncode == 2
    assert "the model of one run" in wrong.stderr


def test_report_writes_a_page_too(runs: Path, tmp_path: Path) -> None:
    done = bridgemil("report", runs, "--html", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Methods section" in (tmp_path / "report.html").read_text("utf-8")
    assert "report.html" in done.stdout
