"""``bridgemil explain`` and ``report --html`` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridgemil.bundle.training import train
from bridgemil.cohort.prepare import prepare
from command import bridgemil
from evaluated import evaluated
from recordings import MONTAGE, build_bids, noise, write_edf


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(tmp_path_factory.mktemp("cli"), "attention", "tangent").root


def test_a_person_gets_the_fold_the_spread_the_test_and_the_files(runs: Path, tmp_path: Path) -> None:
    done = bridgemil("explain", runs, "--subject", "subject-003", "--csv", tmp_path / "csv")
    assert done.returncode == 0, done.stderr
    for words in ("attention, covariance, fold", "subject-003 was held out from the model of",
                  "Attention weights: mean", "5-95 %",
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
    singled_out = content["windows"]["contribution"]["singles_out"]
    assert len(content["top_windows"]["contribution"]) == 5 * singled_out


def test_mistakes_are_told(runs: Path, tmp_path: Path) -> None:
    unknown = bridgemil("explain", runs, "--subject", "nobody")
    assert unknown.returncode == 2
    assert "no finished run held 'nobody' out" in unknown.stderr
    missing = bridgemil("explain", tmp_path / "none", "--subject", "x")
    assert missing.returncode == 2
    assert "no such folder" in missing.stderr
    model = next((runs / "runs").iterdir())
    wrong = bridgemil("explain", model, "--subject", "x")
    assert wrong.returncode == 2
    assert "the model of one run" in wrong.stderr


def test_runs_and_a_model_on_your_own_code_are_explained_if_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n"
        "def tiny(n_channels, n_times):\n    return nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 4))\n"
    )
    code = f"{tmp_path / 'net.py'}:tiny"
    build_bids(tmp_path / "bids", {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 10)}, seconds=20)
    cohort = prepare(tmp_path / "bids", tmp_path / "cohort", label="Group", jobs=1, progress=False)
    train(
        cohort, tmp_path / "m", "attention", code, budget="demo", folds=3, baselines=False, progress=False, threads=1,
        settings={"stage2.epochs": 1, "stage2.burn_in": 0}, runs=tmp_path / "runs",
    )  # fmt: skip
    signal = noise(3, 20, 250)
    signal[2] = 0
    flat = write_edf(tmp_path / "flat.edf", signal, 250, MONTAGE)
    calls = (
        ("explain", tmp_path / "runs", "--subject", "sub-01"),
        ("explain", tmp_path / "m", flat, "--bad-channels", "interpolate", "--out", tmp_path / "page.html"),
    )
    for call in calls:
        assert "never makes code run" in bridgemil(*call).stderr
        done = bridgemil(*call, "--backbone", code)
        assert done.returncode == 0, done.stderr
        assert "Attention weights: mean" in done.stdout
    assert "interpolated" in done.stdout
    wrong = bridgemil(*calls[0], "--bad-channels", "interpolate")
    assert wrong.returncode == 2
    assert "--bad-channels is for new recordings" in wrong.stderr


def test_report_writes_a_page_too(runs: Path, tmp_path: Path) -> None:
    done = bridgemil("report", runs, "--html", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Methods section" in (tmp_path / "report.html").read_text("utf-8")
    assert "report.html" in done.stdout
