"""What Windows and macOS lack, taken away: the workflow runs there, in a folder with spaces and umlauts."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridgemil import parallel, prepare
from bridgemil.cohort.folder import subject_folder
from bridgemil.errors import BadData
from recordings import MONTAGE, noise, write_edf

# Run by every Python that starts with it on its path, the workers included.
LACKING = """
import importlib.abc, multiprocessing, os, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Absent())
for name in ("fork", "forkpty", "sched_getaffinity", "sysconf", "mkfifo", "getuid", "geteuid", "getpgid", "killpg"):
    delattr(os, name)
multiprocessing.set_start_method("spawn")
"""


def _recordings(folder: Path) -> Path:
    """Twelve people of two classes."""
    rows = ["subject,label,file"]
    for i in range(12):
        write_edf(folder / f"Büro {i}.edf", noise(i, 8, 250), 250, MONTAGE)
        rows.append(f"Müller {i},{'ac'[i % 2]},Büro {i}.edf")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_the_workflow_without_what_other_systems_lack(tmp_path: Path) -> None:
    place = tmp_path / "Meine Dateien (ä ö ü)"
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(LACKING)
    _recordings(place / "Büro")
    (place / "clean.py").write_text("def clean(raw):\n    return raw\n")

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "bridgemil", *words]
        path = os.pathsep.join([str(tmp_path / "site"), str(Path(parallel.__file__).parents[1])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNDEFAULTENCODING": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
        assert "EncodingWarning" not in done.stderr or "site-packages" in done.stderr, done.stderr
        return done.stdout

    run("prepare", "Büro", "Köln.cohort", "--jobs", "2", "--clean", "clean.py:clean")
    run(
        "train",
        "Köln.cohort",
        "--method",
        "bandpower",
        "--folds",
        "3",
        "--out",
        "Modell ä",
        "--jobs",
        "1",
        "--no-baselines",
    )
    answers = json.loads(run("predict", "Modell ä", "Büro/Büro 3.edf", "--json", "--clean", "clean.py:clean"))
    assert answers[0]["predicted"] in ("a", "c")


def test_without_them_cores_and_memory_are_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sched_getaffinity", "sysconf"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError()))
    assert parallel.cores() == parallel.idle_cores() == os.cpu_count()
    assert parallel.machine_memory() is parallel.peak_memory() is parallel.free_memory() is None


def test_the_pool_asks_for_no_kind_of_connection_or_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of Windows are of another class; macOS and Windows start processes anew."""
    monkeypatch.setattr(parallel, "Connection", type("OfPosixOnly", (), {}))
    monkeypatch.setattr(sys, "platform", "darwin")
    started = []
    start = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: started.append(method) or start(method))
    assert dict(parallel.each(abs, [-1, 2, -3], jobs=2, label="x", show=False)) == {-1: 1, 2: 2, -3: 3}
    assert "fork" not in started


@pytest.mark.parametrize("subject", ["CON", "nul.1", "com1", "P01.", "P01 ", ".hidden", "a/b", 'x:"?*<>|\\', "Müller"])
def test_every_subject_has_a_folder_that_any_system_allows(subject: str, tmp_path: Path) -> None:
    name = subject_folder(tmp_path, subject).name
    assert not set(name) & set('<>:"/\\|?*')
    assert name[-1] not in ". "
    assert name[0] != "."
    assert name.split(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT1"}


def test_subjects_that_some_file_systems_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    folder = _recordings(tmp_path / "r")
    table = folder / "manifest.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("Müller 4", "müller 2"), encoding="utf-8")
    with pytest.raises(BadData, match=r"differs from .* only in capitals; some file systems cannot tell"):
        prepare(folder, tmp_path / "c", jobs=1, progress=False)
