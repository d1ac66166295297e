"""The training loop: epochs of steps, with learning rates, validation, selection of an epoch, checkpoints and errors.

What is trained is a ``Learner``: windows or bags (``learners``), or a Stage 1 objective (``objectives``).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.learning import checkpoint
from bridgemil.learning.averaging import WeightAverage, estimate_statistics
from bridgemil.learning.data import WindowSet, read_steps, reads_ahead
from bridgemil.learning.settings import Selection, Stage1Settings, TrainedSettings, limited_steps, with_min_steps

Curve = list[dict[str, Any]]  # one row per epoch
SAVING_SHARE = 0.01  # of the time, at most, is spent on checkpoints: short epochs do not each get one


class Streams:
    """The random streams of one run: each purpose has its own, given by the seed and the training subjects.

    A stream starts again in each epoch. So an epoch can be repeated without the ones before it, and no draw depends on
    the held-out subjects, or on the order of the others.
    """

    def __init__(self, seed: int, train: Iterable[str]) -> None:
        self.seed, self.subjects = seed, sorted(train)

    def number(self, purpose: str, epoch: int = 0) -> int:
        """A 63-bit seed."""
        text = json.dumps([self.seed, self.subjects, purpose, epoch])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def start(self, purpose: str, epoch: int = 0) -> np.random.Generator:
        """Seed torch's generators (weights, dropout), and return a generator for draws."""
        number = self.number(purpose, epoch)
        torch.manual_seed(number)
        return np.random.default_rng(number)


class Validation(NamedTuple):
    """Performance on the validation subjects after an epoch."""

    accuracy: float  # of subjects
    loss: float  # mean over subjects of the subject's cross-entropy

    def beats(self, best: Validation | None, by: Selection = "accuracy") -> bool:
        """Whether this epoch is selected instead of the best one so far; an equal one is not.

        ``accuracy``: higher accuracy, then lower loss. ``loss``: lower loss, then higher accuracy.
        """
        if best is None:
            return True
        ours, theirs = (self.accuracy, -self.loss), (best.accuracy, -best.loss)
        return ours[::-1] > theirs[::-1] if by == "loss" else ours > theirs


@dataclass(frozen=True)
class Progress:
    """The state of a loop after an epoch, for display."""

    phase: str
    epoch: int  # epochs done
    epochs: int
    loss: float
    accuracy: float | None  # of validation subjects


Watch = Callable[[Progress], None]


def cosine(step: int, warmup: int, total: int) -> float:
    """The share of the peak learning rate: linear up to ``warmup`` steps, then a half cosine to zero.

    A function of the zero-based step among ``total`` steps alone, so that a resumed run needs no scheduler state.
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


class Learner(ABC):
    """What to train: a model, its optimiser, the length, the steps of an epoch, and how to validate and select.

    The model, which is on ``device``, is trained in place on the windows ``data``; those of ``validation`` select an
    epoch. An epoch that visits everything has ``steps``; with ``max_steps`` the first of them are taken.
    """

    phase: str  # displayed: "Stage 1", "bags"
    purpose: str  # names the random stream
    batch_settings: str  # to lower when memory runs out: "stage2.batch_windows"
    settings: Any  # with as many epochs as ``min_steps`` requires
    optimiser: torch.optim.Optimizer  # its groups' ``lr`` are the peaks
    schedule: str = "constant"  # of the learning rate; "cosine": with warm-up, to zero
    burn_in: int = 0  # epochs (from 0) below this one are not selected
    selection: Selection = "accuracy"
    averaging: float = 0.0  # decay per step of the average of weights that is validated and returned; 0: none
    validation: WindowSet | None = None
    ahead: bool = False  # whether the windows of a step are read, in a thread, during the step before

    def __init__(
        self,
        model: nn.Module,
        data: WindowSet,
        settings: Stage1Settings | TrainedSettings,
        device: torch.device,
        steps: int,
        validation: WindowSet | None = None,
    ) -> None:
        self.model, self.data, self.device, self.validation = model, data, device, validation
        self.averaged = model  # the part whose batch-norm statistics are estimated for averaged weights
        self.settings = settings = with_min_steps(settings, steps)
        self.epochs, self.steps = settings.epochs, limited_steps(settings, steps)
        self.warmup, self.total = getattr(settings, "warmup_epochs", 0) * self.steps, settings.epochs * self.steps
        if isinstance(settings, TrainedSettings):
            self.burn_in, self.selection, self.averaging = settings.burn_in, settings.selection, settings.averaging
            weight = data.class_weights().to(device) if settings.class_weight else None
            self.cross_entropy = nn.CrossEntropyLoss(weight, label_smoothing=settings.label_smoothing)
        self.ahead = reads_ahead(data.n_bytes, device.type)

    def rate(self, step: int) -> float:
        """The share of the peak learning rate at this step of all."""
        return cosine(step, self.warmup, self.total) if self.schedule == "cosine" else 1.0

    def begin(self, epoch: int) -> None:
        """Put the model into the mode of this epoch."""
        self.model.train()

    @abstractmethod
    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch, shuffled, as numbers of windows or subjects.

        With ``ahead`` a step is drawn before the loss of the step before it: where ``loss`` draws from ``rng`` too, all
        steps must be drawn before the first is given.
        """

    def read(self, batch: Any) -> Any:
        """The windows of a step, on the CPU: M x *shape for M numbers. It may run in a thread, and draws nothing."""
        return self.data.take(batch)

    @abstractmethod
    def loss(self, batch: Any, windows: Any, rng: np.random.Generator) -> Tensor:
        """The loss of one step, a scalar: of a batch of ``batches``, with what ``read`` returned for it."""

    def validate(self) -> Validation:
        """Performance on the validation subjects now; called where there are any."""
        raise NotImplementedError

    def notes(self) -> dict[str, float]:
        """Further columns of the curve for the epoch that just ended."""
        return {}


@dataclass
class Trained:
    """A loop so far, and its result: the curve and the selected epoch; where none is selected, the last one."""

    curve: Curve = field(default_factory=list)
    epoch: int = -1
    validation: Validation | None = None  # of the selected epoch
    weights: dict[str, Tensor] = field(default_factory=dict, compare=False)  # of the selected epoch
    seconds: float = field(default=0.0, compare=False)  # of training, over all resumes


def train(learner: Learner, streams: Streams, *, keep: Path | None = None, watch: Watch | None = None) -> Trained:
    """Train for the learner's epochs; the model ends with the weights of the selected epoch, or with the last ones.

    The checkpoint ``keep`` is written after an epoch as often as ``SAVING_SHARE`` of the time allows; a loop that finds
    it resumes from it, bit-identical. ``watch`` is called after every epoch.
    """
    for group in learner.optimiser.param_groups:
        group["initial_lr"] = group["lr"]  # the peak, under PyTorch's name for it
    average = WeightAverage(learner.model, learner.averaging) if learner.averaging else None
    state = (_restore(learner, average, keep) if keep is not None else None) or Trained()
    due = 0.0
    for epoch in range(len(state.curve), learner.epochs):
        begun = time.perf_counter()
        rng = streams.start(learner.purpose, epoch)
        learner.begin(epoch)
        loss = _epoch(learner, epoch, average, rng)
        with nullcontext() if average is None else average.in_place():
            if average is not None and learner.validation is not None:
                _estimate_statistics(learner, streams)
            where = f"{learner.phase}, epoch {epoch + 1}, validation"
            with _memory(learner, where):
                validation = None if learner.validation is None else learner.validate()
            row: dict[str, Any] = {"phase": learner.phase, "epoch": epoch, "loss": loss}
            if validation is not None:
                _refuse_broken(learner, where, validation.loss)
                row |= {"validation_accuracy": validation.accuracy, "validation_loss": validation.loss}
                if epoch >= learner.burn_in and validation.beats(state.validation, learner.selection):
                    state.validation, state.epoch = validation, epoch
                    state.weights = {name: value.clone() for name, value in learner.model.state_dict().items()}
            state.curve.append(row | learner.notes())
        state.seconds += time.perf_counter() - begun
        if keep is not None and (begun := time.perf_counter()) >= due:
            _save(learner, average, state, keep)
            due = time.perf_counter() + (time.perf_counter() - begun) / SAVING_SHARE
        if watch is not None:
            accuracy = None if validation is None else validation.accuracy
            watch(Progress(learner.phase, epoch + 1, learner.epochs, loss, accuracy))
    if state.weights:
        learner.model.load_state_dict(state.weights)
        return state
    if average is not None:
        average.put()
        learner.begin(learner.epochs - 1)
        _estimate_statistics(learner, streams)
    return replace(state, epoch=learner.epochs - 1)


def _estimate_statistics(learner: Learner, streams: Streams) -> None:
    estimate_statistics(learner.averaged, learner.data, learner.device, streams.number("batch norm"))


def _epoch(learner: Learner, epoch: int, average: WeightAverage | None, rng: np.random.Generator) -> float:
    """All steps of an epoch; their mean loss."""
    losses = []
    few = islice(learner.batches(rng), learner.steps)  # in random order: under max_steps a random part of all
    with closing(read_steps(few, learner.read, ahead=learner.ahead)) as steps:
        for i, (batch, read) in enumerate(steps):
            step, where = epoch * learner.steps + i, f"{learner.phase}, epoch {epoch + 1}, step {i + 1}"
            for group in learner.optimiser.param_groups:
                group["lr"] = group["initial_lr"] * learner.rate(step)
            learner.optimiser.zero_grad()
            with _memory(learner, where):
                loss = learner.loss(batch, read(), rng)
                losses.append(loss.item())
                _refuse_broken(learner, where, losses[-1])
                loss.backward()
            learner.optimiser.step()
            if average is not None:
                average.update(step)
    return float(np.mean(losses))


def _refuse_broken(learner: Learner, where: str, loss: float) -> None:
    if not np.isfinite(loss):
        stage = learner.batch_settings.partition(".")[0]
        raise BridgeMILError(
            f"{where}: the loss is {loss}; training has broken down. Lower the learning rate, --set {stage}.lr=…, or "
            "look for extreme values in the recordings (bridgemil inspect)"
        )


@contextmanager
def _memory(learner: Learner, where: str) -> Iterator[None]:
    """Where memory runs out, the error names the setting to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error):
            lower, reason = learner.batch_settings, str(error).partition("\n")[0]
            raise BridgeMILError(
                f"{where}: out of memory. Lower {lower}, for example --set {lower.split(' ')[0]}=… ({reason})"
            ) from error
        raise


def _save(learner: Learner, average: WeightAverage | None, state: Trained, path: Path) -> None:
    parts = {
        "model": learner.model.state_dict(),
        "average": {} if average is None else average.average,
        "optimiser": checkpoint.optimiser_state(learner.optimiser),
        "best": state.weights,
    }
    known = {
        "epoch": len(state.curve), "curve": state.curve, "best_epoch": state.epoch, "best": state.validation,
        "seconds": state.seconds,
    }  # fmt: skip
    checkpoint.write(path, parts, known)


def _restore(learner: Learner, average: WeightAverage | None, path: Path) -> Trained | None:
    """The state in a checkpoint; None if there is none, or if a crash left it damaged."""
    if not path.exists():
        return None
    try:
        parts, known = checkpoint.read(path)
    except BadData as error:
        warnings.warn(f"{learner.phase} starts again: {error}", BridgeMILWarning, stacklevel=2)
        return None
    try:
        learner.model.load_state_dict(parts["model"])
        if average is not None:
            for name, value in average.average.items():
                value.copy_(parts["average"][name])
        checkpoint.restore_optimiser(learner.optimiser, parts["optimiser"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise BadData(
            f"{path}: a checkpoint of another network ({str(error).splitlines()[0]}); remove it with "
            "`bridgemil clean RUNS --unfinished` and run again"
        ) from None
    best = None if known["best"] is None else Validation(*known["best"])
    return Trained(known["curve"], known["best_epoch"], best, parts["best"], known["seconds"])
