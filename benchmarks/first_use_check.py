"""What checking our own folders costs: opening a cohort of 1,000 people, and hashing signals when they are first used.

The hash check is timed with the files in the system's memory, as training finds them, and set against the first fold
of each method in the same run, features computed on the way included: a later fold of the same process checks nothing.
python benchmarks/first_use_check.py [--cohort FOLDER] [--runs METHOD:BACKBONE …] [--budget laptop] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import describe, write_cohort, write_subject
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.evaluation.run import Run
from bridgemil.runs import open_store
from bridgemil.storage import artifact

CHANNELS, N_TIMES, RATE = 19, 200, 200.0
RUNS = ("tangent:", "bridgemil:covariance", "bridgemil:eegnet")


def write(folder: Path, people: int, windows: int) -> Path:
    """Noise of so many people, with the records that ``prepare`` keeps of their files."""
    rng = np.random.default_rng(0)
    rows, files = [], []
    for i in range(people):
        name, label = f"sub-{i:04d}", "AB"[i % 2]
        bag = 10 * rng.standard_normal((windows, CHANNELS, N_TIMES), dtype=np.float32)
        record = asdict(describe(name, label, bag, [f"{name}.edf"], [windows]))
        starts = np.arange(windows, dtype=np.float64)
        write_subject(folder, record, bag, starts)
        rows.append(record | {"age": 60 + i % 20, "sex": "FM"[i % 3 % 2]})
        files.append({"subject": name, "file": f"{name}.edf", "sha256": record["signal_hash"], "sfreq": 500.0,
                      "native_sfreq": 500.0, "n_channels": CHANNELS, "identity": i + 1, "day": i})  # fmt: skip
    about = {
        "source": "noise", "channels": [f"E{c + 1}" for c in range(CHANNELS)], "sfreq": RATE,
        "n_times": N_TIMES, "folds": min(10, people // 4), "burn_in": 0, "settings": {}, "left_out": [],
        "notes": [], "files": files,
    }  # fmt: skip
    write_cohort(folder, about, rows)
    return folder


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and by what this process used of the processors: the latter knows no other work."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def first_use(cohort: Cohort, rounds: int) -> tuple[float, float]:
    """What the check of everybody's signal adds to asking for it; the median of some rounds."""
    added = []
    for _ in range(rounds):
        artifact._verified.clear()
        first, again = (seconds(lambda: [cohort.windows(who) for who in cohort.subjects]) for _ in range(2))
        added.append((first[0] - again[0], first[1] - again[1]))
    return statistics.median(clock for clock, _ in added), statistics.median(used for _, used in added)


def fold(cohort: Cohort, run: str, budget: str, folder: Path) -> tuple[float, float]:
    """Seconds of the first fold of a method in an empty folder of runs."""
    method, _, backbone = run.partition(":")
    settings = methods.for_cohort(cohort, method, backbone or methods.BACKBONE, budget)
    subjects = SubjectKFold(cohort.folds).plan(cohort.subjects, cohort.labels).cv_folds(settings.selects)[0]
    performed = Run(cohort, subjects, settings, 0)
    return seconds(lambda: performed.perform(open_store(folder / run.replace(":", "-")), torch.device("cpu")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort", type=Path, help="a prepared cohort; noise of 88 people is written if left out")
    parser.add_argument("--runs", nargs="+", default=RUNS, help="METHOD:BACKBONE, each set against the check")
    parser.add_argument("--budget", default="laptop")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    people = 100 if arguments.quick else 1000
    runs = RUNS[:1] if arguments.quick else arguments.runs
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        many = write(folder / "many", people, 2)
        times = [seconds(lambda: Cohort.open(many)) for _ in range(5)]
        clock, used = (statistics.median(part) for part in zip(*times, strict=True))
        print(f"opening a cohort of {people} people: {clock:.3f} s, {used:.3f} s of the processor")
        cohort = Cohort.open(arguments.cohort or write(folder / "some", *((12, 20) if arguments.quick else (88, 300))))
        clock, used = first_use(cohort, 3)
        size = 4 * cohort.n_windows * len(cohort.channels) * cohort.n_times / 1e6
        print(
            f"first use of {len(cohort)} people's signals, {size:.0f} MB: {clock:.2f} s, {used:.2f} s of the processor"
        )
        for run in runs:
            took, spent = fold(cohort, run, arguments.budget, folder / "runs")
            name = run.rstrip(":").replace(":", " on ")
            share, share_used = 100 * clock / took, 100 * used / spent
            print(f"  one fold of {name}, budget {arguments.budget}: {took:.1f} s, {spent:.1f} s of the processor")
            print(f"    the check is {share:.2f} % of it, {share_used:.2f} % of the processor's")


if __name__ == "__main__":
    main()
