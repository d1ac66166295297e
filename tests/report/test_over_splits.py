"""Several splits of one cohort: means, spread and paired differences, against a computation by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from bridgemil import Cohort
from bridgemil.engine.evaluate import evaluate
from bridgemil.report.benchmark import build
from bridgemil.report.files import latex, markdown, write_files
from bridgemil.report.splits import UNEVEN, over_splits, split_pairs, split_table
from bridgemil.report.terminal import print_report
from bridgemil.runs import open_store
from command import bridgemil
from leaky import made, signals


def by_hand(runs: Path, method: str) -> dict[int, tuple[float, float, float]]:
    """Accuracy in percent, balanced accuracy and AUROC on each split of 3 folds, from the files of the runs alone."""
    store, on_split = open_store(runs), dict[int, list[pd.DataFrame]]()
    for identity in store.finished():
        about = json.loads((runs / "runs" / identity / "run.json").read_text())
        if about["settings"]["method"] == method and about["split"]["k"] == 3:
            table = pd.read_parquet(runs / "runs" / identity / "predictions.parquet")
            on_split.setdefault(about["split"]["split_seed"], []).append(table)
    scores = {}
    for split_seed, tables in on_split.items():
        seeds = []
        for _, rows in pd.concat(tables).groupby("seed"):
            right = (rows["label"] == rows["predicted"]).mean()
            balanced = balanced_accuracy_score(rows["label"], rows["predicted"])
            seeds.append((100 * right, balanced, roc_auc_score(rows["label"] == "patient", rows["p_patient"])))
        scores[split_seed] = tuple(np.mean(seeds, axis=0))
    return scores


def test_means_spread_and_paired_differences_are_right(many: Path) -> None:
    tables, remarks = over_splits(build(open_store(many)).cells)
    assert remarks == []
    assert [(table.pool[1], table.n_splits, UNEVEN in table.facts) for table in tables] == [("3 folds", 4, True)]
    rows = split_table(tables).set_index("name")
    hand = {method: by_hand(many, method) for method in ("bandpower", "tangent", "attention")}
    for method, scores in hand.items():
        row = rows.loc[method]
        values = np.array([scores[seed] for seed in sorted(scores)])
        assert row["splits"] == len(scores) == (3 if method == "attention" else 4)
        assert row["split_seeds"] == " ".join(map(str, sorted(scores)))
        for place, score in enumerate(("accuracy", "balanced_accuracy", "auroc")):
            assert row[score] == pytest.approx(values[:, place].mean())
            assert row[f"{score}_std"] == pytest.approx(values[:, place].std())
    pairs = split_pairs(tables).set_index(["one", "other"])
    assert set(pairs.index) >= {("attention", "bandpower"), ("attention", "tangent")}
    for method, baseline in (("attention", "tangent"), ("attention", "bandpower")):
        row = pairs.loc[method, baseline]
        shared = sorted(set(hand[method]) & set(hand[baseline]))
        gains = [hand[method][seed][0] - hand[baseline][seed][0] for seed in shared]
        assert row["splits"] == len(shared) == 3
        assert row["difference"] == pytest.approx(np.mean(gains))
        assert row["ci95_low"] <= row["difference"] <= row["ci95_high"]
        assert row["p_holm"] >= row["p"]
    assert not any("ahead" in name for name in [*rows.columns, *pairs.columns])
    assert rows.loc["attention", "seeds"] == "2"
    assert "attention, seeds averaged" in rows.index


def test_every_format_shows_the_same_numbers(many: Path, tmp_path: Path) -> None:
    report = build(open_store(many))
    (table,), _ = over_splits(report.cells)
    written = {file.name: file for file in write_files(report, tmp_path)}
    csv = pd.read_csv(written["splits.csv"]).set_index("name")
    words = f"{csv.loc['attention', 'accuracy']:.1f} ± {csv.loc['attention', 'accuracy_std']:.1f}"
    pairs = pd.read_csv(written["split_comparisons.csv"]).set_index(["one", "other"])
    less = round(pairs.loc[("attention", "tangent"), "difference"], 1) + 0.0
    assert words in markdown(report)
    assert words.replace("±", r"$\pm$") in latex(report)["splits"]
    assert f"${less:+.1f}$" in latex(report)["splits"]
    _, networks, less_baselines = table.sheets()
    assert networks.rows[0][:2] == ["attention", words]
    differences = {row[0]: row[1] for row in less_baselines.rows}
    assert differences["attention - tangent"] == f"{less:+.1f}"
    printed = bridgemil("report", many, "--out", tmp_path / "x", "--no-windows").stdout
    assert words in printed
    assert "cohort, 4 splits of 3 folds" in printed
    assert "cohort, 4 folds, split seed 0" in printed, "another number of folds is not averaged with them"
    assert "cohort, 3 folds, split seed 0" not in printed, "many splits are shown together"
    assert '--split "split seed 0"' in printed
    assert "Not every method was run on every split" in " ".join(printed.split())
    unwrapped = (str(tmp_path), "WARN ")  # paths and audit warnings: one line each
    lines = [line.rstrip() for line in printed.splitlines() if not any(words in line for words in unwrapped)]
    assert max(map(len, lines)) <= 80
    assert not (tmp_path / "x" / "windows.csv").exists()


def test_two_splits_of_one_seed_that_differ_are_not_averaged(many: Path) -> None:
    """By groups of two columns, say: nothing tells which splits belong together."""
    from dataclasses import replace

    cells = build(open_store(many)).cells
    cell = next(cell for cell in cells if cell.split.k == 3)
    folds = cell.split.folds
    moved = replace(cell.split, folds=((*folds[0], folds[1][0]), folds[1][1:], *folds[2:]))
    tables, remarks = over_splits([*cells, replace(cell, split=moved)])
    assert tables == []
    assert remarks == ["Not averaged over splits: cohort, 3 folds: splits of one split seed that differ"]


def test_a_failed_audit_is_said_wherever_a_number_of_many_splits_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings = signals(12, seconds=6, n_channels=3)
    recordings["sub-02"] = -recordings["sub-07"]
    cohort, how = made(recordings), {"folds": 3, "out": tmp_path / "runs", "progress": False, "baselines": False}
    for split_seed in range(4):
        evaluate(cohort, "bandpower", split_seed=split_seed, accept_risk=["same_signal"], **how)
    report = build(open_store(tmp_path / "runs"))
    print_report(report)
    assert "FAIL same_signal (accepted" in capsys.readouterr().out
    assert "FAIL same_signal (accepted" in markdown(report).split("\n## ")[0], "above the first table"
    nothing_to_show = {"comparisons.csv", "split_comparisons.csv", "comparisons.tex", "windows.csv"}  # one baseline
    for file in write_files(report, tmp_path / "report"):
        words = "same\\_signal" if file.suffix == ".tex" else "same_signal"
        assert words in file.read_text("utf-8") or file.name in nothing_to_show, file.name


def test_splits_by_other_groups_are_not_averaged(tmp_path: Path) -> None:
    columns = {"family": [i // 2 for i in range(24)], "site": [i // 4 for i in range(24)]}
    bags = np.random.default_rng(0).normal(size=(24, 3, 2, 100))
    cohort = Cohort.from_arrays(bags, list("ab") * 12, sfreq=100, channels=["Cz", "Pz"], columns=columns)
    how = {"folds": 3, "out": tmp_path / "runs", "progress": False, "baselines": False}
    for split_seed, column in ((0, "family"), (1, "site")):
        evaluate(cohort, "bandpower", groups=column, split_seed=split_seed, **how)
    report = build(open_store(tmp_path / "runs"))
    assert over_splits(report.cells) == ([], [])
    titles = [split for _, split in report.blocks()]
    assert titles == ["3 folds, split seed 0, by groups of family", "3 folds, split seed 1, by groups of site"]
