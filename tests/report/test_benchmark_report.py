"""The report of a folder of runs: Table 1's layout, the paper's numbers only with what is not as in the paper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from bridgemil.errors import BadData
from bridgemil.evaluation.protocol import evaluate
from bridgemil.report.benchmark_table import build, paper
from bridgemil.report.benchmark_text import latex, markdown, ranked
from bridgemil.runs import open_store
from people import people

QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    cohort = people(9, windows=3, classes=("AD", "FTD", "HC"))
    cohort.about["source"] = "adftd"  # as the preset would write
    saved = cohort.save(folder / "adftd.cohort")
    for method, seeds in (("bandpower", 2), ("attention", 2), ("majority_vote", 2)):
        settings = {} if method == "bandpower" else QUICK
        evaluate(
            saved, method, seeds=seeds, budget="demo", folds=3, out=folder / "runs", progress=False, settings=settings
        )
    return folder / "runs"


def test_the_papers_numbers_are_all_there() -> None:
    tables = paper()
    assert sum(len(methods) for own in tables["main"].values() for methods in own.values()) == 3 * 5 * 8
    assert tables["main"]["rockhill2021"]["dsainet"]["supcon"] == [76.86, 0.93]
    assert tables["ablation"]["adftd"]["wo_variance_covariance"] == [45.12, 1.45]
    for cohort, own in tables["ablation"].items():
        assert own["bridgemil"] == tables["main"][cohort]["eegnet"]["bridgemil"]


def test_a_result_beside_the_paper_says_what_differs(runs: Path) -> None:
    report = build(open_store(runs))
    cell = next(cell for cell in report.cells if cell.method == "attention")
    assert cell.published == (58.10, 1.18)
    assert cell.caveats[:3] == ["budget demo", "2 of 5 seeds", "3 folds, not 10"]
    assert any("windows, not 69,794" in words for words in cell.caveats)
    gap = f"{cell.mean - 58.10:+.2f}"
    assert gap.startswith("-")
    for text, beside in ((markdown(report), ("58.10 ± 1.18", gap)), (latex(report), (r"58.10 $\pm$ 1.18", f"${gap}$"))):
        assert "NOT the paper's setting" in text
        assert all(words in text for words in beside)
    assert next(cell for cell in report.cells if cell.method == "bandpower").published is None


def test_means_and_comparisons_are_those_of_the_runs(runs: Path) -> None:
    report = build(open_store(runs))
    table = report.table.set_index("method")
    per_seed = []
    store = open_store(runs)
    tables = [store.predictions(i) for i in store.finished() if store.about(i)["settings"]["method"] == "attention"]
    for _, own in pd.concat(tables).groupby("seed"):
        per_seed.append(100 * (own["label"] == own["predicted"]).groupby(own["fold"]).mean().mean())
    assert table.loc["attention", "accuracy"] == pytest.approx(sum(per_seed) / 2)
    assert [len(own) for own in report.comparisons.values()] == [3]


def test_best_is_bold_and_second_underlined(runs: Path) -> None:
    report = build(open_store(runs))
    cells = next(iter(report.groups().values()))
    marked = ranked(cells, lambda text: f"<{text}>", lambda text: f"_{text}_")
    values = {cell.method: round(cell.mean, 2) for cell in cells}
    best = max(values.values())
    assert all(text.startswith("<") == (values[name] == best) for name, text in marked.items())
    text = latex(report)
    assert text.count(r"\textbf") >= 1
    assert text.startswith(r"\begin{tabular}{lccc}")
    assert r"majority\_vote" in text


def test_an_unfinished_seed_is_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    victim = next(i for i in sorted(store.finished()) if store.about(i)["settings"]["method"] == "attention")
    shutil.rmtree(store.run(victim))
    report = build(store)
    assert next(cell for cell in report.cells if cell.method == "attention").seeds == 1
    assert any("attention" in line and "not complete" in line for line in report.unfinished)


def test_the_command_writes_its_files(runs: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bridgemil", "report", str(runs), "--out", str(tmp_path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    content = json.loads(done.stdout)
    assert {row["method"] for row in content["experiments"]} == {"attention", "bandpower", "majority_vote"}
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "comparisons.csv",
        "report.md",
        "table.csv",
        "table.tex",
    ]
    plain = subprocess.run(words[:-1], capture_output=True, text=True, check=True).stdout
    assert "difference is not a failed or better repetition" in plain
    empty = subprocess.run([*words[:4], str(tmp_path)], capture_output=True, text=True, check=False)
    assert empty.returncode == 1
    assert "no finished run there" in empty.stderr


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no finished run"):
        build(open_store(tmp_path))
