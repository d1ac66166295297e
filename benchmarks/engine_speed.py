"""How much the engine costs: two jobs against one, the time beside the runs, and Ray beside it; in one run.

Runs of ten seconds or more with one thread each.   python benchmarks/engine_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, collect, plan
from bridgemil.engine.execute import schedule
from bridgemil.engine.plan import Job
from bridgemil.parallel import Answer
from bridgemil.runs import open_store


class Timed:
    """A pool that passes everything on, and notes when runs were started and ended."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.now = inner, time.monotonic
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    @property
    def size(self) -> int:
        return self.inner.size

    def submit(self, job: Job, *call: Any) -> None:
        self.began[job.identity] = self.now()
        self.inner.submit(job, *call)

    def wait(self, seconds: float) -> list[Answer]:
        answers = self.inner.wait(seconds)
        self.ended |= {answer.task.identity: self.now() for answer in answers if answer.kind == "done"}
        return answers

    def close(self) -> None:
        self.inner.close()


def measure(cohort: Path, out: Path, seeds: int, where: Where, epochs: int) -> tuple[float, float, float]:
    """Runs a minute once all workers are warm; the mean length of a run; the share of its time that is not training."""
    settings = {"stage2.epochs": epochs, "stage2.burn_in": 0}
    grid = plan([cohort], ["attention"], ["eegnet"], seeds, "demo", out, folds=3, settings=settings)
    workers = Timed(where.workers())
    slots = workers.size
    outcome = schedule(grid.jobs, grid.store, workers, how=(str(open_store(out).root.resolve()), where.device, 1))
    assert outcome.done == len(grid.jobs)
    training = collect(grid.store).set_index("identity")["seconds"]
    order = sorted(workers.began, key=workers.began.__getitem__)
    warm = order[slots:]  # a worker's first run starts Python and torch
    window = max(workers.ended.values()) - min(workers.began[identity] for identity in warm)
    inside = [workers.ended[identity] - workers.began[identity] for identity in warm]
    overhead = 1 - sum(training[identity] for identity in warm) / sum(inside)
    rate, length = 60 * len(warm) / window, float(np.mean(inside))
    print(
        f"  {where.engine}, {slots} at a time: runs of {length:.1f} s, {rate:.2f} a minute, {overhead:.1%} not training"
    )
    return rate, length, overhead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-ray", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.rounds, arguments.without_ray = 2, 1, True
    engines = {"one": Where(jobs=1, device="cpu"), "two": Where(jobs=2, device="cpu")}
    if not arguments.without_ray:
        engines["ray"] = Where(engine="ray", device="cpu")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n_windows = 4 if arguments.quick else 60
        bags = [rng.normal(0, 20, (n_windows, 19, 200)).astype(np.float32) for _ in range(24)]
        labels = [("control", "patient")[i % 2] for i in range(24)]
        cohort = Cohort.from_arrays(bags, labels, sfreq=200.0, channels=[str(i) for i in range(19)])
        path = cohort.save(folder / "cohort").path
        found: dict[str, list[tuple[float, float, float]]] = {engine: [] for engine in engines}
        for turn in range(arguments.rounds):  # side by side: the machine's speed drifts
            for engine, where in engines.items():
                out = folder / f"{engine}{turn}"
                found[engine].append(measure(path, out, 1 if engine == "one" else 2, where, arguments.epochs))
    rates = {engine: np.array([rate for rate, _, _ in rounds]) for engine, rounds in found.items()}
    print(f"two jobs against one, runs a minute: {_ratios(rates['two'] / rates['one'])}")
    if "ray" in rates:
        print(f"Ray against two local jobs:          {_ratios(rates['ray'] / rates['two'])}")


def _ratios(values: np.ndarray) -> str:
    return f"{np.median(values):.2f}x ({', '.join(f'{value:.2f}' for value in values)})"


if __name__ == "__main__":
    main()
