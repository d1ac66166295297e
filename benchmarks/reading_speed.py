"""Training that reads windows from disk when it needs them, against all windows in one array; side by side.

The array side is normalised once, before the clock starts; ours opens memory maps and normalises on the way. Both must
give the same losses.   python benchmarks/reading_speed.py [--cohort FOLDER] [--backbone eegnet] [--quick]
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bridgemil import aggregators, backbones
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.learning import objectives
from bridgemil.learning.data import BLOCK, WindowSet
from bridgemil.learning.learners import BagLearner, WindowLearner
from bridgemil.learning.loop import Learner, Streams, train
from bridgemil.learning.networks import BagModel, WindowModel
from bridgemil.learning.settings import BagSettings, WindowSettings

CPU = torch.device("cpu")
KINDS = ("windows", "bags", "Stage 1")


class ArraySet(WindowSet):
    """All windows in memory, normalised."""

    x: Tensor

    def take(self, index: np.ndarray) -> Tensor:
        return self.x[torch.from_numpy(index)]

    def blocks(self, i: int) -> Iterator[Tensor]:
        yield from self.take(self.bag_index(i)).split(BLOCK)


def in_one_array(windows: WindowSet) -> ArraySet:
    held = copy.copy(windows)
    held.__class__, held.x = ArraySet, windows.take(np.arange(len(windows)))
    return held


def noise(folder: Path, subjects: int, seconds: int) -> Cohort:
    rng = np.random.default_rng(0)
    bags = [10 * rng.standard_normal((seconds, 19, 200), dtype=np.float32) for _ in range(subjects)]
    channels = [str(i) for i in range(19)]
    labels = ["AB"[i % 2] for i in range(subjects)]
    return Cohort.from_arrays(bags, labels, sfreq=200.0, channels=channels).save(folder / "cohort")


def learner(kind: str, backbone: str, epochs: int, training: WindowSet, validation: WindowSet) -> Learner:
    torch.manual_seed(0)
    encoder = backbones.create(backbone, *training.shape)
    dim, n_classes = backbones.embedding_dim(encoder), training.n_classes
    if kind == "Stage 1":
        settings = objectives.STAGE1["alignment"](epochs=epochs, warmup_epochs=0, subbag_pairs=64)
        return objectives.create(encoder, backbone, training, settings, CPU)
    if kind == "windows":
        model = WindowModel(encoder, backbones.create_head(backbone, dim, n_classes))
        return WindowLearner(model, training, validation, WindowSettings(epochs=epochs), CPU)
    bag_model = BagModel(encoder, aggregators.create("attention", dim, n_classes))
    return BagLearner(bag_model, training, validation, BagSettings(epochs=epochs), CPU, pretrained=False)


def now() -> tuple[float, float]:
    """By the clock, and by what this process used of the processors: the latter knows no other work."""
    return time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort", type=Path, help="a prepared cohort; noise of 88 people is written if left out")
    parser.add_argument("--backbone", default="mtdnet", help="the quicker, the more reading shows")
    parser.add_argument("--rounds", type=int, default=3, help="the best of them counts: other work is not our doing")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rounds, epochs = (1, 1) if arguments.quick else (arguments.rounds, arguments.epochs)
    with tempfile.TemporaryDirectory() as folder:
        people = (12, 20) if arguments.quick else (88, 300)
        cohort = Cohort.open(arguments.cohort) if arguments.cohort else noise(Path(folder), *people)
        fold = SubjectKFold(5).plan(cohort.subjects, cohort.labels).cv_folds()[0]
        scale = cohort.normalisation(fold.train)

        def read() -> list[WindowSet]:
            return [WindowSet(cohort, ids, scale) for ids in (fold.train, fold.validation)]

        arrays = [in_one_array(windows) for windows in read()]
        # Ours is made anew each time: opening the files is part of what is measured.
        sides: dict[str, Callable[[], list[WindowSet]]] = {"one array": lambda: list(arrays), "ours": read}
        size = f"{len(arrays[0])} training windows, {arrays[0].n_bytes / 1e6:.0f} MB"
        print(f"{size}; {arguments.backbone}, {epochs} epochs, {arguments.threads} threads:")
        for kind in arguments.kinds:
            seconds: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            curves = {}
            for i in range(rounds):
                for side in sorted(sides, reverse=bool(i % 2)):
                    trained_by = learner(kind, arguments.backbone, epochs, *sides[side]())
                    begun = now()
                    curves[side] = train(trained_by, Streams(0, fold.train)).curve
                    seconds[side].append(tuple(b - a for a, b in zip(begun, now(), strict=True)))
            assert curves["ours"] == curves["one array"], "the two sides do not compute the same"
            words = []
            for clock in (0, 1):
                array, ours = (min(times[clock] for times in seconds[side]) for side in ("one array", "ours"))
                words.append(f"one array {array:6.2f} s, ours {ours:6.2f} s: {100 * (ours / array - 1):+5.1f} %")
            print(f"  {kind:8} {words[0]}; of the processor, {words[1]}")


if __name__ == "__main__":
    main()
