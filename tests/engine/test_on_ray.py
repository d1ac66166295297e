"""Choices within folds and frozen encoders on a Ray cluster: the numbers of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, benchmark, plan
from bridgemil.engine.plan import Plan
from people import people

NET = """
from torch import nn

class Tiny(nn.Module):
    def __init__(self, n_channels, n_times):
        super().__init__()
        self.mix = nn.Conv1d(n_channels, 4, 9)

    def forward(self, x):
        return self.mix(x / 20).abs().mean(dim=2)
"""
QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}
HERE = Path(__file__).parent
ON_RAY = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
import ray
from test_on_ray import Where, benchmark, grids, weights
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
folder = Path(sys.argv[3])
for seed in (1, 2):
    weights(folder, seed)
    for name, work in grids(folder, folder / "ray").items():
        outcome = benchmark(work, Where("ray", device="cpu"), progress=False)
        assert not outcome.failed, outcome.failed
        assert outcome.done == (3 if name == "frozen" or seed == 1 else 0), (name, seed, outcome)
        work.experiments[0].results(work.store).predictions.to_parquet(folder / f"{name}{seed}.parquet")
ray.shutdown()
"""


def weights(folder: Path, seed: int) -> None:
    """Write the frozen encoder's."""
    generator = torch.Generator().manual_seed(seed)
    mix = {"mix.weight": torch.randn(4, 4, 9, generator=generator), "mix.bias": torch.zeros(4)}
    torch.save(mix, folder / "net.pt")


def grids(folder: Path, out: Path) -> dict[str, Plan]:
    """A frozen encoder, and a learning rate that each fold chooses."""
    cohort, common = Cohort.open(folder / "cohort"), {"folds": 3, "out": out, "budget": "demo"}
    frozen: dict[str, Any] = {"frozen": True, "settings": {"backbone_options.weights": str(folder / "net.pt"), **QUICK}}
    tuned: dict[str, Any] = {"tune": {"stage2.lr": [1e-3, 5e-2]}, "settings": QUICK}
    return {
        "frozen": plan([cohort], ["attention"], [f"{folder / 'net.py'}:Tiny"], **frozen, **common),
        "tuned": plan([cohort], ["attention"], ["covariance"], **tuned, **common),
    }


def test_frozen_encoders_and_tuning_give_the_numbers_of_this_process(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    people(6, windows=2).save(tmp_path / "cohort")
    (tmp_path / "net.py").write_text(NET)
    tests = str(HERE.parent)
    line = [sys.executable, "-c", ON_RAY, str(HERE), tests, str(tmp_path)]  # Ray leaves threads behind
    path = os.pathsep.join([str(HERE), tests, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-2000:]
    for seed in (1, 2):
        weights(tmp_path, seed)
        for name, work in grids(tmp_path, tmp_path / "here").items():
            benchmark(work, Where("inline", device="cpu"), progress=False)
            expected = work.experiments[0].results(work.store).predictions
            found = pd.read_parquet(tmp_path / f"{name}{seed}.parquet")
            pd.testing.assert_frame_equal(found, expected, check_exact=True)
