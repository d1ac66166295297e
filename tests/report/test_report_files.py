"""The files of a report: every held-out subject and window, and names that mean something to Markdown and LaTeX."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from bridgemil.cli import app
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.diagnostic_accuracy import OperatingPoint
from bridgemil.report.benchmark import build, with_clinical_options
from bridgemil.report.choice import Choice
from bridgemil.report.files import _tex, latex, markdown, write_files
from bridgemil.report.templating import md_text
from bridgemil.report.terminal import print_report
from bridgemil.runs import open_store
from people import people

NAMES = ["cohort", "split", "method", "backbone", "recipe", "budget", "settings_hash", "warnings"]
NAMES += ["seed", "fold", "subject"]
ODD = r"[/b] a_b*|\x{y}$1&#~^<i>%"


def test_predictions_hold_every_held_out_subject_of_every_experiment(runs: Path, tmp_path: Path) -> None:
    report = build(open_store(runs))
    write_files(report, tmp_path)
    table = pd.read_csv(tmp_path / "predictions.csv")
    assert list(table.columns) == [*NAMES, "label", "predicted", "p_AD", "p_FTD", "p_HC"]
    counts = table.groupby("method")["subject"].agg(["size", "nunique"])
    assert counts["size"].to_dict() == {
        "attention": 18, "bandpower": 9, "majority_vote": 18, "tangent": 18, "tangent+attention": 18,
    }  # fmt: skip
    assert set(counts["nunique"]) == {9}
    assert set(table["split"]) == {"3 folds, split seed 0"}
    assert set(table["fold"]) == {1, 2, 3}
    for cell in report.cells:
        if not cell.averaged:
            rows = table[table["method"] == cell.method]
            assert rows["p_AD"].to_numpy() == pytest.approx(cell.results.predictions["p_AD"].to_numpy(), abs=1e-12)


def test_windows_are_those_of_the_results(runs: Path, tmp_path: Path) -> None:
    report = build(open_store(runs))
    write_files(report, tmp_path)
    table = pd.read_csv(tmp_path / "windows.csv")
    assert list(table.columns)[:14] == [*NAMES, "window", "second", "gate"]
    alone = {"attention", "majority_vote", "bandpower", "tangent"}
    assert set(table["method"]) == alone, "an ensemble's windows are its members'"
    for cell in report.cells:
        rows = table[table["method"] == cell.method].reset_index(drop=True)
        if len(rows) and not cell.averaged:
            expected = cell.results.windows
            shared = ["seed", "fold", "subject", "window", "second"]
            assert rows[shared].astype(expected[shared].dtypes).equals(expected[shared])
            said = {"attention": "gate", "majority_vote": "p_AD"}.get(cell.method, "contribution_AD")
            assert rows[said].to_numpy() == pytest.approx(expected[said].to_numpy(), rel=1e-4)
    assert table.loc[table["method"] == "attention", "p_AD"].isna().all()


def test_an_ensemble_chosen_alone_brings_its_members_windows(runs: Path, tmp_path: Path) -> None:
    write_files(build(open_store(runs), Choice(methods=("tangent+attention",))), tmp_path)
    assert set(pd.read_csv(tmp_path / "windows.csv")["method"]) == {"attention", "tangent"}
    assert set(pd.read_csv(tmp_path / "predictions.csv")["method"]) == {"tangent+attention"}


def test_cohorts_of_other_classes_leave_cells_empty(tmp_path: Path) -> None:
    for name, classes in (("one", ("a", "b")), ("two", ("b", "c"))):
        saved = people(6, classes=classes, windows=2).save(tmp_path / name)
        evaluate(saved, "bandpower", folds=3, out=tmp_path / "runs", progress=False, baselines=False)
    write_files(build(open_store(tmp_path / "runs")), tmp_path / "report")
    table = pd.read_csv(tmp_path / "report" / "predictions.csv").set_index("cohort")
    assert list(table.columns[-3:]) == ["p_a", "p_b", "p_c"]
    assert table.loc["one", ["p_a", "p_b"]].notna().all(axis=None)
    assert table.loc["one", "p_c"].isna().all()
    assert table.loc["two", "p_a"].isna().all()
    windows = pd.read_csv(tmp_path / "report" / "windows.csv").set_index("cohort")
    assert windows.loc["one", "contribution_b"].notna().all()
    assert windows.loc["one", "contribution_c"].isna().all()


def test_names_are_safe_in_markdown_latex_and_the_terminal(runs: Path, capsys: pytest.CaptureFixture) -> None:
    report = build(open_store(runs))
    source = dict(report.cells[0].source) | {"classes": [ODD, "x"]}
    report.cells = [replace(cell, cohort=ODD, source=source) for cell in report.cells]
    report.comparisons = {place._replace(cohort=ODD): found for place, found in report.comparisons.items()}
    text = markdown(report)
    widths = {re.sub(r"\\.", "", line).count("|") for line in text.splitlines() if line.startswith("|")}
    assert all(not re.search(r"(?<!\\)[*<$]", md_text(word)) for word in (ODD, "*", "<b>"))
    assert widths == {5, 8}, "no cell more"
    assert md_text("wo_retention _x_") == r"wo_retention \_x\_"
    for tex in latex(report).values():
        for line in tex.splitlines()[1:]:
            bare = re.sub(r"\\[\\_%#&${}]", "", line)
            assert bare.count("{") == bare.count("}"), line
            assert bare.count("$") % 2 == 0, line
            assert not re.match(r"\s*[\[*]", line), "would be taken for an option of the row before"
    assert _tex("-3.8 to +20.0, 19.4 - 55.6 ± 2 %") == r"$-3.8$ to $+20.0$, 19.4--55.6 $\pm$ 2 \%"
    print_report(report)
    assert ODD in capsys.readouterr().out


def test_clinical_metrics_are_in_every_form(many: Path, tmp_path: Path) -> None:
    arguments = ["report", str(many), "--out", str(tmp_path), "--no-windows", "--html", "--checklist"]
    arguments += ["--split", "split seed 0"]
    chosen = ["--operating-point", "specificity=.6", "--prevalence", ".25"]
    done = CliRunner().invoke(app, [*arguments, *chosen, "--json"])
    assert done.exit_code == 0, done.output
    rows = pd.DataFrame(json.loads(done.output)["clinical"])
    pd.testing.assert_frame_equal(rows, pd.read_csv(tmp_path / "clinical.csv"), check_dtype=False)
    assert set(rows["measure"]) == {"sensitivity", "specificity", "ppv", "npv"}
    assert (rows["operating_point"] == "specificity=0.6").all()
    assert 3 * (rows["prevalence"] == 0.25).sum() == len(rows)
    positive = rows["class"].iloc[0]
    for name in ("report.md", "report.html", "checklist.md", "clinical.tex"):
        text = " ".join((tmp_path / name).read_text().split())
        assert f"positive class {positive}" in text, name
        assert "at a prevalence of 25" in text, name
    page = (tmp_path / "report.html").read_text()
    for title in ("ROC", "Precision-recall", "Decision curve at a prevalence of 25 %"):
        assert f'aria-label="{title}"' in page


def test_options_of_two_classes_are_refused_where_nothing_has_two(runs: Path, tmp_path: Path) -> None:
    arguments = ["report", str(runs), "--out", str(tmp_path), "--no-windows", "--html"]
    refused = CliRunner().invoke(app, [*arguments, "--prevalence", ".1"])
    assert isinstance(refused.exception, BadUse)
    assert "the classes of these runs are AD, FTD, HC" in str(refused.exception)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "Sensitivity and specificity of each class" in (tmp_path / "report.md").read_text()
    assert 'aria-label="ROC"' not in (tmp_path / "report.html").read_text()


def test_a_cohort_without_the_positive_class_keeps_its_default(many: Path) -> None:
    report = build(open_store(many))
    cell, classes = report.cells[0], report.cells[0].results.classes
    others = {old: f"other {old}" for old in classes}
    renamed = cell.results.predictions.replace({"label": others, "predicted": others})
    renamed = renamed.rename(columns={f"p_{old}": f"p_{new}" for old, new in others.items()})
    other = replace(cell.results, predictions=renamed, classes=list(others.values()))
    report.cells.append(replace(cell, cohort="elsewhere", results=other))
    with_clinical_options(report, ClinicalOptions(classes[0], OperatingPoint("youden")))
    found = [cell.results.clinical.to_dict() for cell in report.cells]
    assert {content["positive"] for content in found[:-1]} == {classes[0]}
    assert found[-1]["positive"] == f"other {classes[1]}"
    assert found[-1]["operating_point"]["rule"] == "youden"
    assert sum("elsewhere" in line and f"no class {classes[0]}" in line for line in report.remarks) == 1
    with pytest.raises(BadUse, match="are for two classes, one of them the positive one"):
        with_clinical_options(report, ClinicalOptions(positive="nobody"))


def test_files_are_written_although_the_reader_closes_the_pipe(runs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bridgemil", "report", str(runs), "--out", str(tmp_path / "report")]
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does once it has its lines
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert {"report.md", "predictions.csv"} <= {file.name for file in (tmp_path / "report").iterdir()}
