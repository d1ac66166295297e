"""The report of a folder of runs: Table 1's layout, the paper's numbers only with what is not as in the paper."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bridgemil import Cohort, methods
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData
from bridgemil.report.benchmark import Cell, build, paper, runs_of
from bridgemil.report.files import latex, markdown
from bridgemil.report.tables import accuracy, caveats, ranks
from bridgemil.runs import open_store, run_identity
from command import bridgemil
from leaky import resealed
from people import people


def test_the_papers_numbers_are_all_there() -> None:
    tables = paper()
    assert sum(len(numbers) for cohort in tables["main"].values() for numbers in cohort.values()) == 3 * 5 * 8
    assert tables["main"]["rockhill2021"]["dsainet"]["supcon"] == [76.86, 0.93]
    assert tables["ablation"]["adftd"]["wo_variance_covariance"] == [45.12, 1.45]
    for cohort, numbers in tables["ablation"].items():
        assert numbers["bridgemil"] == tables["main"][cohort]["eegnet"]["bridgemil"]


def test_a_result_beside_the_paper_says_what_differs(runs: Path, tmp_path: Path) -> None:
    cohort = Cohort.open(runs.parent / "adftd.cohort")
    how = {"folds": 3, "out": tmp_path / "runs", "progress": False, "settings": {"stage2.epochs": 2}}
    evaluate(cohort, "attention", "eegnet", seeds=2, budget="paper", **how)
    report = build(open_store(tmp_path / "runs"))
    cell = next(cell for cell in report.cells if cell.method == "attention")
    assert cell.published == (58.10, 1.18)
    assert cell.caveats[:3] == ["2 seeds, not 5", "3 folds, not 10", "9 subjects, not 88"]
    assert "windows, not 69,794" in cell.caveats[3]
    assert "stage2.epochs = 2" in cell.caveats
    assert "a split of another kind (groups)" in replace(cell, split=replace(cell.split, kind="groups")).caveats
    assert not any(cell.published for cell in build(open_store(runs)).cells), "of another budget"
    gap = f"{cell.row['accuracy'] - 58.10:+.2f}"
    assert gap.startswith("-")
    tex = latex(report)["table"]
    for text, beside in ((markdown(report), ("58.10 ± 1.18", gap)), (tex, (r"58.10 $\pm$ 1.18", f"${gap}$"))):
        assert "NOT the paper's setting" in text
        assert all(words in text for words in beside)
    assert next(cell for cell in report.cells if cell.method == "bandpower").published is None


def test_means_and_comparisons_are_those_of_the_runs(runs: Path) -> None:
    report = build(open_store(runs))
    table = report.table.set_index("name")
    per_seed = []
    store = open_store(runs)
    fold_means = []
    tables = [store.predictions(i) for i in store.finished() if store.metadata(i)["settings"]["method"] == "attention"]
    for _, seed_rows in pd.concat(tables).groupby("seed"):
        right = seed_rows["label"] == seed_rows["predicted"]
        per_seed.append(100 * right.mean())
        fold_means.append(100 * right.groupby(seed_rows["fold"]).mean().mean())
    assert table.loc["attention", "accuracy"] == pytest.approx(sum(per_seed) / 2)
    assert table.loc["attention", "fold_mean"] == pytest.approx(sum(fold_means) / 2)
    assert list(table.index) == [
        "bandpower", "tangent", "majority_vote", "majority_vote, seeds averaged", "attention",
        "attention, seeds averaged", "tangent+attention", "tangent+attention, seeds averaged",
    ]  # fmt: skip
    assert table["seeds_averaged"].tolist() == [False, False, False, True, False, True, False, True]
    baselines, networks = report.comparisons.values()
    assert [(c.one, c.other) for c in baselines] == [("bandpower", "tangent")]
    assert len(networks) == 2 * 3 + 3, "each network with each baseline, and each pair of networks"
    for comparison in networks:
        assert comparison.seeds == 2, "a baseline that was run with one seed stands against both seeds of a network"
        difference = table.loc[comparison.one, "accuracy"] - table.loc[comparison.other, "accuracy"]
        assert 100 * comparison.difference == pytest.approx(difference)


def test_the_seeds_averaged_are_a_row_of_their_own(runs: Path) -> None:
    report = build(open_store(runs))
    cells = {cell.label: cell for cell in report.cells}
    both = cells["attention"].results.predictions
    mean = both.groupby("subject")[["p_AD", "p_FTD", "p_HC"]].mean()
    said = mean.idxmax(axis=1).str.removeprefix("p_")
    people_right = both.drop_duplicates("subject").set_index("subject")
    right = (said.reindex(people_right.index) == people_right["label"]).mean()
    assert cells["attention, seeds averaged"].row["accuracy"] == pytest.approx(100 * right)
    assert cells["attention, seeds averaged"].published is None, "the paper does not average seeds"


def test_a_baseline_stands_once(runs: Path, tmp_path: Path) -> None:
    """Not once for each backbone, recipe and budget; and its pair with another baseline neither."""
    shutil.copytree(runs, tmp_path / "runs")
    cohort = runs.parent / "adftd.cohort"
    for budget in ("demo", "laptop"):
        evaluate(
            cohort, "attention", "covariance", budget=budget, recipe="ours", folds=3, out=tmp_path / "runs",
            progress=False, settings={"stage2.epochs": 2, "stage2.burn_in": 0},
        )  # fmt: skip
    report = build(open_store(tmp_path / "runs"))
    assert [cell.label for cell in report.cells].count("bandpower") == 1
    assert [place.title for block in report.blocks().values() for place in block] == [
        "baselines", "covariance, recipe ours, budget demo", "covariance, recipe ours, budget laptop",
        "eegnet, budget demo",
    ]  # fmt: skip
    beside = [[cell.label for cell in cells][:2] for cells in report.groups().values()]
    assert beside == 3 * [["bandpower", "tangent"]], "yet it can be had beside each network"
    pairs = list(zip(report.pairs["one"], report.pairs["other"], strict=True))
    assert pairs.count(("bandpower", "tangent")) == 1
    assert pairs.count(("attention", "bandpower")) == 3
    assert all(text.count("\nbandpower & ") == 1 for name, text in latex(report).items() if name == "scores")


def test_best_is_bold_and_second_underlined(runs: Path) -> None:
    report = build(open_store(runs))
    accuracies = [round(cell.row["accuracy"], 2) for cell in report.cells]
    alone = [i for i, cell in enumerate(report.cells) if not cell.averaged]
    best = max(accuracies[i] for i in alone)
    marks = ranks(report.cells)
    assert {i for i, mark in marks.items() if mark == "best"} == {i for i in alone if accuracies[i] == best}
    tex = latex(report)
    assert rf"\textbf{{{best:.2f}" in tex["scores"]
    assert r"\begin{tabular}{lccc}" in tex["table"]
    assert r"majority\_vote" in tex["table"]


def test_an_unfinished_seed_is_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    victim = next(i for i in sorted(store.finished()) if store.metadata(i)["settings"]["method"] == "attention")
    shutil.rmtree(store.run_folder(victim))
    report = build(store)
    assert next(cell for cell in report.cells if cell.method == "attention").results.seeds == 1
    assert any(line.startswith("Not finished") and "attention" in line for line in report.remarks)
    pairs = [c for compared in report.comparisons.values() for c in compared]
    assert all(c.seeds == 1 for c in pairs if "attention" in (c.one, c.other))
    (store.run_folder(victim)).mkdir()
    with pytest.raises(BadData, match=r"no run there \(no manifest\.json\); delete the folder"):
        build(store)


def test_a_number_stands_beside_the_papers_as_a_repetition_only_if_all_is_the_same(runs: Path) -> None:
    cell = next(cell for cell in build(open_store(runs)).cells if cell.method == "attention")
    cohort = {"source": "adftd", "n_subjects": 88, "n_windows": 70561, "classes": ["AD", "FTD", "HC"]}
    cohort |= {"changed": {}, "burn_in": 10}
    seed_rows = cell.results.predictions[cell.results.predictions["seed"] == 0]
    seeds = pd.concat([seed_rows.assign(seed=s, fold=f) for s in range(5) for f in range(10)])

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
    how = {"budget": "demo", "out": tmp_path / "runs", "progress": False, "baselines": False}
    for cohort, folder in ((clear, "x"), (noise, "y")):
        saved = cohort.save(tmp_path / folder / "cohort")
        for folds in (3, 4):
            evaluate(saved, "bandpower", folds=folds, **how)
    for epochs in (2, 3):
        evaluate(saved, "attention", folds=3, **how, settings={"stage2.epochs": epochs, "stage2.burn_in": 0})
    evaluate(saved, "bandpower", folds=3, **how, settings={"baseline.classifier": "extra_trees"})
    report = build(open_store(tmp_path / "runs"))
    assert len(report.cells) == 7
    assert len({(cell.place, cell.label) for cell in report.cells}) == 7
    labels = {cell.label.split(",")[0] for cell in report.cells if cell.place.cohort.endswith(f"({saved.hash[:6]})")}
    assert {label.split(" (")[0] for label in labels} == {"bandpower", "attention"}
    assert {"attention (stage2.epochs=2", "attention (stage2.epochs=3"} < labels
    assert "bandpower (baseline.classifier=extra_trees" in labels
    assert {split for _, split in report.blocks()} == {"3 folds, split seed 0", "4 folds, split seed 0"}
    assert len(report.blocks()) == 4
    done = [identity for cell in report.cells for identity in cell.results.runs]
    assert len(done) == 2 * (3 + 4) + 3 * 3, "each split has its own runs, though two splits may share some"
    assert [len(compared) for compared in report.comparisons.values()] == [1, 2 * 2 + 1]
    text = markdown(report)
    assert all(accuracy(cell.row) in text for cell in report.cells)


def test_an_ensemble_does_not_mix_cohorts_of_the_same_people(tmp_path: Path) -> None:
    """Two preparations of the same subjects have equal splits."""
    how = {"budget": "demo", "folds": 3, "out": tmp_path / "runs", "progress": False, "baselines": False}
    expected = {}
    for seed in (0, 1):
        saved = people(9, windows=3, seed=seed).save(tmp_path / f"cohort{seed}")
        expected[f"cohort{seed}"] = evaluate(saved, "bandpower+tangent", **how).predictions["p_patient"].tolist()
    report = build(open_store(tmp_path / "runs"))
    shown = {c.cohort: c.results.predictions["p_patient"].tolist() for c in report.cells if "+" in c.label}
    assert shown == expected


def test_a_baseline_of_the_users_that_is_not_registered_here_is_shown(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    for identity in store.finished():
        about = store.metadata(identity)
        if about["settings"]["method"] == "bandpower":
            shutil.rmtree(store.run_folder(identity))
    cell = next(cell for cell in build(open_store(runs)).cells if cell.method == "bandpower")
    settings = cell.results.settings.model_copy(update={"method": "mine", "code": "0" * 64})
    rounds = cell.split.cv_folds(selects=False)
    for (old, seed, _), subjects in zip(runs_of(cell.results, cell.split), rounds, strict=True):
        new = store.run_folder(run_identity(settings, cell.source["hash"], subjects, seed))
        shutil.copytree(open_store(runs).run_folder(old), new)
        content = open_store(runs).metadata(old) | {"settings": settings.model_dump(), "settings_hash": settings.hash}
        (new / "run.json").write_text(json.dumps(content))
        resealed(new)
    assert build(store).cells[0].label == "mine"


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
    assert remark.startswith("Failed: c, masked, eegnet: 1 run: the loss is nan")


def test_runs_of_another_results_version_are_left_out(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    store = open_store(tmp_path / "runs")
    victim = next(i for i in sorted(store.finished()) if store.metadata(i)["settings"]["method"] == "attention")
    file = store.run_folder(victim) / "run.json"
    file.write_text(json.dumps(store.metadata(victim) | {"results_version": 0}))
    resealed(file.parent)
    report = build(store)
    assert report.remarks[0].startswith("Excluded: 1 run of another results version")
    assert next(cell for cell in report.cells if cell.method == "attention").results.seeds == 1


def test_the_command_writes_its_files(runs: Path, tmp_path: Path) -> None:
    words = ["report", runs, "--out", tmp_path, "--html"]
    content = json.loads(bridgemil(*words, "--json").stdout)
    known = {"attention", "bandpower", "majority_vote", "tangent", "tangent+attention"}
    assert {row["method"] for row in content["experiments"]} == known
    table = pd.read_csv(tmp_path / "table.csv")
    assert [100 * row["accuracy"] for row in content["experiments"]] == pytest.approx(table["accuracy"].tolist())
    assert all(0 <= row["ci95_low"] <= row["accuracy"] <= row["ci95_high"] <= 1 for row in content["experiments"])
    assert all(-1 <= row["ci95_low"] <= row["ci95_high"] <= 1 for row in content["comparisons"])
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == [
        "clinical.csv", "clinical.tex", "comparisons.csv", "comparisons.tex", "predictions.csv", "report.html",
        "report.md", "scores.tex", "split_comparisons.csv", "splits.csv", "splits.tex", "table.csv", "table.tex",
        "windows.csv",
    ]  # fmt: skip
    assert sorted(Path(file).name for file in content["files"]) == files
    printed = bridgemil(*words).stdout
    unwrapped = (str(tmp_path), "WARN ")  # paths and audit warnings: one line each
    lines = [line.rstrip() for line in printed.splitlines() if not any(words in line for words in unwrapped)]
    assert max(map(len, lines)) <= 80
    plain = " ".join(printed.split())
    assert "adftd.cohort, 3 folds, split seed 0" in plain
    assert "beside the paper" not in plain, "another budget"
    assert "Chance level (largest class): 33.3" in plain
    assert "majority_vote, attention: stage2.epochs=2" in plain
    for file in ("report.md", "table.tex"):
        assert "Chance level (largest class)" in (tmp_path / file).read_text("utf-8")
    for file in ("report.md", "scores.tex"):
        text = (tmp_path / file).read_text("utf-8")
        assert "attention: stage2.epochs=2" in text
        assert "AUROC" in text
        assert "balanced" in text
    again = bridgemil(*words[:-1]).stdout
    assert "From an earlier report, not updated: report.html (use --html)" in again
    pairs = pd.read_csv(tmp_path / "comparisons.csv")
    assert pairs["difference"].abs().max() > 1, "points of accuracy, as the table"
    empty = bridgemil("report", tmp_path)
    assert empty.returncode == 1
    assert "no finished run there" in empty.stderr


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no finished run"):
        build(open_store(tmp_path))
