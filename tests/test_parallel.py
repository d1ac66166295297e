from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bridgemil.errors import BridgeMILError
from bridgemil.parallel import cores, each


def square(x: int) -> int:
    return x * x


def die_at_three(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return x


def fail_at_three(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


def gives_a_function(x: int) -> object:
    return lambda: x


@pytest.fixture(autouse=True)
def _forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have imported torch or left idle threads, and ``each`` would not fork then."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_gets_its_result(jobs: int) -> None:
    assert dict(each(square, range(20), jobs=jobs, label="squares", show=False)) == {i: i * i for i in range(20)}
    assert list(each(square, [], jobs=jobs, label="nothing", show=False)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_first_error_comes_through(jobs: int) -> None:
    with pytest.raises(ValueError, match="three"):
        list(each(fail_at_three, range(8), jobs=jobs, label="x", show=False))


def test_a_killed_worker_is_reported_and_does_not_hang() -> None:
    with pytest.raises(BridgeMILError, match="a worker process ended before its work did"):
        list(each(die_at_three, range(8), jobs=2, label="x", show=False))


def test_a_result_that_cannot_be_sent_is_an_error_and_not_a_lost_worker() -> None:
    with pytest.raises(BridgeMILError, match="local object"):
        list(each(gives_a_function, range(2), jobs=2, label="x", show=False))


def test_scripts_need_no_main_guard_and_may_have_imported_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, math\nfrom bridgemil.parallel import each\n"
        "print(sum(r for _, r in each(math.isqrt, range(30), jobs=2, label='x', show=False)))\n"
    )
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == str(sum(int(i**0.5) for i in range(30)))


def test_joblib_works_beside_and_afterwards(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, math\nfrom joblib import Parallel, delayed\nfrom bridgemil.parallel import each\n"
        "for jobs in (2, 3):\n"
        "    done = sum(r for _, r in each(math.isqrt, range(9), jobs=jobs, label='x', show=False))\n"
        "    print(done, sum(Parallel(n_jobs=2)(delayed(math.isqrt)(i) for i in range(9))))\n"
    )
    command = [sys.executable, "-W", "error", str(script)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["13"] * 4


@pytest.mark.parametrize("first", ["", "import torch\n"], ids=["forked", "started anew"])
def test_workers_end_with_a_killed_parent(first: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"{first}import os, time\nfrom bridgemil.parallel import each\n"
        f"def work(x):\n    open({str(tmp_path)!r} + f'/{{os.getpid()}}.pid', 'w').close()\n    time.sleep(60)\n"
        "list(each(work, range(4), jobs=2, label='x', show=False))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = [int(file.stem) for file in tmp_path.glob("*.pid")]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{pid}/cmdline").exists() and running(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_cores_are_those_of_this_process() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
