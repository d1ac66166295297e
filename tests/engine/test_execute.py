"""Where ``evaluate`` runs its folds, that the result does not depend on it, and how long it says it will take."""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bridgemil import backbones, parallel
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine import execute
from bridgemil.engine.evaluate import evaluate
from bridgemil.engine.execute import Display, Where
from bridgemil.engine.forecast import FITTED_BASELINE, START, Forecast
from bridgemil.engine.plan import Plan, grid
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.results import Results
from bridgemil.runs import RunCache, open_store
from people import people

engine = importlib.import_module("bridgemil.engine.evaluate")  # the module, not the function of that name
QUICK = {"stage1.epochs": 2, "stage1.subbag_pairs": 4, "stage2.epochs": 2}


class Mine(nn.Module):
    """A user's own, of this process."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_channels * n_times, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(9, windows=4).save(tmp_path / "cohort")


def quickly(cohort: Cohort, method: str = "tangent+bridgemil", **more: Any) -> Results:
    usual: dict[str, Any] = {"budget": "demo", "folds": 3, "settings": QUICK, "progress": False, "device": "cpu"}
    return evaluate(cohort, method, **usual | more)


def test_the_result_does_not_depend_on_the_number_of_workers(cohort: Cohort, tmp_path: Path) -> None:
    one, two = (quickly(cohort, out=tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.predictions, two.predictions, check_exact=True)
    for name, baseline in one.baselines.items():
        pd.testing.assert_frame_equal(baseline.predictions, two.baselines[name].predictions, check_exact=True)
    features = [sorted(file.name for file in (tmp_path / jobs / "features").rglob("*.npy")) for jobs in "12"]
    assert features[0] == features[1]
    assert not list((tmp_path / "2" / "unfinished").iterdir()), "no lock is left"


def test_an_error_in_a_worker_ends_the_evaluation_as_it_does_in_this_process(cohort: Cohort, tmp_path: Path) -> None:
    broken = QUICK | {"stage1.lr": 1e6}
    for jobs in (1, 2):
        with pytest.raises(BridgeMILError, match="the loss is"):
            quickly(cohort, "bridgemil", backbone="eegnet", recipe="paper", out=tmp_path, jobs=jobs, settings=broken)


def planned(cohort: Cohort, tmp_path: Path, backbone: str = "covariance") -> Plan:
    experiments = grid([cohort], ["bridgemil", "bandpower"], [backbone], Protocol(budget="demo", folds=3))
    return Plan(experiments, open_store(tmp_path / "runs"))


def forecast_of(work: Plan, seconds: float, memory: float = 1e9) -> Forecast:
    each = {job.identity: seconds if job.settings.is_network else FITTED_BASELINE for job in work.todo}
    return Forecast(len(work.jobs), {job.identity: job for job in work.todo}, each, memory)


def settled(
    work: Plan, patch: pytest.MonkeyPatch, seconds: float, where: Where | None = None, memory: float = 1e9
) -> Where:
    patch.setattr(
        engine, "forecast", lambda _, where: replace(forecast_of(work, seconds, memory), at_once=where.at_once(memory))
    )
    patch.setattr(execute, "idle_cores", lambda: 3)
    patch.setattr(execute, "free_memory", lambda: 8e9)
    where = where or Where(device="cpu")
    return engine._choose_where(work, where, engine._stays_in_process(work, where), progress=False)[0]


def test_workers_are_started_where_they_are_worth_it(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = planned(cohort, tmp_path)
    assert settled(work, monkeypatch, seconds=100) == Where("local", 3, device="cpu")
    assert settled(work, monkeypatch, seconds=1).engine == "inline", "starting workers takes longer"
    assert settled(work, monkeypatch, seconds=100, memory=3e9).jobs == 2, "three would not fit into memory"
    assert settled(work, monkeypatch, seconds=100, memory=5e9).engine == "inline"
    assert settled(work, monkeypatch, seconds=1, where=Where(jobs=2, device="cpu")) == Where(jobs=2, device="cpu")
    assert settled(work, monkeypatch, seconds=100, where=Where(jobs=1, device="cpu")).engine == "inline"
    assert settled(work, monkeypatch, seconds=100, where=Where(threads=2, device="cpu")).engine == "inline"


def test_what_a_worker_does_not_know_is_run_in_this_process(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = planned(people(9, windows=4), tmp_path)
    assert settled(memory, monkeypatch, seconds=100).engine == "inline"
    with pytest.raises(BadUse, match=r"save it first: cohort.save\(path\)"):
        settled(memory, monkeypatch, seconds=100, where=Where(jobs=2, device="cpu"))
    monkeypatch.setattr(backbones, "BACKBONES", backbones.BACKBONES.copy())
    backbones.register("mine", Mine)
    own = planned(cohort, tmp_path, "mine")
    assert settled(own, monkeypatch, seconds=100).engine == "inline"
    with pytest.raises(BadUse, match="mine is known to this process only; put it in a file"):
        settled(own, monkeypatch, seconds=100, where=Where(jobs=2, device="cpu"))


def test_idle_cores_are_those_that_nobody_uses_and_at_least_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "MOMENT", 0.01)
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    for busy, expected in ((0, 8), (3, 5), (8, 2), (None, 8)):
        clock = iter((100.0, 101.0))
        seconds = iter((50.0, 50.0 + (busy or 0)))
        monkeypatch.setattr(parallel.time, "monotonic", lambda clock=clock: next(clock))
        monkeypatch.setattr(parallel, "_busy_seconds", lambda s=seconds, b=busy: None if b is None else next(s))
        assert parallel.idle_cores() == expected, busy
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    assert parallel.idle_cores() == 2


def test_processor_time_grows_while_this_process_works() -> None:
    before = parallel._busy_seconds()
    if before is None:
        pytest.skip("the system does not count it")
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert parallel._busy_seconds() > before


def test_each_persons_features_are_computed_once_and_two_processes_share_the_work(tmp_path: Path) -> None:
    store, computed = open_store(tmp_path), list[tuple[str, str]]()
    people_hashes = [f"{i:032x}" for i in range(12)]

    def fit() -> None:
        cache = RunCache(store)

        def compute(who: str) -> np.ndarray:
            computed.append((threading.current_thread().name, who))
            time.sleep(0.02)
            return np.full(3, int(who, 16), dtype=np.float32)

        for who in people_hashes:
            cache.prepare_features("key", who, lambda who=who: compute(who))
        for who in people_hashes:
            assert cache.features("key", who, lambda who=who: compute(who))[0] == int(who, 16)

    threads = [threading.Thread(target=fit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(who for _, who in computed) == people_hashes, "once each"
    shares = Counter(name for name, _ in computed)
    assert min(shares.values()) >= 3, f"one computed nearly all: {shares}"
    assert not list((store.root / "features").rglob("*.part"))


class Stored:
    """Says of every run how long it took."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def metadata(self, identity: str) -> Mapping[str, Any]:
        return {"seconds": self.seconds}


def test_the_first_fold_corrects_the_forecast(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    work = planned(cohort, tmp_path)
    expected = forecast_of(work, seconds=10.0)
    assert str(expected) == "6 runs: 0 done, 6 to do; about 30 s, 1.0 GB of memory each"
    assert expected.left() == pytest.approx(30 + 3 * FITTED_BASELINE)
    first, second, third = (job for job in work.todo if job.settings.is_network)
    display = Display(expected)
    display.draw([first], 5)
    now[0] += 4
    assert expected.left({first.identity: 4.0}) == pytest.approx(26 + 3 * FITTED_BASELINE)
    now[0] += 96
    display.ended(first, "done", "message", Stored(100.0))
    assert expected.left() == pytest.approx(2 * (100 + START) + 3 * FITTED_BASELINE)
    expected.at_once = 2
    assert expected.left({second.identity: 60.5}) == pytest.approx(100.5), "the last one is not shared"
    display.ended(second, "failed", "message", Stored(100.0))
    display.ended(third, "done", "message", Stored(100.0))
    assert expected.left() == pytest.approx(3 * FITTED_BASELINE / 2)
    said = capsys.readouterr().err
    assert "[1/6]" in said, "one count, of all runs"
    assert "fold 1: done, 3 min left" in said


def test_the_announcement_and_the_progress_count_the_same_runs(
    cohort: Cohort, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how: dict[str, Any] = {"out": tmp_path / "runs", "progress": True}
    quickly(cohort, "bandpower", **how | {"settings": None})
    quickly(cohort, **how)
    said = capsys.readouterr().err
    assert "6 runs: 0 done, 6 to do; about " in said
    assert "9 runs: 6 done, 3 to do; about " in said, "tangent, bridgemil and bandpower"
    assert "[6/6]" in said
    assert "[7/9]" in said
    assert "[9/9]" in said
