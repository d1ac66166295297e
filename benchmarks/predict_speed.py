"""From a 20-minute, 19-channel recording to JSON in a new process: seconds by the clock and the processor, and memory.

    python benchmarks/predict_speed.py [--quick]

The goal is under 5 s and 1 GB on 2 cores, start-up included. Beside it, what a new process takes to import torch and
mne alone: no prediction can be quicker. Other work on the machine shows in the clock, less in the processor's time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from edfio import Edf, EdfSignal

from bridgemil.bundle.training import train
from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.prepare import prepare

IMPORTS = "import torch, scipy.signal; from mne.io import read_raw; import mne; mne.filter.create_filter"
METHODS = {"tangent": {}, "bridgemil": {"stage1.epochs": 1, "stage2.epochs": 2, "stage2.burn_in": 0}}


def main() -> None:
    minutes, rounds, folds = (1, 1, 3) if "--quick" in sys.argv else (20, 3, 6)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = ["subject,label,file"]
        for i in range(12):
            write(root / f"{i}.edf", i, 30)
            rows.append(f"s{i},{'AB'[i % 2]},{i}.edf")
        (root / "manifest.csv").write_text("\n".join(rows) + "\n")
        cohort = prepare(root, root / "cohort", jobs=1, progress=False)
        write(root / "new.edf", 99, 60 * minutes)
        print(f"{minutes} min, 19 channels, 500 Hz; best of {rounds} new processes")
        report("imports alone", [sys.executable, "-c", IMPORTS], rounds)
        for method, settings in METHODS.items():
            train(
                cohort,
                root / method,
                method,
                budget="demo",
                folds=folds,
                baselines=False,
                progress=False,
                settings=settings,
            )
            command = [
                sys.executable,
                "-m",
                "bridgemil",
                "predict",
                str(root / method),
                str(root / "new.edf"),
                "--json",
            ]
            report(f"{method}, {folds} models", command, rounds)


def write(path: Path, seed: int, seconds: int) -> None:
    signals = [
        EdfSignal(x, 500, label=name, physical_dimension="uV", physical_range=(-500, 500))
        for name, x in zip(ADFTD_ORDER, np.random.default_rng(seed).normal(0, 20, (19, 500 * seconds)), strict=True)
    ]
    Edf(signals).write(path)


def report(what: str, command: list[str], rounds: int) -> None:
    best = min(measured(command) for _ in range(rounds))
    print(f"{what:22s} {best[0]:5.2f} s by the clock, {best[1]:5.2f} s of processor, {best[2] / 1e6:5.0f} MB")


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds by the clock, seconds of processor, bytes at the peak."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss * unit


if __name__ == "__main__":
    main()
