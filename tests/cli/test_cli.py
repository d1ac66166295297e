"""The command line from outside: exit codes, messages, JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from bridgemil.cli import app, main
from command import bridgemil
from recordings import build_bids

VERBS = [command.name for command in app.registered_commands]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb: str) -> None:
    answer = bridgemil(verb, "--help")
    assert answer.returncode == 0
    assert f"Example: bridgemil {verb}" in answer.stdout
    assert "--json" in answer.stdout


def test_prepare_inspect_and_folds(bids: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    prepared = bridgemil("prepare", bids, out, "--label", "Group", "--jobs", 1, "--json")
    assert prepared.returncode == 0, prepared.stderr
    facts = json.loads(prepared.stdout)
    assert (facts["n_subjects"], facts["n_windows"]) == (6, 48)
    assert facts["classes"]["A"] == {"subjects": 3, "windows": 24}

    inspected = bridgemil("inspect", out)
    assert inspected.returncode == 0
    assert "6 recordings, 0.8 minutes, recorded at 250 Hz" in inspected.stdout
    assert (out / "inspect.png").read_bytes()[:4] == b"\x89PNG"
    described = json.loads(bridgemil("inspect", out, "--json", "--picture", tmp_path / "p.svg").stdout)
    assert described["picture"].endswith("p.svg")
    assert described["hash"] == facts["hash"]

    split = json.loads(bridgemil("folds", out, "--out", tmp_path / "split.json", "--json").stdout)
    assert [len(fold) for fold in split["folds"]] == [2, 2, 2]
    assert json.loads((tmp_path / "split.json").read_text()) == split
    too_many = bridgemil("folds", out, "--folds", 4)
    assert too_many.returncode == 1
    assert "class 'A' has 3 subjects" in too_many.stderr


def test_bad_data_is_1_and_bad_use_is_2(bids: Path, tmp_path: Path) -> None:
    (bids / "sub-01/eeg/sub-01_task-rest_eeg.edf").write_bytes(b"junk")
    bad = bridgemil("prepare", bids, tmp_path / "c", "--label", "Group", "--jobs", 1)
    assert bad.returncode == 1
    assert "sub-01, sub-01/eeg/sub-01_task-rest_eeg.edf: unreadable" in bad.stderr
    assert "Traceback" not in bad.stderr
    assert bridgemil("prepare", bids, tmp_path / "c", "--label", "nothing").returncode == 2
    assert bridgemil("prepare", bids, tmp_path / "c", "--nonsense").returncode == 2
    assert bridgemil("prepare", bids, tmp_path / "c", "--label", "Group", "--low", "high").returncode == 2
    assert bridgemil("inspect", tmp_path).returncode == 1, "a folder that is no cohort"
    assert bridgemil("synth", tmp_path / "s", "--evidence", "magic").returncode == 2
    assert not (tmp_path / "c").exists()


MISSING = """manifest nowhere; prepare nowhere out --label x; inspect nowhere; folds nowhere; verify nowhere;
audit nowhere;
evaluate nowhere; benchmark nowhere --methods bandpower; report nowhere; study learning_curve nowhere --out out;
clean nowhere;
explain nowhere --subject a; train nowhere --out out; predict nowhere file.edf"""


@pytest.mark.parametrize("words", [line.split() for line in MISSING.split(";")], ids=lambda words: words[0])
def test_a_path_that_is_not_there_is_2_for_every_verb(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bridgemil", *words])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # main sets it
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "bridgemil: nowhere: no " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def _hear_interrupts() -> None:
    """A shell's background jobs ignore them, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    root = build_bids(tmp_path / "b", {f"sub-{i:02d}": "AC"[i % 2] for i in range(16)}, seconds=120, sfreq=500)
    for attempt in range(5):  # on a busy machine it may be over before it is interrupted
        out = tmp_path / f"c{attempt}"
        command = [sys.executable, "-m", "bridgemil", "prepare", str(root), str(out), "--label", "Group", "--jobs", "1"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_interrupts
        )
        deadline = time.monotonic() + 300
        while not list(out.glob("subjects/sub-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        if process.returncode != 0:
            break
    assert process.returncode == 130
    assert "the same command resumes" in errors
    assert "Traceback" not in errors


def test_version() -> None:
    import bridgemil as package

    assert bridgemil("--version").stdout.strip() == package.__version__
