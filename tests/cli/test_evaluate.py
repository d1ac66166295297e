"""``bridgemil evaluate`` from outside: what it prints, its exit codes, and the demo's report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from bridgemil.cli import demo
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.synthetic import SynthSettings, synthesise, true_evidence
from bridgemil.engine.evaluate import evaluate
from people import people

KEYS = "accuracy balanced_accuracy macro_f1 auroc mcc ci95 chance95 n_subjects folds seeds budget settings_hash".split()


def bridgemil(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridgemil", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def cohort(bids: Path, tmp_path: Path) -> Path:
    prepare(bids, tmp_path / "cohort", label="Group", jobs=1, progress=False)
    return tmp_path / "cohort"


def test_json_has_the_keys_of_the_contract(cohort: Path, tmp_path: Path) -> None:
    command = (
        "evaluate", cohort, "--method", "bridgemil", "--backbone", "eegnet", "--seeds", 1, "--budget", "demo",
        "--out", tmp_path / "runs", "--folds", 3, "--threads", 1, "--set", "stage1.epochs=1", "--set",
        "stage2.epochs=2", "--set", "stage2.retention=1e-4", "--json",
    )  # fmt: skip
    done = bridgemil(*command)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [key for key in KEYS if key not in content] == []
    assert set(content["accuracy"]) == {"mean", "std"}
    assert (content["n_subjects"], content["folds"], content["seeds"], content["budget"]) == (6, 3, 1, "demo")
    assert content["ci95"][0] <= content["accuracy"]["mean"] <= content["ci95"][1]
    assert content["subbag_pairs"] == 64
    assert content["settings"]["stage2"]["retention"] == 1e-4
    assert "band power" in content["bandpower"]["sentence"]
    tables = [pd.read_parquet(file) for file in (tmp_path / "runs").rglob("predictions.parquet")]
    assert sorted(pd.concat(tables)["subject"]) == [f"sub-{i:02d}" for i in range(1, 7)]
    assert list(tables[0].columns) == ["seed", "fold", "subject", "label", "predicted", "p_A", "p_C"]
    assert bridgemil(*command).stdout == done.stdout, "a second call reads what the first one wrote"


def test_people_get_a_table_with_intervals_chance_and_the_floor(cohort: Path, tmp_path: Path) -> None:
    done = bridgemil(
        "evaluate", cohort, "--method", "attention", "--budget", "demo", "--folds", 3, "--threads", 1,
        "--out", tmp_path / "runs", "--set", "stage2.epochs=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in ("6 subjects, each held out once: 3 folds, 1 seed", "Always guessing the largest class", "bandpower",
                  "bootstrap over subjects", "budget demo", "attention: subjects"):  # fmt: skip
        assert words in done.stdout, words
    assert "GB of memory" in done.stderr
    assert "(3/3 runs" in done.stderr
    assert max(map(len, done.stdout.splitlines())) < 140


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "magic"), "method must be one of"),
        (("--backbone", "resnet"), "backbone must be one of"),
        (("--budget", "huge"), "budget must be one of"),
        (("--set", "stage2.epoch=3"), "epoch"),
        (("--set", "nonsense"), "key=value"),
        (("--set", "budget=paper"), "use --budget"),
        (("--method", "attention", "--set", "backbone_options.foo=2"), "eegnet has no option foo"),
        (("--device", "tpu"), "device must be"),
        (("--groups", "site"), "no column 'site'"),
    ],
)
def test_bad_use_ends_with_2_and_names_what_is_wrong(
    cohort: Path, tmp_path: Path, arguments: tuple, words: str
) -> None:
    done = bridgemil("evaluate", cohort, "--folds", 3, "--out", tmp_path / "runs", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_bad_data_ends_with_1(tmp_path: Path, cohort: Path) -> None:
    missing = bridgemil("evaluate", tmp_path / "nothing")
    assert missing.returncode == 1
    assert "no cohort there" in missing.stderr
    many = bridgemil("evaluate", cohort, "--folds", 5, "--out", tmp_path / "runs")
    assert many.returncode == 1
    assert "fewer than the 5 folds" in many.stderr


def test_the_demos_report_holds_the_table_the_gates_and_the_pictures(tmp_path: Path) -> None:
    settings = SynthSettings(subjects=6, seconds=60)
    recordings = synthesise(tmp_path / "recordings", settings, jobs=1, progress=False)
    cohort = prepare(recordings, tmp_path / "cohort", label="group", jobs=1, progress=False)
    truth = true_evidence(recordings, "sub-002", cohort.window_starts("sub-002"))
    assert 0.2 < truth.mean() < 0.7
    quick = {"stage2.epochs": 2, "stage2.burn_in": 0}
    results = {
        name: evaluate(
            cohort, name, budget="demo", folds=3, out=tmp_path / "runs", threads=1, progress=False,
            settings={} if name == "bandpower" else quick,
        )
        for name in ("bandpower", "attention")
    }  # fmt: skip
    from bridgemil.report.cohort_figure import draw

    draw(cohort, tmp_path / "cohort.png", show=False)
    found = demo._report(tmp_path, recordings, cohort, results, show=False)
    assert len(found["attention"].subjects) == 3
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "attention" in page
    assert f"{found['attention'].mean:.3f}" in page


def test_odd_class_names_and_no_floor_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from bridgemil.report.results_table import print_results

    results = evaluate(people(6, classes=("[/x]", "[bold] b")), "bandpower", folds=3, progress=False)
    print_results([], results)
    print_results([results])
    out = capsys.readouterr().out
    assert "[/x]" in out
    assert "[bold] b" in out


def test_help_names_every_method_backbone_and_budget() -> None:
    from bridgemil import backbones, methods

    words = " ".join(bridgemil("evaluate", "--help").stdout.replace("│", " ").split())
    names = [*methods.names(), *methods.ablations(), *methods.budgets(), *backbones._BUILT_IN, "braindecode:MODEL"]
    assert [name for name in names if name not in words] == []
