"""How long `bridgemil evaluate` takes with default options: beside one process with one thread, and under a load.

Whole commands, alternating in one run: `--jobs 1` (one process, one thread), the default on an idle machine, and the
default beside as many busy processes as there are cores. The recordings are the 65 of the demo, or a cohort of yours.

python benchmarks/evaluate_speed.py [--cohort FOLDER] [--rounds 3] [--quick]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import numpy as np

from bridgemil.cohort.channels import ADFTD_ORDER
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.parallel import cores

QUICK = ("--folds", "3", "--budget", "demo", "--set", "stage1.epochs=1", "--set", "stage2.epochs=1", "--no-baselines")


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many busy processes."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def seconds(cohort: Path, out: Path, *options: str) -> tuple[float, float]:
    """Of the clock and of the processor, of one whole command."""
    command = [sys.executable, "-m", "bridgemil", "evaluate", str(cohort), "--out", str(out), "--device", "cpu"]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, *options], check=True, capture_output=True, env=environment)
    took, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", type=Path, help="a prepared cohort instead of the demo's recordings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    options, rounds = (QUICK, 1) if arguments.quick else ((), arguments.rounds)
    found: dict[str, list[float]] = {"one": [], "default": [], "loaded": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cohort = arguments.cohort or folder / "cohort"
        if arguments.quick:
            rng = np.random.default_rng(0)
            bags = [rng.normal(0, 20, (8, 19, 200)) for _ in range(6)]
            Cohort.from_arrays(bags, list("ABABAB"), sfreq=200.0, channels=list(ADFTD_ORDER)).save(cohort)
        elif arguments.cohort is None:
            prepare(Path(str(files("bridgemil.recordings") / "adftd-60s")), cohort, label="Group", progress=False)
        for turn in range(rounds):  # side by side: the machine's speed drifts
            for kind, own in (("one", ("--jobs", "1")), ("default", ()), ("loaded", ())):
                with load(cores() if kind == "loaded" else 0):
                    clock, processor = seconds(cohort, folder / f"{kind}{turn}", *own, *options)
                found[kind].append(clock)
                print(f"  {kind}: {clock:.1f} s, {processor:.1f} s of processor time (load's excluded)", flush=True)
    one, default, loaded = (np.array(found[kind]) for kind in ("one", "default", "loaded"))
    print(f"default against one process with one thread, {cores()} cores: {_ratios(one / default)} as fast")
    print(f"default beside {cores()} busy processes: {_ratios(loaded / default)} as slow as idle")


def _ratios(values: np.ndarray) -> str:
    return f"{np.median(values):.2f}x ({', '.join(f'{value:.2f}' for value in values)})"


if __name__ == "__main__":
    main()
