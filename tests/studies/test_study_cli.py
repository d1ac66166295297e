"""``bridgemil study`` as people call it: refusals, JSON, and going on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from bridgemil import cli, studies
from bridgemil.cli import study
from bridgemil.cohort.cohort import Cohort
from bridgemil.runs import RunStore
from contexts import QUICK, files, quick_context

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process: exit code, what it prints, and what it complains of."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bridgemil", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capfd.readouterr()
        return int(end.value.code or 0), said.out, " ".join(re.sub("[│╭╮╰╯─]", " ", said.err).split())

    return run


def test_every_study_is_named_in_the_help_and_says_what_it_is(call: Call) -> None:
    code, printed, _ = call("study", "--help")
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", printed).split())
    assert code == 0
    table = (Path(__file__).parents[2] / "docs" / "studies.md").read_text().splitlines()
    documented = {row.split("`")[1]: row for row in table if row.startswith("| `")}
    assert list(documented) == studies.names()
    for name in studies.names():
        assert f"{name} ({studies.STUDIES[name].description})" in words
        assert callable(studies.STUDIES.load(name).perform)
        for flag, option in studies.STUDIES[name].flags.items():
            assert f"--{flag}" in words
            assert f"`--{flag}" in documented[name], "docs/studies.md names it"
            assert option == studies.flags()[flag][0], "one option means the same in every study"


def test_a_study_is_one_file_and_one_line(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "count.py").write_text(
        "from bridgemil.studies.findings import Findings\n"
        "def perform(context):\n"
        "    times = sum(context.option('how_often', [1]))\n"
        "    return Findings('Counting', [f'{times * len(context.cohorts[0])} subjects'], {}, {})\n"
    )
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    registry = studies.STUDIES.copy()
    monkeypatch.setattr(studies, "STUDIES", registry)
    flags = {"how_often": studies.Option("how many times.", "numbers")}
    registry["count"] = studies.Study("counts subjects", "count", flags=flags)
    monkeypatch.setattr(study.run, "__signature__", study.with_options())
    app = typer.Typer()
    app.command()(cli.options.verb(study.run))
    monkeypatch.delitem(sys.modules, "bridgemil.studies.count", raising=False)
    with pytest.raises(SystemExit) as end:
        app(["count", str(cohort.path), "--out", str(tmp_path / "out"), "--how-often", "2,3", "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == [f"{5 * len(cohort)} subjects"]
    assert "counting" in (tmp_path / "out/count/findings.md").read_text().lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ablatoin",), "study must be one of reliability, .*did you mean ablation"),
        (("ablation", "--nested"), "--nested is no option of the study ablation; its own: --variants"),
        (("representation", "--method", "supcon"), "--method is no option of the study representation; its own: none"),
        (("sensitivity", "--vary", "stage2.retention"), r"--vary.*expected key=value,value; got .stage2\.retention"),
        (("sensitivity", "--vary", "stage2.retension=0,1"), r"no setting stage2\.retension; did you mean"),
        (("sensitivity", "--vary", "stage2.retention=0,,1"), r"--vary.*expected key=value,value"),
        (("sensitivity", "--vary", "stage2.lr=1", "--vary", "stage2.lr=2"), r"--vary.*stage2\.lr is named twice"),
        (("sensitivity", "--vary", "stage2.retention={}"), r"--vary stage2\.retention: \{\} is no number, word"),
        (("sensitivity", "--vary", "stage2.retention=2020-01-01"), r"--vary stage2\.retention: .* is no number, word"),
        (("sensitivity", "--method", "bandpower"), "name one that it has with --vary"),
        (("sensitivity", "--variants", "wo_nearby"), "--variants is no option of the study sensitivity"),
        (("ablation", "--backbone", "eegnat"), "backbone must be one of .*did you mean eegnet"),
        (("ablation", "--budget", "huge"), "budget must be one of paper"),
        (("ablation", "--split-seeds", 0), "--split-seeds"),
    ],
)
def test_wrong_calls_are_refused_before_any_run(
    cohort: Cohort, tmp_path: Path, call: Call, arguments: tuple[object, ...], words: str
) -> None:
    name, *more = arguments
    code, printed, complaint = call("study", name, cohort.path, "--out", tmp_path / "out", *more)
    assert (code, printed) == (2, "")
    assert re.search(words, complaint), complaint
    assert "Traceback" not in complaint
    assert not (tmp_path / "out").exists()


def test_json_and_a_second_call_that_runs_nothing_and_writes_the_same(
    cohort: Cohort, tmp_path: Path, call: Call
) -> None:
    settings = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    command = (
        "study", "ablation", cohort.path, "--out", tmp_path, "--backbone", "eegnet", "--budget", "demo", "--folds", 3,
        "--jobs", 1, "--device", "cpu", "--variants", "wo_retention", *settings,
    )  # fmt: skip
    code, printed, complaint = call(*command, "--json")
    assert code == 0, complaint
    content = json.loads(printed)
    assert content["folder"] == str(tmp_path / "ablation")
    assert [row["variant"] for row in content["tables"]["ablation"]] == ["bridgemil", "wo_retention"]
    assert content["tables"]["ablation"][0]["gain"] is None
    before = files(tmp_path / "ablation"), sorted((tmp_path / "runs" / "runs").iterdir())
    assert len(before[1]) == 2 * 3
    assert json.loads(call(*command, "--json")[1]) == content
    code, printed, _ = call(*command)
    assert code == 0
    assert all(sentence in printed for sentence in content["sentences"])
    assert f"Written: {tmp_path / 'ablation' / 'findings.md'}" in printed
    assert (files(tmp_path / "ablation"), sorted((tmp_path / "runs" / "runs").iterdir())) == before


def test_benchmark_varies_settings(cohort: Cohort, tmp_path: Path, call: Call) -> None:
    command = (
        "benchmark", cohort.path, "--methods", "bandpower,bridgemil", "--seeds", 1, "--budget", "demo", "--folds", 3,
        "--out", tmp_path / "runs", "--plan", "--json",
    )  # fmt: skip
    code, printed, _ = call(*command, "--vary", "stage2.retention=0,1e-4", "--vary", "stage1.radius=1,2,3")
    assert (code, json.loads(printed)["runs"]) == (0, 3 * (1 + 2 * 3))
    code, _, complaint = call(*command, "--vary", "stage2.retension=0,1e-4")
    assert code == 2
    assert "retension" in complaint
    assert not (tmp_path / "runs").exists()


def test_killed_half_way_it_resumes_to_the_same_figure(cohort: Cohort, tmp_path: Path) -> None:
    settings = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    command = [
        sys.executable, "-m", "bridgemil", "study", "sensitivity", str(cohort.path), "--out", str(tmp_path / "killed"),
        "--backbone", "eegnet", "--recipe", "paper", "--budget", "demo", "--folds", "3", "--jobs", "1", "--device",
        "cpu", "--vary", "stage2.retention=0,1e-4,1e-2", *settings,
    ]  # fmt: skip
    options = {"vary": {"stage2.retention": [0, 1e-4, 1e-2]}}
    studies.study("sensitivity", quick_context(cohort, tmp_path / "whole", options=options))
    every, store = RunStore(tmp_path / "whole/runs").finished(), RunStore(tmp_path / "killed/runs")
    quiet = subprocess.DEVNULL
    first = subprocess.Popen(command, start_new_session=True, stdout=quiet, stderr=quiet)
    try:
        while not store.finished():
            assert first.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    done = {identity: (store.run_folder(identity) / "run.json").stat().st_mtime_ns for identity in store.finished()}
    assert 0 < len(done) < len(every)
    assert not (tmp_path / "killed/sensitivity").exists()
    studies.study("sensitivity", quick_context(cohort, tmp_path / "killed", options=options))
    assert store.finished() == every
    assert all((store.run_folder(identity) / "run.json").stat().st_mtime_ns == done[identity] for identity in done)
    written = files(tmp_path / "killed/sensitivity")
    assert {"sensitivity.png", "sensitivity.svg", "sensitivity.csv", "findings.md"} <= set(written)
    assert written == files(tmp_path / "whole/sensitivity")
