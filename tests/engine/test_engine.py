"""Grids of runs: planned quickly, nothing lost, nothing twice, clear ends when the disk or the folder refuses."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, benchmark, collect, plan
from bridgemil.engine.execute import do, only_scheduler, schedule
from bridgemil.engine.plan import Job, Plan, grid
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.evaluation.protocol import Protocol
from bridgemil.methods import changed_from_budget, has_setting
from bridgemil.parallel import Answer
from bridgemil.runs import RunStore, open_store
from people import people

QUICK = {"stage1.epochs": 2, "stage1.subbag_pairs": 4, "stage2.epochs": 3, "stage2.burn_in": 0}
ROOT = Path(__file__).parents[2]


def regimes() -> Any:
    spec = importlib.util.spec_from_file_location("engine_regimes", ROOT / "benchmarks" / "engine_regimes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(6, windows=4).save(tmp_path / "cohort")


class Pretend:
    """A pool that does nothing but say how runs ended; it notes what ran beside what."""

    def __init__(self, store: RunStore, size: int = 3, script: dict[str, list[str]] | None = None) -> None:
        self.store, self.size, self.script = store, size, script or {}
        self.running: list[Job] = []
        self.together: list[set[str]] = []

    def submit(self, job: Job, function: Any, *arguments: Any) -> None:
        assert (function, arguments[0]) == (do, job)
        self.running.append(job)
        training = [j.stage1 for j in self.running if j.stage1 and not self.store.place("stage1", j.stage1).is_dir()]
        assert len(training) == len(set(training)), "two runs train the same encoder"
        self.together.append({job.identity for job in self.running})

    def wait(self, seconds: float) -> list[Answer]:
        job = self.running.pop(0)
        kind = (self.script.get(job.identity) or ["done"]).pop(0)
        if kind == "lost":
            return [Answer(job, "lost", "message")]
        if kind == "done":
            if job.stage1:
                self.store.place("stage1", job.stage1).mkdir(parents=True, exist_ok=True)
            self.store.run_folder(job.identity).mkdir()
            (self.store.run_folder(job.identity) / "manifest.json").touch()
        return [Answer(job, "done", (kind, "message"))]

    def close(self) -> None:
        self.running = []


def jobs_of(cohort: Cohort, methods: list[str]) -> list[Job]:
    experiments = grid([cohort], methods, ["eegnet"], Protocol(budget="demo", folds=3, settings=quick(methods)))
    return Plan(experiments, RunStore(cohort.path.with_name("nothing is done here"))).jobs


def quick(methods: list[str]) -> dict[str, Any]:
    """The quick settings that concern one of these methods."""
    return {key: value for key, value in QUICK.items() if any(has_setting(name, key) for name in methods)}


def test_a_shared_encoder_is_trained_by_one_run_at_a_time(cohort: Cohort, tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs")
    jobs = jobs_of(cohort, ["bridgemil", "wo_retention", "attention"])
    assert len({job.stage1 for job in jobs if job.stage1}) == 3
    workers = Pretend(store)
    outcome = schedule(jobs, store, workers)
    assert outcome.done == len(jobs) == 9
    assert max(map(len, workers.together)) == 3, "the slots were not used"


def test_lost_runs_are_run_again_and_failed_ones_kept_until_the_next_call(cohort: Cohort, tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs")
    jobs = jobs_of(cohort, ["attention"])
    script = {jobs[0].identity: ["lost", "lost", "done"], jobs[1].identity: ["failed"]}
    outcome = schedule(jobs, store, Pretend(store, script=script))
    assert (outcome.done, outcome.lost, list(outcome.failed)) == (2, 2, [jobs[1].identity])
    kept = json.loads((store.root / "failed" / f"{jobs[1].identity}.json").read_text())
    assert kept["error"] == "message"
    assert "stage2.epochs=" in kept["experiment"]
    assert all(kept["experiment"].count(f"{key}=") == 1 for key in changed_from_budget(jobs[1].settings))
    again = schedule(jobs, store, Pretend(store))
    assert (again.done, again.failed) == (1, {})
    assert not list((store.root / "failed").iterdir())


def test_a_run_that_kills_every_worker_is_given_up_and_the_others_go_on(cohort: Cohort, tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs")
    jobs = jobs_of(cohort, ["attention"])
    outcome = schedule(jobs, store, Pretend(store, script={jobs[0].identity: ["lost"] * 50}))
    assert outcome.done == 2
    assert "out of memory" in outcome.failed[jobs[0].identity]


def test_a_worker_is_believed_when_its_run_is_seen(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridgemil.engine.execute.SIGHT", 1)
    here, elsewhere = open_store(tmp_path / "here"), open_store(tmp_path / "elsewhere")
    with pytest.raises(BridgeMILError, match="it is not here; --out must be on a path that all nodes share"):
        schedule(jobs_of(cohort, ["attention"]), here, Pretend(elsewhere))


def test_a_worker_without_the_results_folder_makes_none(cohort: Cohort, tmp_path: Path) -> None:
    kind, message = do(jobs_of(cohort, ["attention"])[0], str(tmp_path / "elsewhere"), "cpu", 1)
    assert kind == "storage"
    assert "must be on a path that all nodes share" in message
    assert not (tmp_path / "elsewhere").exists()


def test_storage_that_refuses_ends_the_call_with_one_error(cohort: Cohort, tmp_path: Path) -> None:
    store = open_store(tmp_path / "runs")
    jobs = jobs_of(cohort, ["attention"])
    with pytest.raises(BridgeMILError, match=r"cannot be written \(message\).*run the same command again"):
        schedule(jobs, store, Pretend(store, script={jobs[0].identity: ["storage"]}))


def test_only_one_scheduler_works_on_a_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with only_scheduler(store), pytest.raises(BridgeMILError, match="another benchmark"), only_scheduler(store):
        pass
    code = "from bridgemil.runs import *; from bridgemil.engine.execute import *; import os, signal\n"
    code += f"with only_scheduler(open_store({str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with only_scheduler(store):  # a dead owner does not hold it
        pass


def test_a_run_that_fails_is_kept_with_its_error_and_does_not_hide_the_rest(cohort: Cohort, tmp_path: Path) -> None:
    broken = QUICK | {"stage1.lr": 1e6}
    one = plan([cohort], ["attention", "bridgemil"], ["eegnet"], 1, "demo", tmp_path / "runs", folds=3, settings=broken)
    outcome = benchmark(one, Where(jobs=1), progress=False)
    assert outcome.done == 3
    assert len(outcome.failed) == 3
    assert all("the loss is" in words for words in outcome.failed.values())
    table = collect(one.store)
    assert set(table["method"]) == {"attention"}
    assert len(table) == 3


def test_killed_workers_and_parents_change_nothing(tmp_path: Path) -> None:
    """A worker is killed first, then the parent; the smoke run of the script would be the same."""
    assert regimes().compare(tmp_path, "attention,bridgemil", 1, kills=2, pause=2.0, ray=False, subjects=6) == 6


def test_a_ray_cluster_that_loses_a_node_ends_with_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    own = regimes()
    cohort = own.small_cohort(tmp_path / "cohort", subjects=6)
    methods = "attention,bridgemil"
    own.undisturbed(cohort, tmp_path / "local", methods, 1)
    # In a process of its own: Ray leaves threads behind.
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); from pathlib import Path; import engine_regimes"
    )
    code += f"; engine_regimes.losing_a_node(Path({str(cohort)!r}), Path({str(tmp_path / 'ray')!r}), {methods!r}, 1, 6)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    pd.testing.assert_frame_equal(
        own.predictions(tmp_path / "local"), own.predictions(tmp_path / "ray"), check_exact=True
    )


def bench(cohort: Path, out: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    settings = [part for key, value in quick(["attention"]).items() for part in ("--set", f"{key}={value}")]
    words = [
        sys.executable, "-m", "bridgemil", "benchmark", str(cohort), "--methods", "attention", "--seeds", "1",
        "--budget", "demo", "--folds", "3", "--jobs", "1", "--out", str(out), *settings,
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)


def test_a_full_disk_is_one_clear_error_and_a_later_call_goes_on(cohort: Cohort, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # which Windows lacks

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))  # a checkpoint is larger

    out = tmp_path / "runs"
    full = bench(cohort.path, out, preexec_fn=small_files)
    assert full.returncode == 1
    assert "cannot be written (File too large)" in full.stderr
    assert "Traceback" not in full.stderr
    assert not RunStore(out).finished()
    done = bench(cohort.path, out)
    assert done.returncode == 0, done.stderr
    assert len(RunStore(out).finished()) == 3
    assert "3 runs: 0 done, 3 to do" in done.stderr
    assert "3 runs: 3 done, 0 to do" in bench(cohort.path, out).stderr


def obey_modes() -> None:
    """Root may write anywhere; without this capability (CAP_DAC_OVERRIDE) it may not. Others are not concerned."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def test_a_folder_that_may_not_be_written_is_one_clear_error(cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    (out / "runs").mkdir(parents=True)
    for folder in (out / "runs", out):
        folder.chmod(0o555)
    denied = bench(cohort.path, out, preexec_fn=obey_modes)
    out.chmod(0o755)
    assert denied.returncode == 1
    assert "cannot be written (Permission denied)" in denied.stderr
    assert "Traceback" not in denied.stderr
    (out / "runs").chmod(0o755)
    assert bench(cohort.path, out).returncode == 0


def test_a_script_needs_no_guard(cohort: Cohort, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from bridgemil import evaluate\n"
        f"print(len(evaluate({str(cohort.path)!r}, 'bandpower', folds=3, jobs=2, progress=False).predictions))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "6\n", "")


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(BridgeMILError, match=r"no cluster answers at 127\.0\.0\.1:.*ray start --head"):
        Where("ray", address=f"127.0.0.1:{free}").workers()
    assert time.monotonic() - begun < 60, "Ray itself tries for minutes"


def test_what_makes_no_sense_for_an_engine_is_refused() -> None:
    with pytest.raises(BadUse, match="use --engine ray"):
        Where(address="auto")
    with pytest.raises(BadUse, match="engine must be one of"):
        Where("cluster")


def test_a_job_whose_cohort_has_changed_is_refused(cohort: Cohort, tmp_path: Path) -> None:
    job = replace(jobs_of(cohort, ["attention"])[0], cohort_hash="other")
    kind, message = do(job, str(open_store(tmp_path / "runs").root), "cpu", 1)
    assert kind == "failed"
    assert "has changed meanwhile" in message
