"""``bridgemil evaluate`` from outside: what it prints, its exit codes, and parts of the demo."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from bridgemil.cli import demo
from bridgemil.cohort.prepare import prepare
from bridgemil.engine.evaluate import evaluate
from bridgemil.report.pages.results import demo_page
from bridgemil.report.terminal import print_results
from command import bridgemil
from people import people

KEYS = "accuracy balanced_accuracy macro_f1 auroc mcc ci95 chance95 n_subjects folds seeds budget settings_hash".split()


@pytest.fixture
def cohort(bids: Path, tmp_path: Path) -> Path:
    prepare(bids, tmp_path / "cohort", label="Group", jobs=1, progress=False)
    return tmp_path / "cohort"


def test_clinical_options_change_no_run(cohort: Path, tmp_path: Path) -> None:
    command = ("evaluate", cohort, "--method", "tangent", "--out", tmp_path / "runs", "--folds", 3, "--no-baselines",
               "--json")  # fmt: skip
    plain = json.loads(bridgemil(*command).stdout)
    runs = sorted((tmp_path / "runs" / "runs").iterdir())
    chosen = ("--positive", "C", "--operating-point", "sensitivity=.6", "--prevalence", ".2")
    content = json.loads(bridgemil(*command, *chosen).stdout)
    assert sorted((tmp_path / "runs" / "runs").iterdir()) == runs, "no other run was done"
    assert (plain["positive"], content["positive"]) == ("A", "C")
    assert content["operating_point"]["rule"] == "sensitivity=0.6"
    assert len(content["operating_point"]["thresholds"]) == 3
    assert content["at_prevalence"]["prevalence"] == content["decision_curve"]["prevalence"] == 0.2
    assert content["roc"]["auroc"] == pytest.approx(content["auroc"])
    text = bridgemil(*command[:-1], *chosen).stdout
    assert "Positive class: C (as given). Operating point: sensitivity=0.6" in " ".join(text.split())
    assert "at a prevalence of 20 %" in text
    wrong = bridgemil(*command, "--positive", "B")
    assert wrong.returncode == 2
    assert "positive class must be one of A, C; got 'B'" in wrong.stderr


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
    assert content["positive"] == "A"
    for name in ("sensitivity", "specificity", "ppv", "npv"):
        assert set(content[name]) == {"value", "ci95"}
    assert list(content["baselines"]) == ["bandpower", "tangent"]
    for name, baseline in content["baselines"].items():
        comparison = baseline["comparison"]
        assert set(comparison) >= {"difference", "ci95", "p", "test", "sentence"}
        assert name in comparison["sentence"]
        gain = content["accuracy"]["mean"] - baseline["accuracy"]["mean"]
        assert comparison["difference"] == pytest.approx(gain)
    tables = [pd.read_parquet(file) for file in (tmp_path / "runs").rglob("predictions.parquet")]
    counts = pd.concat(tables)["subject"].value_counts()
    assert counts.to_dict() == {f"sub-{i:02d}": 3 for i in range(1, 7)}, "the method and its two baselines are kept"
    assert list(tables[0].columns) == ["seed", "fold", "subject", "label", "predicted", "p_A", "p_C"]
    assert set(pd.concat(tables)["fold"]) == {1, 2, 3}
    assert bridgemil(*command).stdout == done.stdout, "a second call reads what the first one wrote"


def test_people_get_a_table_with_intervals_chance_and_the_baselines(cohort: Path, tmp_path: Path) -> None:
    done = bridgemil(
        "evaluate", cohort, "--method", "attention", "--budget", "demo", "--folds", 3, "--threads", 1,
        "--out", tmp_path / "runs", "--set", "stage2.epochs=2", "--seeds", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain = " ".join(done.stdout.split())
    for words in (
        "6 subjects, each held out once: 3 folds, split seed 0, 2 seeds", "Chance level (largest class)",
        "seeds averaged", "tangent", "intervals do not include retraining variance", "budget demo",
        "attention: confusion matrix",
    ):  # fmt: skip
        assert words in plain, words
    assert "12 runs: 0 done, 12 to do; about" in done.stderr, "the baselines are counted"
    assert "[12/12]" in done.stderr
    assert "GB of memory" in done.stderr
    unwrapped = (str(tmp_path), "WARN ")  # paths and audit warnings: one line each
    lines = [line.rstrip() for line in done.stdout.splitlines() if not any(part in line for part in unwrapped)]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "magic"), "method must be one of"),
        (("--backbone", "resnet"), "backbone must be one of"),
        (("--budget", "huge"), "budget must be one of"),
        (("--set", "stage2.epoch=3"), "epoch"),
        (("--set", "nonsense"), "key=value"),
        (("--set", "budget=paper"), "use --budget"),
        (("--backbone", "eegnet", "--set", "backbone_options.foo=2"), "eegnet has no option foo"),
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


def test_bad_data_ends_with_1_and_a_missing_path_with_2(tmp_path: Path, cohort: Path) -> None:
    missing = bridgemil("evaluate", tmp_path / "nothing")
    assert missing.returncode == 2
    assert "no cohort there" in missing.stderr
    many = bridgemil("evaluate", cohort, "--folds", 5, "--out", tmp_path / "runs")
    assert many.returncode == 1
    assert "fewer than the 5 folds" in many.stderr


def test_the_demo_keeps_the_last_three_subjects_of_each_class_out_of_training(tmp_path: Path) -> None:
    cohort, kept = demo._subjects()
    assert list(kept["subject"]) == ["sub-034", "sub-035", "sub-036", "sub-063", "sub-064", "sub-065"]
    assert kept["Group"].value_counts().to_dict() == {"A": 3, "C": 3}
    assert len(cohort) == 59
    assert not set(cohort["subject"]) & set(kept["subject"])
    manifest = demo._manifest(tmp_path / "recordings.csv").read_text()
    assert not [subject for subject in kept["subject"] if subject in manifest]
    assert "tangent+bridgemil" in demo.METHODS, "the default method is compared"


def test_the_demos_truth_and_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few simulated people instead of the demo's, and one real comparison's page."""
    monkeypatch.setattr(demo, "TRUTH", demo.TRUTH | {"subjects": 6})
    monkeypatch.setattr(demo, "TRUTH_METHODS", ("attention",))
    how = {"budget": "demo", "recipe": "ours", "threads": 1, "progress": False, "baselines": False}
    evidence, example = demo._planted(tmp_path / "truth", how)
    assert evidence["attention"]["patients"] == 3
    cohort = people(6, windows=3)
    results = [evaluate(cohort, name, folds=3, progress=False, baselines=False) for name in ("bandpower", "tangent")]
    page = demo_page(cohort, results, evidence, example)
    assert "data:image/png" not in page, "charts follow the theme"
    assert page.count('<svg class="chart"') == 2
    assert f"attention</th><td>{evidence['attention']['auroc']:.3f}" in page
    assert "bandpower" in page


def test_odd_class_names_are_printed_as_they_are(capsys: pytest.CaptureFixture) -> None:
    results = evaluate(people(6, classes=("[/x]", "[bold] b")), "bandpower", folds=3, progress=False)
    print_results([results], list(results.baselines.values()))
    out = capsys.readouterr().out
    assert "[/x]" in out
    assert "[bold] b" in out


def test_a_backbone_is_named_without_its_folder_and_long_lines_are_indented(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n"
        "def tiny(n_channels, n_times):\n    return nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 4))\n"
    )
    changed = {"stage2.epochs": 1, "stage2.burn_in": 0, "stage2.batch_subjects": 4}
    results = evaluate(
        people(6, windows=3), "attention", f"{tmp_path / 'net.py'}:tiny", folds=3, budget="demo", recipe="paper",
        baselines=False, settings=changed, progress=False, threads=1,
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    print_results([results])
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  attention: net.py:tiny, recipe paper"))
    assert lines[start + 1].startswith("    ")
    assert not any(str(tmp_path) in line for line in lines)


def test_help_names_every_method_backbone_and_budget() -> None:
    from bridgemil import backbones, methods

    words = " ".join(bridgemil("evaluate", "--help").stdout.replace("│", " ").split())
    names = [
        *methods.names(),
        *methods.ablations(),
        *methods.budgets(),
        *backbones.BACKBONES.built_in,
        "braindecode:MODEL",
    ]
    assert [name for name in names if name not in words] == []
