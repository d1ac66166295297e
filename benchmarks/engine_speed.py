"""How much the engine costs: two jobs against one, the time beside the runs, and Ray beside it; in one run.

Runs of ten seconds or more with one thread each.   python benchmarks/engine_speed.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bridgemil.cohort.store import Cohort
from bridgemil.engine.benchmark import Where, collect, plan
from bridgemil.engine.plan import Job
from bridgemil.engine.scheduler import Event, Workers, schedule
from bridgemil.runs import open_store


class Timed(Workers):
    """Passes everything on, and notes when runs were started and ended."""

    def __init__(self, inner: Workers) -> None:
        import time

        self.inner, self.now = inner, time.monotonic
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    @property
    def slots(self) -> int:
        return self.inner.slots

    def start(self, job: Job) -> None:
        self.began[job.identity] = self.now()
        self.inner.start(job)

    def wait(self, seconds: float) -> list[Event]:
        events = self.inner.wait(seconds)
        self.ended |= {event.job.identity: self.now() for event in events if event.kind == "done"}
        return events

    def close(self) -> None:
        self.inner.close()


def measure(cohort: Path, out: Path, seeds: int, where: Where, epochs: int) -> tuple[float, float, float]:
    """Runs a minute once all workers are warm; the mean length of a run; the engine's share of the time."""
    settings = {"stage2.epochs": epochs, "stage2.burn_in": 0}
    grid = plan([cohort], ["attention"], ["eegnet"], seeds, "demo", out, folds=3, settings=settings)
    workers = Timed(where.workers(open_store(out).root))
    slots = workers.slots
    outcome = schedule(grid.jobs, grid.store, workers)
    assert outcome.done == len(grid.jobs)
    seconds = collect(grid.store)["seconds"]
    order = sorted(workers.began, key=workers.began.__getitem__)
    warm = order[slots:]  # a worker's first run starts Python and torch
    window = max(workers.ended.values()) - min(workers.began[identity] for identity in warm)
    inside = [workers.ended[identity] - workers.began[identity] for identity in warm]
    own = collect(grid.store).set_index("identity")["seconds"]
    overhead = 1 - sum(own[identity] for identity in warm) / sum(inside)
    cold = np.mean([workers.ended[i] - workers.began[i] - own[i] for i in order[:slots]])
    print(f"  {where.engine}, {slots} at a time: {len(grid.jobs)} runs of {seconds.mean():.1f} s;", end=" ")
    print(
        f"{60 * len(warm) / window:.2f} runs a minute; engine {overhead:.1%} of a run; a worker starts in {cold:.1f} s"
    )
    return 60 * len(warm) / window, float(seconds.mean()), overhead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--without-ray", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bags = [rng.normal(0, 20, (60, 19, 200)).astype(np.float32) for _ in range(24)]
        labels = [("control", "patient")[i % 2] for i in range(24)]
        cohort = Cohort.from_arrays(bags, labels, sfreq=200.0, channels=[str(i) for i in range(19)])
        path = cohort.save(folder / "cohort").path
        one = measure(path, folder / "one", 2, Where(jobs=1, device="cpu"), arguments.epochs)
        two = measure(path, folder / "two", 4, Where(jobs=2, device="cpu"), arguments.epochs)
        print(f"two jobs give {two[0] / one[0]:.2f}x the runs a minute of one")
        if not arguments.without_ray:
            ray = measure(path, folder / "ray", 4, Where(engine="ray", device="cpu"), arguments.epochs)
            print(f"Ray gives {ray[0] / two[0]:.2f}x the runs a minute of two local jobs")


if __name__ == "__main__":
    main()
