"""The one training loop: epochs of steps, with learning rates, validation, selection, checkpoints and early failure.

What is learnt stands in a ``Learner``; there are three: windows, bags, and Stage 1.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.learning import checkpoint, reading
from bridgemil.learning.averaging import WeightAverage
from bridgemil.learning.selection import Selection, Validation
from bridgemil.learning.streams import Streams
from bridgemil.learning.window_set import WindowSet

Curve = list[dict[str, Any]]  # a row an epoch
SAVING_SHARE = 0.01  # of the time, at most, goes into keeping checkpoints: short epochs are not each worth one


@dataclass(frozen=True)
class Progress:
    """Where a loop is, for whoever watches it."""

    phase: str
    epoch: int  # epochs done
    epochs: int
    loss: float
    accuracy: float | None  # of validation subjects


Watch = Callable[[Progress], None]


class Learner(ABC):
    """What to train: a model, its optimiser, for how long, the steps of an epoch, and how to validate and select."""

    phase: str  # what a user sees: "Stage 1", "bags"
    purpose: str  # names the random stream
    stage: str  # whose settings these are: "stage1" or "stage2"
    model: nn.Module
    optimiser: torch.optim.Optimizer  # its groups' ``lr`` are the peaks
    epochs: int
    steps: int  # in an epoch
    batch_settings: str  # what to lower when memory runs out
    burn_in: int = 0  # epochs (from 0) below this one are not selected
    selection: Selection = "accuracy"
    averaging: float = 0.0  # decay per step of the average of weights that is validated and returned; 0: none
    validation: WindowSet | None = None  # of the subjects that select an epoch, if any do
    ahead: bool = False  # whether the windows of a step are read, in a thread, during the step before

    def rate(self, step: int) -> float:
        """The share of the peak learning rate at this step of all."""
        return 1.0

    def begin(self, epoch: int) -> None:
        """Put the model into the mode of this epoch."""
        self.model.train()

    @abstractmethod
    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch, as numbers of windows or subjects.

        With ``ahead`` a step is drawn before the loss of the step before it: where ``loss`` draws from ``rng`` too, all
        steps must be drawn before the first is given.
        """

    def read(self, batch: Any) -> Any:
        """What a step needs from the disk: windows, on the CPU. It may run in a thread, and draws nothing."""
        return None

    @abstractmethod
    def loss(self, batch: Any, windows: Any, rng: np.random.Generator) -> Tensor:
        """The loss of one step, a scalar.

        Parameters
        ----------
        batch
            As ``batches`` gave it.
        windows
            What ``read`` made of it.
        rng
            Of this epoch's draws.
        """

    def validate(self) -> Validation | None:
        """How the validation subjects fare now; None if there are none."""
        return None

    def estimate_statistics(self, streams: Streams) -> None:
        """Re-estimate batch-norm statistics on training windows, where averaged weights have replaced the trained."""
        raise NotImplementedError(f"{self.phase} averages no weights")

    def notes(self) -> dict[str, float]:
        """What else to write down about the epoch that just ended."""
        return {}


@dataclass(frozen=True)
class Trained:
    """What a loop leaves: the curve, the epoch whose weights the model now has, and how it validated."""

    curve: Curve
    epoch: int
    validation: Validation | None
    seconds: float = field(compare=False)  # of training, over all resumes


@dataclass
class _State:
    """What a checkpoint holds beside the model and the optimiser."""

    epoch: int = 0  # the next one
    curve: Curve = field(default_factory=list)
    best_epoch: int = -1
    best: Validation | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)  # of the best epoch
    seconds: float = 0.0


def train(learner: Learner, streams: Streams, *, keep: Path | None = None, watch: Watch | None = None) -> Trained:
    """Train for the learner's epochs; the model ends with the weights of the selected epoch, or with the last ones.

    Parameters
    ----------
    learner
        What to train.
    streams
        Its random numbers.
    keep
        Where the state is written after an epoch, as often as ``SAVING_SHARE`` of the time allows; a loop that finds it
        goes on from it, to the bit.
    watch
        Told after every epoch.
    """
    peaks = [group["lr"] for group in learner.optimiser.param_groups]
    average = WeightAverage(learner.model, learner.averaging) if learner.averaging else None
    state = (_restore(learner, average, keep) if keep is not None else None) or _State()
    due = 0.0
    for epoch in range(state.epoch, learner.epochs):
        begun = time.perf_counter()
        rng = streams.start(learner.purpose, epoch)
        learner.begin(epoch)
        loss = _epoch(learner, epoch, peaks, average, rng)
        with nullcontext() if average is None else average.in_place():
            if average is not None and learner.validation is not None:
                learner.estimate_statistics(streams)
            with _memory(learner, f"{learner.phase}, epoch {epoch + 1}, validation"):
                validation = learner.validate()
            _note(state, learner, epoch, loss, validation)
            _select(state, learner, epoch, validation)
        state.seconds += time.perf_counter() - begun
        if keep is not None and (begun := time.perf_counter()) >= due:
            _save(learner, average, state, keep)
            due = time.perf_counter() + (time.perf_counter() - begun) / SAVING_SHARE
        if watch is not None:
            accuracy = None if validation is None else validation.accuracy
            watch(Progress(learner.phase, epoch + 1, learner.epochs, loss, accuracy))
    if state.weights:
        learner.model.load_state_dict(state.weights)
    elif average is not None:
        average.put()
        learner.begin(learner.epochs - 1)
        learner.estimate_statistics(streams)
    epoch = state.best_epoch if state.weights else learner.epochs - 1
    return Trained(state.curve, epoch, state.best, state.seconds)


def _epoch(
    learner: Learner, epoch: int, peaks: list[float], average: WeightAverage | None, rng: np.random.Generator
) -> float:
    """All steps of an epoch; their mean loss."""
    losses = []
    with closing(reading.steps(learner.batches(rng), learner.read, ahead=learner.ahead)) as steps:
        for i, (batch, read) in enumerate(steps):
            step = epoch * learner.steps + i
            share = learner.rate(step)
            for group, peak in zip(learner.optimiser.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            losses.append(_step(learner, batch, read, rng, f"{learner.phase}, epoch {epoch + 1}, step {i + 1}"))
            if average is not None:
                average.update(step)
    return float(np.mean(losses))


def _select(state: _State, learner: Learner, epoch: int, validation: Validation | None) -> None:
    if validation is None or epoch < learner.burn_in:
        return
    if validation.beats(state.best, learner.selection):
        state.best, state.best_epoch = validation, epoch
        state.weights = {name: value.clone() for name, value in learner.model.state_dict().items()}


def _step(learner: Learner, batch: Any, read: Callable[[], Any], rng: np.random.Generator, where: str) -> float:
    learner.optimiser.zero_grad()
    with _memory(learner, where):
        loss = learner.loss(batch, read(), rng)
        value = loss.item()
        if not np.isfinite(value):
            raise BridgeMILError(
                f"{where}: the loss is {value}; training has broken down. Lower the learning rate, --set "
                f"{learner.stage}.lr=…, or look for extreme values in the recordings (bridgemil inspect)"
            )
        loss.backward()
    learner.optimiser.step()
    return value


@contextmanager
def _memory(learner: Learner, where: str) -> Iterator[None]:
    """Where memory runs out, say which setting to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error):
            raise BridgeMILError(
                f"{where}: out of memory. Lower {learner.batch_settings}, for example "
                f"--set {learner.batch_settings.split(' ')[0]}=… ({str(error).splitlines()[0] if str(error) else ''})"
            ) from error
        raise


def _note(state: _State, learner: Learner, epoch: int, loss: float, validation: Validation | None) -> None:
    row: dict[str, Any] = {"phase": learner.phase, "epoch": epoch, "loss": loss}
    if validation is not None:
        if not np.isfinite(validation.loss):
            raise BridgeMILError(
                f"{learner.phase}, epoch {epoch + 1}: the validation loss is {validation.loss}; training has broken "
                f"down. Lower the learning rate, --set {learner.stage}.lr=…"
            )
        row |= {"validation_accuracy": validation.accuracy, "validation_loss": validation.loss}
    state.curve.append(row | learner.notes())
    state.epoch = epoch + 1


def _save(learner: Learner, average: WeightAverage | None, state: _State, path: Path) -> None:
    tensors = (
        checkpoint.prefixed("model", learner.model.state_dict())
        | checkpoint.prefixed("average", {} if average is None else average.average)
        | checkpoint.prefixed("optimiser", checkpoint.optimiser_state(learner.optimiser))
        | checkpoint.prefixed("best", state.weights)
    )
    best = None if state.best is None else [state.best.accuracy, state.best.loss]
    about = {"epoch": state.epoch, "curve": state.curve, "best_epoch": state.best_epoch, "best": best}
    about["seconds"] = state.seconds
    checkpoint.write(path, tensors, about)


def _restore(learner: Learner, average: WeightAverage | None, path: Path) -> _State | None:
    """The state in a checkpoint; None if there is none, or if a machine's crash left it damaged."""
    if not path.exists():
        return None
    try:
        tensors, about = checkpoint.read(path)
    except BadData as error:
        warnings.warn(f"{learner.phase} starts anew: {error}", BridgeMILWarning, stacklevel=2)
        return None
    try:
        learner.model.load_state_dict(checkpoint.under("model", tensors))
        if average is not None:
            average.restore(checkpoint.under("average", tensors))
        checkpoint.restore_optimiser(learner.optimiser, checkpoint.under("optimiser", tensors))
    except (RuntimeError, ValueError, KeyError) as error:
        raise BadData(
            f"{path}: a checkpoint of another network ({str(error).splitlines()[0]}); remove it with "
            "`bridgemil clean RUNS --unfinished` and run again"
        ) from None
    best = None if about["best"] is None else Validation(*about["best"])
    weights = checkpoint.under("best", tensors)
    return _State(about["epoch"], about["curve"], about["best_epoch"], best, weights, about["seconds"])
