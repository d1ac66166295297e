"""Frozen encoders: a network from a user's file with weights of its own, which nothing trains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bridgemil import bundle
from bridgemil.bundle.training import train
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, benchmark, plan
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.evaluation.run import Run
from bridgemil.learning.frozen import FrozenFrontEnd, frozen_encoder
from bridgemil.learning.loop import Progress
from bridgemil.runs import RunStore
from people import people

NET = """
from torch import nn

class Tiny(nn.Module):
    def __init__(self, n_channels, n_times, width=5):
        super().__init__()
        self.mix = nn.Conv1d(n_channels, width, 9)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.mix(x / 20)).abs().mean(dim=2))
"""
QUICK = {"stage2.epochs": 3, "stage2.burn_in": 0}


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(6, windows=3).save(tmp_path / "cohort")


def weights(cohort: Cohort, seed: int = 1, width: int = 5) -> dict[str, Tensor]:
    """As if trained elsewhere."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    norm = {"norm.weight": some(width), "norm.bias": some(width), "norm.running_mean": some(width)}
    norm |= {"norm.running_var": some(width).exp(), "norm.num_batches_tracked": torch.tensor(7)}
    return {"mix.weight": some(width, len(cohort.channels), 9), "mix.bias": some(width)} | norm


@pytest.fixture
def file(tmp_path: Path, cohort: Cohort) -> Path:
    """The user's folder: net.py, and the weights as safetensors and as torch checkpoints."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    save_file(weights(cohort), folder / "net.safetensors")
    torch.save(weights(cohort), folder / "net.pt")
    torch.save({"state_dict": weights(cohort), "epoch": 3}, folder / "nested.pth")
    return folder / "net.py"


def held_out(cohort: Cohort, file: Path, out: Path | None, stored: str = "net.pt", **more: Any) -> pd.DataFrame:
    """Predictions of attention MIL on the frozen encoder, in this process."""
    settings = {"backbone_options.weights": str(file.parent / stored), **QUICK}
    how: dict[str, Any] = {"folds": 3, "progress": False, "baselines": False, "jobs": 1} | more
    how |= {"frozen": True, "settings": settings, "budget": "demo", "out": out}
    return evaluate(cohort, how.pop("method", "attention"), f"{file}:Tiny", **how).predictions


def test_embeddings_are_computed_once_for_all_folds_seeds_and_methods(
    cohort: Cohort, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, forward = [], FrozenFrontEnd.forward
    monkeypatch.setattr(FrozenFrontEnd, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    for method in ("attention", "majority_vote"):
        held_out(cohort, file, tmp_path / "runs", method=method, seeds=2)
    assert len(RunStore(tmp_path / "runs").finished()) == 2 * 2 * 3
    assert sum(seen) == cohort.n_windows


def test_no_weight_and_no_statistic_of_the_encoder_changes(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    held_out(cohort, file, tmp_path / "runs")
    store = RunStore(tmp_path / "runs")
    for identity in store.finished():
        network = store.model(identity, backbone=f"{file}:Tiny").network
        state = network.encoder.front_end.encoder.state_dict()
        assert all(torch.equal(state[name], value) for name, value in weights(cohort).items())
        assert not any(parameter is inner for parameter in network.parameters() for inner in state.values())
        assert all(not name.startswith("encoder.front_end") for name, _ in network.named_parameters())
        assert {"aggregator"} == {name.partition(".")[0] for name, _ in network.named_parameters()}


def test_weights_are_part_of_the_identity_and_their_file_is_not(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    store, out = RunStore(tmp_path / "runs"), tmp_path / "runs"
    before = held_out(cohort, file, out)
    for stored in ("net.safetensors", "nested.pth"):
        pd.testing.assert_frame_equal(held_out(cohort, file, out, stored), before)
    assert len(store.finished()) == 3
    torch.save(weights(cohort, seed=2), file.parent / "net.pt")
    after = held_out(cohort, file, out)
    assert len(store.finished()) == 6
    pd.testing.assert_frame_equal(after, held_out(cohort, file, None), check_exact=True)
    file.write_text(NET.replace("x / 20", "x / 10"))
    held_out(cohort, file, out)
    assert len(store.finished()) == 9
    assert len(store.names("features")) == 3


def test_two_workers_give_the_same_numbers(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    settings = {"backbone_options.weights": str(file.parent / "net.pt"), **QUICK}
    work = plan(
        [cohort], ["attention"], [f"{file}:Tiny"], 1, "demo", tmp_path / "runs", folds=3, settings=settings, frozen=True
    )
    outcome = benchmark(work, Where(jobs=2, device="cpu"), progress=False)
    assert not outcome.failed, outcome.failed
    predictions = work.experiments[0].results(work.store).predictions
    pd.testing.assert_frame_equal(predictions, held_out(cohort, file, None), check_exact=True)


def test_an_interrupted_run_resumes(
    cohort: Cohort, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    honest = Run.perform

    def stopping(self: Run, store: RunStore, device: Any, watch: Any = None) -> str:
        def stop(moment: Progress) -> None:
            if moment.epoch == 2:
                raise Stop

        return honest(self, store, device, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "perform", stopping)
        with pytest.raises(Stop):
            held_out(cohort, file, tmp_path / "runs")
    assert list((tmp_path / "runs" / "unfinished").glob("*.safetensors"))
    resumed = held_out(cohort, file, tmp_path / "runs")
    pd.testing.assert_frame_equal(resumed, held_out(cohort, file, None), check_exact=True)


def test_weights_replaced_between_planning_and_running_are_refused(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    settings = {"backbone_options.weights": str(file.parent / "net.pt"), **QUICK}
    work = plan(
        [cohort], ["attention"], [f"{file}:Tiny"], 1, "demo", tmp_path / "runs", folds=3, settings=settings, frozen=True
    )
    torch.save(weights(cohort, seed=2), file.parent / "net.pt")
    outcome = benchmark(work, Where(jobs=1, device="cpu"), progress=False)
    assert len(outcome.failed) == 3
    assert all("are not those this model or run was planned with" in words for words in outcome.failed.values())


def test_a_bundle_has_the_weights_and_needs_their_file_no_more(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    settings = {"backbone_options.weights": str(file.parent / "net.pt"), **QUICK}
    made = train(
        cohort, tmp_path / "model", "attention+tangent", f"{file}:Tiny", budget="demo", folds=3, frozen=True,
        settings=settings, progress=False, baselines=False, jobs=1,
    ).bundle  # fmt: skip
    (file.parent / "net.pt").unlink()
    assert len(list((tmp_path / "model").rglob("encoder.safetensors"))) == 1
    read = bundle.load(tmp_path / "model", backbone=f"{file}:Tiny")
    members = [member for name, member in read.model.members.items() if "attention" in name]
    assert len(members) == 3
    assert len({id(member.frozen) for member in members}) == 1, "in memory it is one, too"
    bag = cohort.windows(cohort.subjects[0])
    np.testing.assert_array_equal(read.probabilities(bag), made.probabilities(bag))
    with pytest.raises(BadUse, match="name it again"):
        bundle.load(tmp_path / "model")


def test_an_encoder_that_stage_1_learned_from_the_cohort_is_refused(tmp_path: Path) -> None:
    cohort, others, out = people(8, windows=3), people(8, windows=3, seed=1), tmp_path / "runs"
    how: dict[str, Any] = {"budget": "demo", "folds": 3, "progress": False, "baselines": False, "jobs": 1}
    stage1 = {"stage1.epochs": 1, "stage1.subbag_pairs": 4}
    evaluate(cohort, "bridgemil", "eegnet", out=out, settings=QUICK | stage1, **how)
    learned = {"backbone_options.weights": str(next(out.glob("stage1/*/encoder.safetensors"))), **QUICK}
    with pytest.raises(BadData, match=r"is a Stage 1 encoder that learned from this cohort .*subjects of test folds"):
        evaluate(cohort, "attention", "eegnet", frozen=True, settings=learned, **how)
    evaluate(others, "attention", "eegnet", frozen=True, settings=learned, **how)


class Outsider:
    """An object that a checkpoint may not hold."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given.pop("mix.bias"), r"are not those of net.py:Tiny \(Missing key.*mix.bias"),
        (lambda given: given.update(head=torch.ones(1)), r"Unexpected key.*head"),
        (lambda given: given.update({"mix.bias": torch.ones(4)}), r"size mismatch for mix.bias: .*\[4\].*\[5\]"),
        (lambda given: given.update({"mix.bias": Outsider()}), "holds more than weights"),
        (lambda given: given.update({"mix.bias": torch.full((5,), torch.nan)}), "not finite"),
        (lambda given: given.update({"mix.bias": 3}), "holds no weights by name"),
    ],
)
def test_weights_of_another_architecture_are_refused(change: Any, message: str, cohort: Cohort, file: Path) -> None:
    given: dict[str, Any] = weights(cohort)
    change(given)
    torch.save(given, file.parent / "net.pt")
    with pytest.raises(BadData, match=message):
        held_out(cohort, file, None)


@pytest.mark.parametrize("method", ["bridgemil", "tangent+bridgemil", "supcon"])
def test_methods_with_a_stage_1_name_the_one_to_use(method: str, cohort: Cohort, file: Path) -> None:
    with pytest.raises(BadUse, match=r"trains the encoder in Stage 1; with --frozen, --method must be .*attention"):
        held_out(cohort, file, None, method=method)


def test_random_weights_are_refused_and_those_of_the_code_are_not(cohort: Cohort, file: Path) -> None:
    quiet: dict[str, Any] = {"budget": "demo", "folds": 3, "progress": False, "baselines": False, "settings": QUICK}
    for backbone in ("eegnet", f"{file}:Tiny"):
        with pytest.raises(BadUse, match=r"are random: give trained ones, --set backbone_options\.weights=FILE"):
            evaluate(cohort, "attention", backbone, frozen=True, **quiet)
    with pytest.raises(BridgeMILError, match="there is no file"):
        held_out(cohort, file, None, "other.pt")
    with pytest.raises(BadUse, match="given with --frozen"):
        evaluate(cohort, "attention", f"{file}:Tiny", **quiet | {"settings": {"backbone_options.weights": "net.pt"}})
    fixed = NET.replace("self.drop =", "import torch; [torch.nn.init.ones_(p) for p in self.parameters()]; self.drop =")
    file.write_text(fixed)
    assert len(evaluate(cohort, "attention", f"{file}:Tiny", frozen=True, **quiet).predictions) == 6


def test_a_models_final_layer_may_be_in_the_weights_of_a_package(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    class Made(nn.Sequential):
        def __init__(self, n_chans: int, n_times: int, n_outputs: int) -> None:
            super().__init__(nn.AvgPool1d(n_times), nn.Flatten(), nn.Linear(n_chans, 3))
            self.final_layer = nn.Linear(3, n_outputs)

    package, models = ModuleType("braindecode"), ModuleType("braindecode.models")
    models.Made = Made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "braindecode", package)
    monkeypatch.setitem(sys.modules, "braindecode.models", models)
    trained = Made(len(cohort.channels), cohort.n_times, 7)
    torch.save(trained.state_dict(), tmp_path / "made.pt")
    frozen = frozen_encoder("braindecode:Made", cohort.signal, {}, "1", tmp_path / "made.pt")
    windows = torch.from_numpy(np.array(cohort.windows(cohort.subjects[0])))
    assert torch.equal(frozen.front_end(windows), nn.Sequential(*list(trained)[:3])(windows))


def test_the_command(cohort: Cohort, file: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(cohort.path), "--method", "attention", "--backbone", "net.py:Tiny", "--frozen"]
    words += ["--set", "backbone_options.weights=net.safetensors", "--set", "stage2.epochs=3", "--budget", "demo"]
    words += ["--folds", "3", "--out", str(tmp_path / "runs"), "--no-baselines", "--json"]
    line = [sys.executable, "-m", "bridgemil", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)["settings"]
    assert settings["frozen"]
    assert settings["backbone_options"]["weights"] == str(file.parent / "net.safetensors")
