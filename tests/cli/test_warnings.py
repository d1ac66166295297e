"""A warning of the audit stands in everything that is made of the cohort: every verb, page, card and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bridgemil
from bridgemil.cli import app
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.report.pages.results import demo_page
from bridgemil.runs import RunStore, warning_text
from recordings import MONTAGE, noise, write_edf

HOW = ("--folds", "3", "--out")
STUDY = ("study", "learning_curve", "--method", "bandpower", "--folds", 3, "--sizes", 8, "--draws", 1)


def run(*arguments: object) -> str:
    """What a command prints on standard output."""
    done = CliRunner().invoke(app, [str(word) for word in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def read(text: str) -> str:
    """Text of Markdown, HTML or a terminal without line breaks and escapes."""
    return " ".join(unescape(text).replace("\\", "").split())


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort in which patients are older, with everything that is made of it."""
    root = tmp_path_factory.mktemp("work")
    rows = ["subject,label,file,age"]
    for i in range(24):
        file = write_edf(root / f"p{i:02d}.edf", noise(i, 12, 250), 250, MONTAGE)
        rows.append(f"p{i:02d},{('control', 'patient')[i % 2]},{file.name},{40 + 20 * (i % 2) + i}")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    prepare(root / "manifest.csv", root / "cohort", jobs=1, progress=False)
    evaluate = ("evaluate", root / "cohort", "--method", "bandpower", "--no-baselines", *HOW, root / "runs")
    train = ("train", root / "cohort", "--method", "bandpower", "--no-baselines", "--folds", 3)
    printed = {
        "evaluate": run(*evaluate),
        "evaluate again": run(*evaluate),
        "evaluate --json": run(*evaluate, "--json"),
        "benchmark": run("benchmark", root / "cohort", "--methods", "bandpower", "--seeds", 1, *HOW, root / "runs"),
        "train": run(*train, "--out", root / "model"),
        "train --json": run(*train, "--out", root / "model", "--json"),
        "report": run("report", root / "runs", "--html", "--checklist"),
        "report --json": run("report", root / "runs", "--json"),
        "explain": run("explain", root / "runs", "--subject", "p03", "--out", root / "explain.html"),
        "predict": run("predict", root / "model", root / "p03.edf", "--report", root / "page.html"),
        "study": run(*STUDY, root / "cohort", "--out", root / "studies"),
        "study --json": run(*STUDY, root / "cohort", "--out", root / "studies", "--json"),
        "predict --json": run("predict", root / "model", root / "p03.edf", "--json"),
        "benchmark --json": run(
            "benchmark", root / "cohort", "--methods", "bandpower", "--seeds", 1, *HOW, root / "runs", "--json"
        ),
    }
    (root / "printed.json").write_text(json.dumps(printed))
    return root


def _printed(name: str) -> Callable[[Path], str]:
    return lambda root: json.loads((root / "printed.json").read_text())[name]


def _file(name: str) -> Callable[[Path], str]:
    return lambda root: (root / name).read_text("utf-8")


def _demo(root: Path) -> str:
    cohort = Cohort.open(root / "cohort")
    results = bridgemil.evaluate(cohort, "bandpower", folds=3, out=root / "runs", progress=False, baselines=False)
    return demo_page(cohort, [results])


PLACES: dict[str, Callable[[Path], str]] = {
    **{name: _printed(name) for name in ("evaluate", "evaluate again", "benchmark", "train", "report")},
    **{name: _printed(name) for name in ("explain", "predict", "study")},
    "report.md": _file("runs/report/report.md"),
    "report.html": _file("runs/report/report.html"),
    "checklist.md": _file("runs/report/checklist.md"),
    "checklist.html": _file("runs/report/checklist.html"),
    "findings.md": _file("studies/learning_curve/findings.md"),
    "card": _file("model/card.md"),
    "page of a held-out person": _file("explain.html"),
    "page of a recording": _file("page.html"),
    "demo page": _demo,
}


JSON = (
    "evaluate --json", "benchmark --json", "train --json", "report --json", "study --json", "predict --json",
    "bundle.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def planted(work: Path) -> dict[str, str]:
    """The warning, as it is stored with the runs."""
    store = RunStore(work / "runs")
    (name,) = store.names("splits")
    found = store.record("splits", name)["warnings"]
    (warning,) = [warning for warning in found if warning["check"] == "shortcut_age"]
    assert warning["level"] == "WARN"
    return warning


@pytest.mark.parametrize("place", PLACES)
def test_a_warning_of_the_audit_stands_everywhere(work: Path, planted: dict[str, str], place: str) -> None:
    assert read(warning_text(planted)) in read(PLACES[place](work))


@pytest.mark.parametrize(
    "place", ["report.md", "card", "report.html", "checklist.html", "page of a recording", "demo page"]
)
def test_it_stands_at_the_top(work: Path, planted: dict[str, str], place: str) -> None:
    text = read(PLACES[place](work))
    first = min(text.index(mark) for mark in ("## ", "<section id=") if mark in text)
    assert text.index(read(warning_text(planted))) < first


@pytest.mark.parametrize("name", JSON)
def test_machines_are_told(work: Path, planted: dict[str, str], name: str) -> None:
    text = (work / "model/bundle.json").read_text() if name == "bundle.json" else _printed(name)(work)
    content: Any = json.loads(text)
    listed = content[0]["model"]["audit_warnings"] if name == "predict --json" else content["warnings"]
    found = [{key: row[key] for key in ("check", "level", "message")} for row in listed]
    assert planted in found


def test_in_a_terminal_each_is_one_line(work: Path, planted: dict[str, str]) -> None:
    assert warning_text(planted) in _printed("evaluate")(work).splitlines()


def test_a_warning_moves_with_the_runs(work: Path, planted: dict[str, str], tmp_path: Path) -> None:
    """Copied to where there is no cohort, the runs still say it."""
    import shutil

    shutil.copytree(work / "runs", tmp_path / "copied")
    printed = run("report", tmp_path / "copied", "--out", tmp_path / "report", "--checklist")
    assert warning_text(planted) in printed
    assert read(warning_text(planted)) in read((tmp_path / "report/checklist.md").read_text())


def test_python_has_them_too(work: Path, planted: dict[str, str]) -> None:
    results = bridgemil.evaluate(work / "cohort", "bandpower", folds=3, progress=False, baselines=False)
    assert planted in results.warnings
    assert warning_text(planted) in repr(results)
