"""Runs on disk: what several processes may do to one folder."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from bridgemil.runs import open_store


def test_whoever_waits_for_anothers_run_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "unfinished").mkdir(exist_ok=True)
    held, freed = threading.Event(), threading.Event()

    def hold() -> None:
        with FileLock(tmp_path / "unfinished" / "abc.lock"):
            held.set()
            time.sleep(1.5)
            freed.set()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with pytest.warns(UserWarning, match="another process is doing abc; waiting for it"), store.lock("abc"):
        assert freed.is_set(), "it was let in too early"
    other.join()
