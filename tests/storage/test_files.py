"""Files and folders appear whole or not at all; locks are held by the living only."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bridgemil.errors import BadUse
from bridgemil.storage.files import Taken, aside, lock, new_file, new_folder, remove, write_json, write_text
from named_pipes import make_pipe


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
    final = tmp_path / "runs" / "aa"
    left = final.with_name(".aa.old.77-00.part")
    left.mkdir(parents=True)
    for text in ("one", "two"):
        with new_folder(final) as folder:
            (folder / f"{text}.txt").touch()
    assert [entry.name for entry in final.iterdir()] == ["two.txt"]
    assert [entry.name for entry in final.parent.iterdir()] == ["aa"]


def killed_while_replacing(final: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the second of two renames would find it: the old folder is aside, and nothing has its name."""
    rename = Path.replace

    class Killed(BaseException):
        """Nothing may run after it."""

    def replace(self: Path, target: Path) -> Path:
        if target == final and ".old." not in self.name:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Killed), new_folder(final) as folder:
            (folder / "new.txt").touch()


def test_after_a_kill_between_the_two_renames_the_old_folder_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "folder"
    with new_folder(final) as folder:
        (folder / "old.txt").touch()
    killed_while_replacing(final, monkeypatch)
    assert not final.exists()
    with pytest.raises(RuntimeError, match="half way"), new_folder(final):
        raise RuntimeError("half way")
    assert [entry.name for entry in final.iterdir()] == ["old.txt"]
    killed_while_replacing(final, monkeypatch)
    with new_folder(final) as folder:
        (folder / "newer.txt").touch()
    assert [entry.name for entry in final.iterdir()] == ["newer.txt"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    """As root, a page for /dev/stdout would otherwise take its name."""
    make_pipe(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link", "."):
        with pytest.raises(BadUse, match="is no regular file"):
            write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()


def test_an_error_of_the_disk_names_the_file_that_was_to_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "gone" / "a.txt", "x")
    assert caught.value.filename == str(tmp_path / "gone" / "a.txt")
    with pytest.raises(OSError, match="not everything could be written") as cut, new_folder(tmp_path / "b"):
        raise OSError("4096 requested and 12 written")
    assert (cut.value.errno, cut.value.filename) == (errno.ENOSPC, str(tmp_path / "b"))
    with pytest.raises(FileNotFoundError) as foreign, new_folder(tmp_path / "c"):
        (tmp_path / "not-there").read_text()
    assert foreign.value.filename == str(tmp_path / "not-there")


def test_a_folder_leaves_its_name_before_its_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/a.txt").touch()

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert [entry.suffix for entry in tmp_path.iterdir()] == [".part"]


def test_two_processes_of_one_number_write_to_two_names(tmp_path: Path) -> None:
    names = {aside(tmp_path / "a.json").name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith(".a.json.") and name.endswith(".part") for name in names)


def test_a_dead_owner_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with lock(path):
        assert path.exists()
        with pytest.raises(Taken), lock(path, wait=False):
            pass
    code = "import os, signal\nfrom pathlib import Path\nfrom bridgemil.storage.files import lock\n"
    code += f"with lock(Path({str(path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with lock(path, wait=False):
        pass


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
