"""Runs on disk: what several processes may do to one folder."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bridgemil import runs as runs_module
from bridgemil.cohort.folds import FoldPlan
from bridgemil.runs import open_store


def test_whoever_waits_for_anothers_run_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "unfinished").mkdir(exist_ok=True)
    held, freed = threading.Event(), threading.Event()

    def hold() -> None:
        with FileLock(store.lock_file("abc")):
            held.set()
            time.sleep(1.5)
            freed.set()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with pytest.warns(UserWarning, match="another process is doing abc; waiting for it"), store.lock("abc"):
        assert freed.is_set(), "it was let in too early"
    other.join()


def test_warnings_that_two_calls_find_at_once_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plan = open_store(tmp_path), FoldPlan((("a",), ("b",), ("c",)))
    write = runs_module.write_json

    def slow(file: Path, content: Any) -> None:
        time.sleep(0.3)  # long enough for the other to read what was there before
        write(file, content)

    monkeypatch.setattr(runs_module, "write_json", slow)
    found = [{"check": name, "level": "WARN", "message": "Seen."} for name in ("copies", "size")]
    calls = [threading.Thread(target=store.note_split, args=("0" * 24, plan, [warning])) for warning in found]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert store.warnings("0" * 24, plan.hash) == found
