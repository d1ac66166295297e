"""The report of a folder of runs: Table 1's layout, the paper's numbers only with what is not as in the paper."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bridgemil import methods
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData
from bridgemil.report.benchmark_table import Cell, build, paper
from bridgemil.report.benchmark_text import caveats, latex, markdown, ranked
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
    assert cell.caveats[:4] == ["budget demo", "2 seeds, not 5", "3 folds, not 10", "9 subjects, not 88"]
    assert "windows, not 69,794" in cell.caveats[4]
    assert "stage2.epochs = 2" in cell.caveats
    gap = f"{cell.row['accuracy'] - 58.10:+.2f}"
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
    values = {cell.method: round(cell.row["accuracy"], 2) for cell in cells}
    best = max(values.values())
    assert all(text.startswith("<") == (values[name] == best) for name, text in marked.items())
    text = latex(report)
    assert text.count(r"\textbf") >= 1
    assert r"\begin{tabular}{lccc}" in text
    assert r"majority\_vote" in text


def test_an_unfinished_seed_is_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    victim = next(i for i in sorted(store.finished()) if store.about(i)["settings"]["method"] == "attention")
    shutil.rmtree(store.run(victim))
    report = build(store)
    assert next(cell for cell in report.cells if cell.method == "attention").results.seeds == 1
    assert any(line.startswith("Not finished") and "attention" in line for line in report.remarks)
    assert all(one.seeds == 1 for one in report.comparisons.popitem()[1] if "attention" in (one.one, one.other))
    (store.run(victim)).mkdir()
    with pytest.raises(BadData, match=r"is damaged \(no run\.json\); delete it"):
        build(store)


def test_a_number_stands_beside_the_papers_as_a_repetition_only_if_all_is_the_same(runs: Path) -> None:
    cell = next(cell for cell in build(open_store(runs)).cells if cell.method == "attention")
    cohort = {"source": "adftd", "n_subjects": 88, "n_windows": 70561, "classes": ["AD", "FTD", "HC"]}
    cohort |= {"changed": {}, "burn_in": 10}
    one = cell.results.predictions[cell.results.predictions["seed"] == 0]
    seeds = pd.concat([one.assign(seed=s, fold=f) for s in range(5) for f in range(10)])

    def made(burn_in: int = 10, changes: dict | None = None, **other: object) -> Cell:
        settings = methods.settings("attention", budget="paper", burn_in=burn_in, changes=changes)
        results = replace(cell.results, settings=settings, predictions=seeds)
        return replace(cell, source=cohort | other, results=results)

    assert made().caveats == []
    assert caveats([made()])[0].startswith("As in the paper")
    assert made(0, {"stage2.lr": 1e-3}).caveats == ["stage2.lr = 0.001", "stage2.burn_in = 0"]
    assert made(n_subjects=85).caveats == ["85 subjects, not 88"]
    assert made(classes=["HC", "dementia"]).caveats == ["classes HC, dementia"]
    assert made(changed={"high": 40.0}).caveats == ["high = 40.0"]


def test_what_is_apart_stays_apart(tmp_path: Path) -> None:
    """Cohorts of one name, splits of one cohort and variants of one method, all in one folder."""
    clear, noise = people(12, windows=3, effect=3), people(12, windows=3, seed=1)
    for cohort, folder in ((clear, "x"), (noise, "y")):
        saved = cohort.save(tmp_path / folder / "cohort")
        for folds in (3, 4):
            evaluate(saved, "bandpower", budget="demo", folds=folds, out=tmp_path / "runs", progress=False)
    for epochs in (2, 3):
        changed = {"stage2.epochs": epochs, "stage2.burn_in": 0}
        evaluate(saved, "attention", budget="demo", folds=3, out=tmp_path / "runs", progress=False, settings=changed)
    report = build(open_store(tmp_path / "runs"))
    assert len(report.cells) == 6
    assert len({(cell.cohort, cell.label) for cell in report.cells}) == 6
    assert {cell.label.split(",")[0] for cell in report.cells} == {
        "bandpower", "attention (stage2.epochs=2", "attention (stage2.epochs=3",
    }  # fmt: skip
    assert len(report.groups()) == 4
    done = [identity for cell in report.cells for identity in cell.results.runs]
    assert len(done) == 2 * (3 + 4) + 2 * 3, "each split has its own runs, though two splits may share some"
    for (cohort, _, _), cells in report.groups().items():
        shown = ranked(cells, str, str)
        for cell in cells:
            assert shown[cell.label].startswith(f"{cell.row['accuracy']:.2f}"), cohort
    assert [len(found) for found in report.comparisons.values()] == [3], "only one cohort and split has several methods"
    text = markdown(report)
    assert all(f"{cell.row['accuracy']:.2f}" in text for cell in report.cells)


def test_failed_runs_are_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    (tmp_path / "runs" / "failed").mkdir()
    content = {
        "run": "c, masked, eegnet, seed 0, fold 1",
        "experiment": "c, masked, eegnet",
        "error": "a\nthe loss is nan",
    }
    (tmp_path / "runs" / "failed" / "x.json").write_text(json.dumps(content))
    (tmp_path / "runs" / "runs" / ".DS_Store").touch()  # no run
    remark = build(open_store(tmp_path / "runs")).remarks[-1]
    assert remark.startswith("Failed: c, masked, eegnet: 1 run(s): the loss is nan")


def test_runs_of_another_results_version_are_left_out(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    victim = next(i for i in sorted(store.finished()) if store.about(i)["settings"]["method"] == "attention")
    file = store.run(victim) / "run.json"
    file.write_text(json.dumps(store.about(victim) | {"results_version": 0}))
    report = build(store)
    assert report.remarks[0].startswith("Left out: 1 runs of another version")
    assert next(cell for cell in report.cells if cell.method == "attention").results.seeds == 1


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
    plain = " ".join(subprocess.run(words[:-1], capture_output=True, text=True, check=True).stdout.split())
    assert "difference is not a failed or better repetition" in plain
    assert "Always guessing the largest class: 33.3" in plain
    assert "attention on eegnet: stage2.epochs=2" in plain
    for file in ("report.md", "table.tex"):
        text = (tmp_path / file).read_text("utf-8")
        assert "Always guessing the largest class" in text
        assert "attention on eegnet: stage2.epochs=2" in text
    pairs = pd.read_csv(tmp_path / "comparisons.csv")
    assert pairs["gain"].abs().max() > 1, "points of accuracy, as the table"
    empty = subprocess.run([*words[:4], str(tmp_path)], capture_output=True, text=True, check=False)
    assert empty.returncode == 1
    assert "no finished run there" in empty.stderr


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no finished run"):
        build(open_store(tmp_path))
