"""Files and folders appear whole or not at all; locks are held by the living only, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bridgemil.disk import Taken, aside, lock, new_file, new_folder, write_json


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"old": 1})

    def half_way() -> None:
        with new_file(file) as stream:
            stream.write(b"new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half_way()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]
    assert "old" in file.read_text()


def test_a_folder_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "folder"
    for text in ("one", "two"):
        with new_folder(final) as folder:
            (folder / f"{text}.txt").write_text(text)
    assert [entry.name for entry in final.iterdir()] == ["two.txt"]


def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = tmp_path / "folder"
    with new_folder(final) as folder:
        (folder / "old.txt").touch()
    with pytest.raises(RuntimeError, match="half way"), new_folder(final) as folder:
        raise RuntimeError("half way")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    rename = Path.replace
    refusing = {"left": 1}

    def refused(self: Path, target: Path) -> Path:
        if target == final and refusing["left"]:
            refusing["left"] -= 1
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(OSError, match="no"), new_folder(final):
        pass
    assert [entry.name for entry in final.iterdir()] == ["old.txt"]


def test_what_a_killed_process_left_of_the_old_folder_goes_with_the_next(tmp_path: Path) -> None:
    final, unfinished = tmp_path / "runs" / "aa", tmp_path / "unfinished" / "aa.folder"
    left = unfinished.with_name(".aa.folder.old.77-00.part")
    left.mkdir(parents=True)
    for text in ("one", "two"):
        with new_folder(final, unfinished) as folder:
            (folder / f"{text}.txt").touch()
    assert [entry.name for entry in final.iterdir()] == ["two.txt"]
    assert list(unfinished.parent.iterdir()) == []


def test_two_processes_of_one_number_write_to_two_names(tmp_path: Path) -> None:
    names = {aside(tmp_path / "a.json").name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith(".a.json.") and name.endswith(".part") for name in names)


def test_a_lock_leaves_no_file_and_a_dead_owner_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with lock(path):
        assert path.exists()
        with pytest.raises(Taken), lock(path, wait=False):
            pass
    assert not path.exists()
    code = (
        f"import os, signal\nfrom pathlib import Path\nfrom bridgemil.disk import lock\nwith lock(Path({str(path)!r})):"
    )
    code += " os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert path.exists(), "the dead could not tidy up"
    with lock(path, wait=False):
        pass
    assert not path.exists()


def test_many_who_want_one_lock_get_it_one_at_a_time(tmp_path: Path) -> None:
    inside, most, total = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, total
        for _ in range(5):
            with lock(tmp_path / "x.lock"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                total += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, total) == (1, 20)
    assert not (tmp_path / "x.lock").exists()
