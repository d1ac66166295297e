"""A user's own network or baseline through the engine: an edit gives new numbers, never the old ones again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn

from bridgemil import backbones, baselines
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, benchmark, plan
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse
from bridgemil.report.benchmark import build
from bridgemil.report.files import markdown
from bridgemil.runs import RunStore
from people import people

NET = """
import torch
from torch import nn
from sizes import WIDTH

class Tiny(nn.Module):
    def __init__(self, n_channels, n_times, depth=1):
        super().__init__()
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(depth)]
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, WIDTH), *layers)

    def forward(self, x):
        return torch.tanh(self.net(x)) * 1.0
"""
EDITED = NET.replace("* 1.0", "* 2.0")  # the same weights, names and shapes: only the code tells them apart
QUICK = {"stage2.epochs": 3, "stage2.burn_in": 0}
TWO_STAGE = QUICK | {"stage1.epochs": 2, "stage1.subbag_pairs": 4}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "sizes.py").write_text("WIDTH = 4\n")
    (folder / "net.py").write_text(NET)
    return folder / "net.py"


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(6, windows=2).save(tmp_path / "cohort")


def here(cohort: Cohort, file: Path, out: Path | None, method: str = "attention") -> pd.DataFrame:
    """In this process."""
    results = evaluate(
        cohort, method, f"{file}:Tiny", budget="demo", folds=3, out=out, progress=False, baselines=False, threads=1,
        settings=QUICK if method == "attention" else TWO_STAGE,
    )  # fmt: skip
    return results.predictions


def planned(cohort: Cohort, backbone: str, out: Path) -> Any:
    return plan([cohort], ["attention"], [backbone], 1, "demo", out, folds=3, settings=QUICK)


def by_workers(cohort: Cohort, file: Path, out: Path) -> pd.DataFrame:
    """By two processes."""
    work = planned(cohort, f"{file}:Tiny", out)
    outcome = benchmark(work, Where(jobs=2, device="cpu"), progress=False)
    assert not outcome.failed, outcome.failed
    return work.experiments[0].results(work.store).predictions


BY_RAY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_own_code import EDITED, QUICK
from bridgemil.engine.benchmark import Where, benchmark, plan
cohort, file, out = map(Path, sys.argv[2:])
import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
for turn in range(2):
    work = plan([cohort], ["attention"], [f"{file}:Tiny"], 1, "demo", out, folds=3, settings=QUICK)
    outcome = benchmark(work, Where("ray", device="cpu"), progress=False)
    assert outcome.done == 3 and not outcome.failed, outcome
    work.experiments[0].results(work.store).predictions.to_parquet(out / f"turn{turn}.parquet")
    file.write_text(EDITED)
ray.shutdown()
"""


@pytest.mark.parametrize("run", [here, by_workers])
def test_an_edited_network_gives_new_runs_and_its_own_numbers(
    run: Callable[..., pd.DataFrame], file: Path, cohort: Cohort, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    before = run(cohort, file, out)
    pd.testing.assert_frame_equal(run(cohort, file, out), before)
    assert len(RunStore(out).finished()) == 3, "the same code is not run again"
    file.write_text(EDITED)
    after = run(cohort, file, out)
    assert len(RunStore(out).finished()) == 6
    assert not after["p_patient"].equals(before["p_patient"])
    pd.testing.assert_frame_equal(after, here(cohort, file, tmp_path / "fresh"), check_exact=True)
    file.write_text(NET)
    pd.testing.assert_frame_equal(run(cohort, file, out), before)
    assert len(RunStore(out).finished()) == 6, "the first runs serve again"


def test_a_report_labels_the_versions_of_an_edited_network(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    for source in (NET, EDITED):
        file.write_text(source)
        here(cohort, file, out)
    report = build(RunStore(out))
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    labels = {cell.label for cell in report.cells}
    assert len(labels) == 2
    codes = {cell.results.settings.code[:6] for cell in report.cells}
    assert {
        re.fullmatch(rf"attention \(.*net\.py (\w{{6}}) of {today} \d\d:\d\d\)", label)[1] for label in labels
    } == codes
    assert all(label in markdown(report) for label in labels)
    assert set(report.table["own_code"]) == {label.rpartition(", ")[2].rstrip(")") for label in labels}


def test_an_edited_network_gives_its_own_numbers_on_a_ray_cluster_that_is_warm(
    file: Path, cohort: Cohort, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    out = tmp_path / "runs"
    expected = [here(cohort, file, tmp_path / "before")]
    # In a process of its own: Ray leaves threads behind.
    words = [sys.executable, "-c", BY_RAY, str(Path(__file__).parent), str(cohort.path), str(file), str(out)]
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(tests))
    assert done.returncode == 0, done.stderr[-2000:]
    expected.append(here(cohort, file, tmp_path / "after"))
    assert not expected[0]["p_patient"].equals(expected[1]["p_patient"])
    for turn, predictions in enumerate(expected):
        pd.testing.assert_frame_equal(pd.read_parquet(out / f"turn{turn}.parquet"), predictions, check_exact=True)


def environment(*folders: str) -> dict[str, str]:
    """This process's, with these folders to import from as well."""
    import os

    return os.environ | {"PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])}


def test_an_edited_helper_gives_new_runs_too(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    before = here(cohort, file, out, "bridgemil")
    (file.parent / "sizes.py").write_text("WIDTH = 5\n")
    after = here(cohort, file, out, "bridgemil")
    assert not after["p_patient"].equals(before["p_patient"])
    pd.testing.assert_frame_equal(after, here(cohort, file, None, "bridgemil"), check_exact=True)
    assert len(list((out / "stage1").iterdir())) == 6, "an encoder of the old code is none of the new"


def test_a_network_edited_between_planning_and_running_is_refused(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    work = planned(cohort, f"{file}:Tiny", tmp_path / "runs")
    file.write_text(EDITED)
    outcome = benchmark(work, Where(jobs=1, device="cpu"), progress=False)
    assert outcome.done == 0
    assert len(outcome.failed) == 3
    for words in outcome.failed.values():
        assert words == f"{file}:Tiny: has changed since this run was planned; run the same command again"
    assert not work.store.finished()


class Stop(Exception):
    """As if interrupted."""


@pytest.mark.parametrize("phase", ["Stage 1", "Stage 2"])
def test_a_changed_network_takes_nothing_from_the_old_ones_checkpoint(
    phase: str, file: Path, cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridgemil.evaluation import run as engine
    from bridgemil.learning.loop import Progress

    honest = engine.Run.perform

    def stopping(self: Any, store: RunStore, device: Any, watch: Any = None) -> str:
        def stop(moment: Progress) -> None:
            if moment.phase == phase and moment.epoch == 2:
                raise Stop

        return honest(self, store, device, stop)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Run, "perform", stopping)
        with pytest.raises(Stop):
            here(cohort, file, tmp_path / "runs", "bridgemil")
    left = list((tmp_path / "runs" / "unfinished").glob("*.safetensors"))
    assert left, "nothing was in the middle"
    file.write_text(EDITED)
    after = here(cohort, file, tmp_path / "runs", "bridgemil")
    pd.testing.assert_frame_equal(after, here(cohort, file, None, "bridgemil"), check_exact=True)
    assert [kept for kept in left if kept.is_file()] == left, "the old network's checkpoint is the old network's"
    file.write_text(NET)
    again = here(cohort, file, tmp_path / "runs", "bridgemil")
    pd.testing.assert_frame_equal(again, here(cohort, file, None, "bridgemil"), check_exact=True)
    assert not list((tmp_path / "runs" / "unfinished").iterdir())


def test_a_moved_folder_reuses_the_finished_runs(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    before = here(cohort, file, out, "bridgemil")
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    moved = shutil.move(file.parent, tmp_path / "elsewhere")
    pd.testing.assert_frame_equal(here(cohort, Path(moved) / "net.py", out, "bridgemil"), before)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(RunStore(out).finished()) == 3


def command(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "bridgemil", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=cwd)


def test_the_command_takes_options_of_ones_own_network(file: Path, cohort: Cohort, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    words = ["evaluate", cohort.path, "--method", "attention", "--backbone", "net.py:Tiny", "--budget", "demo"]
    words += ["--folds", 3, "--out", out, "--no-baselines", "--json", "--set", "stage2.epochs=2", "--set"]
    done = command(*words, "backbone_options.depth=3", cwd=file.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["backbone_options"] == {"depth": 3}
    store = RunStore(out)
    model = store.model(min(store.finished()), backbone=f"{file}:Tiny")
    assert sum(isinstance(part, nn.Linear) for part in model.network.encoder.modules()) == 1 + 3
    wrong = command(*words, "backbone_options.dept=3", cwd=file.parent)
    assert wrong.returncode == 2
    assert "has no option dept; it has: depth; did you mean depth?" in wrong.stderr


def flat(n_channels: int, n_times: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 3))


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "BACKBONES", backbones.BACKBONES.copy())
    monkeypatch.setattr(baselines, "BASELINES", baselines.BASELINES.copy())


@pytest.mark.usefixtures("registries")
def test_workers_say_that_they_do_not_know_what_another_process_registered(cohort: Cohort, tmp_path: Path) -> None:
    backbones.register("mine", flat)
    outcome = benchmark(planned(cohort, "mine", tmp_path / "runs"), Where(jobs=1, device="cpu"), progress=False)
    assert len(outcome.failed) == 3
    for words in outcome.failed.values():
        assert words.startswith("backbone 'mine' was registered in the process that planned this run")
        assert words.endswith("name it by its address: path/to/file.py:NAME")


SCRIPT = """
import sys
from torch import nn
from bridgemil import backbones
from bridgemil.engine.benchmark import Where, benchmark, plan

class Mine(nn.Module):
    def __init__(self, n_channels, n_times):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 3))

    def forward(self, x):
        return self.net(x)

backbones.register("mine", Mine)

if __name__ == "__main__":
    settings = {"stage2.epochs": 2, "stage2.burn_in": 0}
    work = plan(sys.argv[1:2], ["attention"], ["mine"], 1, "demo", sys.argv[2], folds=3, settings=settings)
    outcome = benchmark(work, Where(jobs=1, device="cpu"), progress=False)
    assert outcome.done == 3, outcome.failed
"""


def test_what_a_script_registers_at_its_top_is_known_to_local_workers(cohort: Cohort, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "script.py"), str(cohort.path), str(tmp_path / "runs")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Loudness(baselines.Baseline):
    """Logistic regression on the mean amplitude of each electrode."""

    name = "loudness"

    class Settings(baselines.Baseline.Settings):
        power: float = 2.0

    @property
    def features_key(self) -> dict[str, Any]:
        return {"baseline": self.name, "power": self.settings.power}

    def features(self, bag: Any) -> Any:
        return (abs(bag.astype("float64")) ** self.settings.power).mean(axis=(0, 2))

    def fit(self, features: Any, y: Any, n_classes: int, seed: int) -> Any:
        from bridgemil.baselines.classifiers import fit_logistic

        return fit_logistic(features, y, n_classes, C=1.0)


@pytest.mark.usefixtures("registries")
def test_a_baseline_is_one_class_and_one_registration(cohort: Cohort, tmp_path: Path) -> None:
    from bridgemil.report.benchmark import build

    baselines.register(Loudness)
    out = tmp_path / "runs"
    quick: dict[str, Any] = {"folds": 3, "out": out, "progress": False, "baselines": False}
    plain = evaluate(cohort, "loudness", **quick)
    cubed = evaluate(cohort, "loudness", settings={"baseline.power": 3}, **quick)
    assert len(RunStore(out).finished()) == 6
    assert not plain.predictions["p_patient"].equals(cubed.predictions["p_patient"])
    joined = evaluate(cohort, "loudness+bandpower", **quick)
    assert sorted(joined.predictions["subject"]) == sorted(cohort.subjects)
    with pytest.raises(BadUse, match=r"baseline\.powr"):
        evaluate(cohort, "loudness", settings={"baseline.powr": 3}, **quick)
    assert {cell.method for cell in build(RunStore(out)).cells} >= {"loudness", "bandpower"}
    model = RunStore(out).model(plain.runs[0])
    assert model.embed(cohort.windows(cohort.subjects[0])).shape == (1, 4)
    work = plan([cohort], ["loudness"], out=tmp_path / "workers", folds=3)
    outcome = benchmark(work, Where(jobs=1, device="cpu"), progress=False)
    assert len(outcome.failed) == 3
    assert all("baseline 'loudness' was registered in" in words for words in outcome.failed.values())
    told = command("report", out, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "loudness" in told.stdout, "a report in another process needs no code"
