"""A cohort three times as large as the memory that is allowed: one fold of two methods, and the peak they needed.

Writes noise of 64 channels (12 GB) into a temporary folder, then trains in a process of its own whose data segment is
limited (4 GB); memory maps are not in that limit, everything that is held is.
python benchmarks/large_cohort.py [--gigabytes 12] [--limit-gb 4] [--folder FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

CHANNELS, N_TIMES, WINDOWS = 64, 200, 300  # of a subject
SUBJECT_BYTES = 4 * CHANNELS * N_TIMES * WINDOWS
STAGE1 = {"stage1.epochs": 1, "stage1.batch_windows": 256, "stage1.subbag_pairs": 16}
BAGS = {"stage2.epochs": 2, "stage2.freeze_epochs": 1, "stage2.burn_in": 0, "stage2.batch_subjects": 4}
CHANGES = {
    "bridgemil": STAGE1 | BAGS,
    "majority_vote": {"stage2.epochs": 1, "stage2.burn_in": 0, "stage2.batch_windows": 256},
}


def write(folder: Path, gigabytes: float) -> None:
    """Two classes that differ in the size of the slow part; the same noise for all, so that it is quickly made."""
    import numpy as np

    from bridgemil.cohort.folder import describe, write_cohort, write_subject

    rng = np.random.default_rng(0)
    shared = 10 * rng.standard_normal((WINDOWS, CHANNELS, N_TIMES), dtype=np.float32)
    slow = (10 * np.sin(2 * np.pi * 5 * np.arange(N_TIMES) / 200)).astype(np.float32)
    starts, rows = np.arange(WINDOWS, dtype=np.float64), []
    for i in range(max(12, round(gigabytes * 1e9 / SUBJECT_BYTES))):
        name, label = f"sub-{i:04d}", "AB"[i % 2]
        windows = shared * np.float32(rng.uniform(0.8, 1.2)) + (i % 2) * slow
        record = asdict(describe(name, label, windows, ["noise"], [WINDOWS]))
        write_subject(folder, record, windows, starts)
        rows.append(record)
    about = {
        "source": "noise", "channels": [f"E{c + 1}" for c in range(CHANNELS)], "sfreq": 200.0,
        "n_times": N_TIMES, "folds": 10, "burn_in": 0, "settings": {}, "left_out": [], "notes": [], "files": [],
    }  # fmt: skip
    write_cohort(folder, about, rows)


class Peak(threading.Thread):
    """Watches what this process holds: its data segment, and the part of it that is in memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"VmData": 0.0, "RssAnon": 0.0}

    def run(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.most:
                    self.most[name] = max(self.most[name], 1024 * float(value.split()[0]))
            time.sleep(0.02)


def child(cohort_folder: Path, runs: Path, method: str, backbone: str) -> None:
    from bridgemil import methods
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.cohort.folds import SubjectKFold
    from bridgemil.evaluation.run import Run
    from bridgemil.parallel import device_of
    from bridgemil.runs import open_store

    peak = Peak()
    peak.start()
    cohort = Cohort.open(cohort_folder)
    fold = SubjectKFold(min(10, len(cohort) // 2)).plan(cohort.subjects, cohort.labels).cv_folds()[0]
    settings = methods.settings(method, backbone, budget="demo", changes=CHANGES[method])
    begun = time.perf_counter()
    Run(cohort, fold, settings, seed=0).perform(open_store(runs), device_of("cpu"))
    data, held = (value / 1e9 for value in peak.most.values())
    seconds = time.perf_counter() - begun
    print(f"  {method:14} {seconds:7.1f} s; peak of the data segment {data:.2f} GB, of it in memory {held:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=12)
    parser.add_argument("--limit-gb", type=float, default=4)
    parser.add_argument("--backbone", default="mtdnet")
    parser.add_argument(
        "--folder", type=Path, help="where to make the temporary folder; not on a file system in memory"
    )
    parser.add_argument("--quick", action="store_true", help="a few megabytes: does it still run?")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        limit = int(arguments.limit_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        cohort, runs, method = arguments.child
        child(Path(cohort), Path(runs), method, arguments.backbone)
        return
    if arguments.quick:
        global WINDOWS, SUBJECT_BYTES
        WINDOWS, SUBJECT_BYTES, arguments.gigabytes = 10, SUBJECT_BYTES // 30, 0
    place = arguments.folder or Path(tempfile.gettempdir())
    needed = 1e9 * arguments.gigabytes + (0 if arguments.quick else 2e9)  # runs and their checkpoints too
    if (free := shutil.disk_usage(place).free) < needed:
        sys.exit(f"{place}: {needed / 1e9:.0f} GB are needed and {free / 1e9:.1f} GB are free; choose another --folder")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        begun = time.perf_counter()
        cohort = Path(folder) / "cohort"
        write(cohort, arguments.gigabytes)
        size = sum(file.stat().st_size for file in cohort.rglob("windows.npy")) / 1e9
        print(
            f"{size:.2f} GB written in {time.perf_counter() - begun:.0f} s; limit {arguments.limit_gb:g} GB:",
            flush=True,
        )
        for method in CHANGES:
            command = [sys.executable, __file__, "--child", str(cohort), str(Path(folder) / "runs"), method]
            command += ["--limit-gb", str(arguments.limit_gb), "--backbone", arguments.backbone]
            if subprocess.run(command).returncode:
                sys.exit(f"{method} failed under the limit of {arguments.limit_gb:g} GB")


if __name__ == "__main__":
    main()
