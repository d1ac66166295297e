"""What a large cohort costs: processor time and memory of every command, from recordings to a report.

Writes recordings of synthetic people (19 electrodes, 250 Hz, one EDF file each) and an official split, and runs
`prepare`, `audit`, `evaluate` (the default method and its baselines) and `report` as a user would, each with a limit on
its data segment. Memory maps are not in that limit, everything that is held is.
python benchmarks/scaling.py [--people 300] [--minutes 1] [--limit-gb 4] [--folder FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CHANNELS = "Fp1 Fp2 F7 F3 Fz F4 F8 T3 C3 Cz C4 T4 T5 P3 Pz P4 T6 O1 O2".split()
SFREQ, TESTED = 250, 8  # Hz; one person of so many is in the official test set
BYTES = len(CHANNELS) * 60 * (2 * SFREQ + 4 * 200 + 5000 // len(CHANNELS))  # a person's minute: file, windows, features


def write(folder: Path, people: int, minutes: float) -> None:
    """Pink-ish noise with an alpha rhythm, whose frequency is 1 Hz lower in class B; every person has their own."""
    import numpy as np
    from edfio import Edf, EdfSignal
    from scipy.signal import lfilter

    n, rows = round(minutes * 60 * SFREQ), []
    time_axis = np.arange(n, dtype=np.float32) / SFREQ
    for i in range(people):
        rng, label = np.random.default_rng(i), "AB"[i % 2]
        white = rng.standard_normal((len(CHANNELS) + 1, n), dtype=np.float32)
        slow = lfilter([1.0], [1.0, -0.95], white, axis=-1).astype(np.float32)
        alpha = np.sin(2 * np.pi * np.float32(rng.normal(10 - i % 2, 0.7)) * time_axis)
        values = 4 * slow[:-1] + 3 * slow[-1] + rng.uniform(2, 8, (len(CHANNELS), 1)).astype(np.float32) * alpha
        signals = [
            EdfSignal(
                row.clip(-3276, 3276), SFREQ, label=name, physical_dimension="uV", physical_range=(-3276.8, 3276.7)
            )
            for name, row in zip(CHANNELS, values, strict=True)
        ]
        file = folder / f"person-{i:05d}.edf"
        Edf(signals).write(file)
        rows.append({"subject": f"p{i:05d}", "diagnosis": label, "file": file.name})
    with (folder / "manifest.csv").open("w", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    test = [row["subject"] for i, row in enumerate(rows) if i // 2 % TESTED == 0]
    train = [row["subject"] for row in rows if row["subject"] not in set(test)]
    (folder / "split.json").write_text(
        json.dumps({"split_seed": None, "kind": "file", "folds": [train, test], "tested": [2]})
    )


class Held(threading.Thread):
    """The largest anonymous memory of a process and its children together, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most = pid, 0

    def run(self) -> None:
        while True:
            self.most = max(self.most, sum(map(self._held, self._family())))
            time.sleep(0.05)

    def _family(self) -> list[int]:
        family = [self.pid]
        for pid in family:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    family += map(int, children.read_text().split())
                except OSError:
                    continue  # it has ended
        return family

    def _held(self, pid: int) -> int:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return 0
        return next((1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")), 0)


def measured(words: list[str], folder: Path, limit_gb: float) -> tuple[float, float, float]:
    """Seconds of processor time, seconds, and gigabytes of anonymous memory of a command."""
    limit, before, begun = int(limit_gb * 1e9), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bridgemil", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )  # fmt: skip
    held = Held(process.pid)
    held.start()
    errors = process.communicate()[1]
    if process.returncode:
        sys.exit(f"bridgemil {' '.join(words)}: {errors[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.perf_counter() - begun, held.most / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--limit-gb", type=float, default=4, help="of the data segment of each process")
    parser.add_argument("--jobs", type=int, default=2, help="processes of prepare and evaluate")
    parser.add_argument("--folder", type=Path, help="where to make the temporary folder")
    parser.add_argument("--quick", action="store_true", help="a few people: does it still run?")
    arguments = parser.parse_args()
    people, minutes = (16, 0.2) if arguments.quick else (arguments.people, arguments.minutes)
    needed = people * minutes * BYTES
    place = arguments.folder or Path(tempfile.gettempdir())
    if (free := shutil.disk_usage(place).free) < needed:
        sys.exit(f"{place}: {needed / 1e9:.0f} GB are needed and {free / 1e9:.1f} GB are free; choose another --folder")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        write(Path(folder), people, minutes)
        jobs = ["--jobs", str(arguments.jobs)]
        commands = [
            ["prepare", "manifest.csv", "cohort", "--label", "diagnosis", *jobs],
            ["audit", "cohort"],
            ["evaluate", "cohort", "--split", "split.json", "--out", "runs", *jobs],
            ["report", "runs", "--html"],
        ]
        print(f"{people} people x {minutes:g} min, {arguments.jobs} processes; limit {arguments.limit_gb:g} GB each")
        print("| command | processor time, s | s | anonymous memory, GB |\n|---|---|---|---|")
        total = 0.0
        for words in commands:
            spent, seconds, held = measured(words, Path(folder), arguments.limit_gb)
            total += spent
            print(f"| {words[0]} | {spent:.1f} | {seconds:.1f} | {held:.2f} |", flush=True)
        print(f"| all | {total:.1f} | | |")


if __name__ == "__main__":
    main()
