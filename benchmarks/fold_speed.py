"""One fold of BridgeMIL, both stages, against the same loop with plain layers; in one run.

The plain side has EEGNet layer by layer, flat batches too, but encodes every window in every step also while the
encoder is frozen, and recomputes the retention reference in each step. First, with dropout off, the losses of the
first five steps of either stage must agree.   python benchmarks/fold_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil import aggregators, backbones, methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.cohort.synthetic import SynthSettings, simulate
from bridgemil.learning import objectives
from bridgemil.learning.data import WindowSet
from bridgemil.learning.learners import BagBatch, BagLearner
from bridgemil.learning.loop import Learner, Streams, train
from bridgemil.learning.networks import BagModel
from bridgemil.learning.settings import BagSettings, Stage1Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference_backbones import REFERENCES

CPU = torch.device("cpu")


class PlainBagLearner(BagLearner):
    """Nothing is computed once: not the frozen embeddings, not the reference."""

    def __init__(self, model: BagModel, *rest: object, **named: object) -> None:
        self.teacher = copy.deepcopy(model.encoder).eval()
        super().__init__(model, *rest, **named)
        self.reference = self.frozen_validation = None

    def loss(self, batch: BagBatch, windows: Tensor, rng: np.random.Generator) -> Tensor:
        with torch.set_grad_enabled(not self.frozen):
            embeddings = self.model.encoder(windows)
        logits = self.model.aggregate(embeddings, batch.sizes).logits
        loss = F.cross_entropy(logits, self.data.y[torch.from_numpy(batch.subjects)])
        if self.frozen:
            return loss
        chosen = torch.from_numpy(rng.choice(len(windows), min(512, len(windows)), replace=False))
        with torch.no_grad():
            reference = self.teacher(windows[chosen])
        return loss + self.retention * F.mse_loss(embeddings[chosen], reference)

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        self.probe = False


def windows(subjects: int, seconds: int) -> tuple[WindowSet, WindowSet]:
    settings = SynthSettings(subjects=subjects, seconds=seconds, sfreq=200)
    everyone = [simulate(settings, i) for i in range(subjects)]
    bags = [p.signal.reshape(19, seconds, 200).transpose(1, 0, 2).astype(np.float32) for p in everyone]
    channels = [str(i) for i in range(19)]
    cohort = Cohort.from_arrays(bags, [p.label for p in everyone], sfreq=200.0, channels=channels)
    first = SubjectKFold(5).plan(cohort.subjects, cohort.labels).cv_folds()[0]
    scale = cohort.normalisation(first.train)
    return WindowSet(cohort, first.train, scale), WindowSet(cohort, first.validation, scale)


def encoder(side: str, dropout: bool) -> nn.Module:
    torch.manual_seed(0)
    made = backbones.create("eegnet", 19, 200)
    if side == "plain":
        plain = REFERENCES["eegnet"](19, 200)
        plain.load_state_dict(made.state_dict())
        plain.embedding_dim = backbones.embedding_dim(made)
        made = plain
    return made if dropout else without_dropout(made)


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    return model


def stage2(
    side: str, made: nn.Module, data: tuple[WindowSet, WindowSet], settings: BagSettings, dropout: bool
) -> Learner:
    torch.manual_seed(1)
    model = BagModel(made, aggregators.create("attention", 96, 2))
    if not dropout:
        without_dropout(model)
    kind = PlainBagLearner if side == "plain" else BagLearner
    return kind(model, *data, settings, CPU, pretrained=True)


def stage1(made: nn.Module, data: WindowSet, settings: Stage1Settings) -> Learner:
    torch.manual_seed(2)
    return objectives.create(made, "eegnet", data, settings, CPU)


def first_losses(learner: Learner, epoch: int, n: int = 5) -> list[float]:
    """Of the first steps from this epoch on."""
    losses: list[float] = []
    while len(losses) < n:
        rng = np.random.default_rng(epoch)
        learner.begin(epoch)
        for batch in learner.batches(rng):
            learner.optimiser.zero_grad()
            loss = learner.loss(batch, learner.read(batch), rng)
            loss.backward()
            learner.optimiser.step()
            losses.append(loss.item())
            if len(losses) == n:
                break
        epoch += 1
    return losses


def fold(side: str, data: tuple[WindowSet, WindowSet], settings: methods.Settings) -> dict[str, float]:
    """Seconds of each stage."""
    made, streams = encoder(side, dropout=True), Streams(0, data[0].subjects)
    begun = time.perf_counter()
    train(stage1(made, data[0], settings.stage1), streams)
    between = time.perf_counter()
    train(stage2(side, made, data, settings.stage2, dropout=True), streams)
    return {"Stage 1": between - begun, "Stage 2": time.perf_counter() - between}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--budget", default="demo")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    changes = {}
    if arguments.quick:
        arguments.subjects, arguments.seconds = 10, 60
        changes = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage1.batch_windows": 64, "stage2.epochs": 2}
        changes |= {"stage2.freeze_epochs": 1, "stage2.batch_subjects": 2}
    torch.set_num_threads(arguments.threads)
    data = windows(arguments.subjects, arguments.seconds)
    settings = methods.settings("bridgemil", budget=arguments.budget, changes=changes)

    for name, epoch in (("Stage 1", 0), ("Stage 2, frozen", 0), ("Stage 2, thawed", settings.stage2.freeze_epochs)):
        losses = {}
        for side in ("plain", "ours"):
            made = encoder(side, dropout=False)
            if name == "Stage 1":
                learner = stage1(made, data[0], settings.stage1)
            else:
                learner = stage2(side, made, data, settings.stage2, dropout=False)
            losses[side] = first_losses(learner, epoch)
        gap = max(abs(a - b) / abs(a) for a, b in zip(losses["plain"], losses["ours"], strict=True))
        print(f"{name}: first five losses {' '.join(f'{x:.5f}' for x in losses['ours'])}; largest gap {gap:.1e}")
        assert gap < 1e-3, "the two sides do not compute the same"

    times: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
    for _ in range(arguments.repeats):
        for side, folds in times.items():
            folds.append(fold(side, data, settings))
    print(f"\none fold, budget {arguments.budget}, {len(data[0])} training windows, {arguments.threads} threads:")
    for stage in ("Stage 1", "Stage 2", "both"):
        plain, ours = (
            float(np.median([sum(stages.values()) if stage == "both" else stages[stage] for stages in times[side]]))
            for side in ("plain", "ours")
        )
        print(f"  {stage:8} plain {plain:7.1f} s, ours {ours:6.1f} s: {plain / ours:.1f}x")


if __name__ == "__main__":
    main()
