"""The same grid three ways: undisturbed; workers and parents killed at random; a Ray cluster that loses a node.

All three must end with the same runs and the same bits, nothing lost and nothing run twice to completion.
   python benchmarks/engine_regimes.py [--quick]         (42 runs; needs the ray extra)
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.synthetic import SynthSettings, synthesise
from bridgemil.runs import RunStore

SETTINGS = {
    "stage1.epochs": 6, "stage1.subbag_pairs": 8, "stage1.batch_windows": 64, "stage2.epochs": 20, "stage2.burn_in": 0,
}  # fmt: skip
METHODS = "bandpower,majority_vote,attention,additive,supcon,bridgemil,wo_retention"


def small_cohort(path: Path, subjects: int = 12) -> Path:
    """The synthetic cohort, with few people and electrodes."""
    recordings = path.with_name("recordings")
    synthesise(recordings, SynthSettings(subjects=subjects, seconds=60), jobs=1, progress=False)
    prepare(recordings, path, label="group", channels=("F3", "F4", "Cz", "O1", "O2"), jobs=1, progress=False)
    return path


def command(cohort: Path, out: Path, methods: str, seeds: int, *more: str) -> list[str]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    return [
        sys.executable, "-m", "bridgemil", "benchmark", str(cohort), "--methods", methods, "--seeds", str(seeds),
        "--backbones", "eegnet", "--recipe", "paper",  # slow enough to be killed in the midst of
        "--budget", "demo", "--folds", "3", "--out", str(out), "--threads", "1", "--device", "cpu", *settings, *more,
    ]  # fmt: skip


class Witness(threading.Thread):
    """Notes the first file of every finished run and encoder; a second completion would replace it."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out, self.first, self.stop = out, {}, threading.Event()

    def look(self) -> dict[str, int]:
        files = [*self.out.glob("runs/[!.]*/run.json"), *self.out.glob("stage1/[!.]*/encoder.safetensors")]
        return {str(file.relative_to(self.out)): file.stat().st_ino for file in files}

    def run(self) -> None:
        while not self.stop.wait(0.05):
            for name, inode in self.look().items():
                self.first.setdefault(name, inode)

    def end(self) -> int:
        self.stop.set()
        self.join()
        last = self.look()
        replaced = [name for name, inode in self.first.items() if last.get(name) != inode]
        assert not replaced, f"run twice to completion, or lost: {replaced}"
        return len(last)


def children(pid: int) -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[1]) == pid and "popen_loky" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def undisturbed(cohort: Path, out: Path, methods: str, seeds: int) -> None:
    subprocess.run(command(cohort, out, methods, seeds, "--jobs", "2"), check=True, capture_output=True)


def killed(cohort: Path, out: Path, methods: str, seeds: int, kills: int, pause: float) -> int:
    """Workers, and now and then the parent, are killed (-9) at random moments; the command is given again."""
    chance, count, words = random.Random(0), 0, ""
    for _ in range(kills + 3):
        with (
            tempfile.TemporaryFile("w+") as said,
            _ended(
                subprocess.Popen(
                    command(cohort, out, methods, seeds, "--jobs", "2"), stdout=subprocess.DEVNULL, stderr=said
                )
            ) as process,
        ):
            while process.poll() is None:
                time.sleep(chance.uniform(0.3, 1.0) * pause)
                workers = children(process.pid)
                if count >= kills or not workers:
                    continue
                victim = process.pid if count % 4 == 3 or count == kills - 1 else chance.choice(workers)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                count += 1
                if victim == process.pid:
                    process.wait()
                    deadline = time.monotonic() + 10
                    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
                        time.sleep(0.05)
                    assert not any(Path(f"/proc/{pid}").exists() for pid in workers), "a worker outlived its parent"
            if process.returncode == 0:
                return count
            said.seek(0)
            words = said.read()
    raise AssertionError(f"given again {kills + 3} times, it still fails: {words[-2000:]}")


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def losing_a_node(cohort: Path, out: Path, methods: str, seeds: int, total: int) -> None:
    """Two nodes of one CPU each; the second is removed when half of the runs are done."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray lowers the priority of its workers otherwise
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    words = command(cohort, out, methods, seeds, "--engine", "ray", "--address", cluster.address)
    removed = False
    try:
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                time.sleep(0.1)
                if not removed and len(RunStore(out).finished()) >= total // 2:
                    cluster.remove_node(second, allow_graceful=False)
                    removed = True
    finally:
        cluster.shutdown()
    assert process.returncode == 0, f"it ended with {process.returncode}"
    assert removed, "the grid ended before the node was removed"


def predictions(out: Path) -> pd.DataFrame:
    store = RunStore(out)
    tables = [store.predictions(identity).assign(identity=identity) for identity in sorted(store.finished())]
    return pd.concat(tables, ignore_index=True).sort_values(["identity", "subject"], ignore_index=True)


def compare(folder: Path, methods: str, seeds: int, kills: int, pause: float, ray: bool, subjects: int = 12) -> int:
    """Run the regimes; returns how many runs all of them ended with, the same to the bit."""
    cohort = small_cohort(folder / "cohort", subjects)
    names = ["undisturbed", "killed", *(["ray"] if ray else [])]
    total = 0
    for name in names:
        out = folder / name
        witness = Witness(out)
        witness.start()
        begun, words = time.monotonic(), ""
        if name == "undisturbed":
            undisturbed(cohort, out, methods, seeds)
            total = len(RunStore(out).finished())
        elif name == "killed":
            words = f", {killed(cohort, out, methods, seeds, kills, pause)} kills"
        else:
            losing_a_node(cohort, out, methods, seeds, total)
            words = ", one of two nodes removed half-way"
        files = witness.end()
        print(f"{name}: {len(RunStore(out).finished())} runs, {files} files{words}, {time.monotonic() - begun:.0f} s")
    expected = predictions(folder / "undisturbed")
    for name in names[1:]:
        pd.testing.assert_frame_equal(expected, predictions(folder / name), check_exact=True)
        assert not list((folder / name).glob("failed/*.json"))
    print(f"the same {expected['identity'].nunique()} runs and {len(expected)} predictions, to the bit")
    return int(expected["identity"].nunique())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between kills, at most")
    parser.add_argument("--without-ray", action="store_true")
    parser.add_argument("--quick", action="store_true", help="six runs, two kills, no Ray: does it still run?")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.quick:
            compare(Path(folder), "bandpower,attention", 1, kills=2, pause=2.0, ray=False, subjects=6)
            return
        compare(Path(folder), METHODS, arguments.seeds, arguments.kills, arguments.pause, not arguments.without_ray)


if __name__ == "__main__":
    main()
