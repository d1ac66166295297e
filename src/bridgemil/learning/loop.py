"""The one training loop: epochs of steps, with learning rates, validation, selection, checkpoints and early failure.

What is learnt stands in a ``Learner``; there are three: windows, bags, and Stage 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.errors import BridgeMILError
from bridgemil.learning import checkpoint
from bridgemil.learning.selection import Validation
from bridgemil.learning.streams import Streams

Curve = list[dict[str, Any]]  # a row an epoch


@dataclass(frozen=True)
class Moment:
    """Where a loop is, for whoever watches it."""

    phase: str
    epoch: int  # epochs done
    epochs: int
    loss: float
    accuracy: float | None  # of validation subjects


Watch = Callable[[Moment], None]


class Learner(ABC):
    """What to train: a model, its optimiser, the steps of an epoch, and how to validate."""

    phase: str  # what a user sees: "Stage 1", "bags"
    purpose: str  # names the random stream
    model: nn.Module
    optimiser: torch.optim.Optimizer  # its groups' ``lr`` are the peaks
    steps: int  # in an epoch
    batch_settings: str  # what to lower when memory runs out

    def rate(self, step: int) -> float:
        """The share of the peak learning rate at this step of all."""
        return 1.0

    def begin(self, epoch: int) -> None:
        """Put the model into the mode of this epoch."""
        self.model.train()

    @abstractmethod
    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch."""

    @abstractmethod
    def loss(self, batch: Any, rng: np.random.Generator) -> Tensor:
        """The loss of one step."""

    def validate(self) -> Validation | None:
        """How the validation subjects fare now; None if nothing is selected."""
        return None

    def notes(self) -> dict[str, float]:
        """What else to write down about the epoch that just ended."""
        return {}


@dataclass(frozen=True)
class Trained:
    """What a loop leaves: the curve, the epoch whose weights the model now has, and how it validated."""

    curve: Curve
    epoch: int
    validation: Validation | None


@dataclass
class _State:
    """What a checkpoint holds beside the model and the optimiser."""

    epoch: int  # the next one
    curve: Curve
    best_epoch: int
    best: Validation | None
    weights: dict[str, Tensor]  # of the best epoch


def train(
    learner: Learner,
    epochs: int,
    streams: Streams,
    *,
    burn_in: int = 0,
    keep: Path | None = None,
    watch: Watch | None = None,
) -> Trained:
    """Train for ``epochs``; the model ends with the weights of the selected epoch, or the last one's without selection.

    With ``keep`` the state is written there after every epoch, and a loop that finds it goes on from it, to the bit.
    """
    peaks = [group["lr"] for group in learner.optimiser.param_groups]
    state = _restore(learner, keep) if keep is not None and keep.exists() else _State(0, [], -1, None, {})
    for epoch in range(state.epoch, epochs):
        rng = streams.start(learner.purpose, epoch)
        learner.begin(epoch)
        losses = []
        for i, batch in enumerate(learner.batches(rng)):
            share = learner.rate(epoch * learner.steps + i)
            for group, peak in zip(learner.optimiser.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            losses.append(_step(learner, batch, rng, f"{learner.phase}, epoch {epoch + 1}, step {i + 1}"))
        validation = learner.validate()
        _note(state, learner, epoch, float(np.mean(losses)), validation)
        if validation is not None and epoch >= burn_in and validation.beats(state.best):
            state.best, state.best_epoch = validation, epoch
            state.weights = {name: value.clone() for name, value in learner.model.state_dict().items()}
        if keep is not None:
            _save(learner, state, keep)
        if watch is not None:
            accuracy = None if validation is None else validation.accuracy
            watch(Moment(learner.phase, epoch + 1, epochs, state.curve[-1]["loss"], accuracy))
    if state.weights:
        learner.model.load_state_dict(state.weights)
    return Trained(state.curve, state.best_epoch if state.weights else epochs - 1, state.best)


def _step(learner: Learner, batch: Any, rng: np.random.Generator, where: str) -> float:
    learner.optimiser.zero_grad()
    try:
        loss = learner.loss(batch, rng)
        value = loss.item()
        if not np.isfinite(value):
            raise BridgeMILError(
                f"{where}: the loss is {value}; training has broken down. Lower the learning rate (lr), or look for "
                "extreme values in the recordings (bridgemil inspect)"
            )
        loss.backward()
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "alloc" in str(error):
            raise BridgeMILError(
                f"{where}: out of memory. Lower {learner.batch_settings}, for example "
                f"--set {learner.batch_settings.split(' ')[0]}=… ({str(error).splitlines()[0] if str(error) else ''})"
            ) from error
        raise
    learner.optimiser.step()
    return value


def _note(state: _State, learner: Learner, epoch: int, loss: float, validation: Validation | None) -> None:
    row: dict[str, Any] = {"phase": learner.phase, "epoch": epoch, "loss": loss}
    if validation is not None:
        if not np.isfinite(validation.loss):
            raise BridgeMILError(
                f"{learner.phase}, epoch {epoch + 1}: the validation loss is {validation.loss}; training has broken "
                "down. Lower the learning rate (lr)"
            )
        row |= {"validation_accuracy": validation.accuracy, "validation_loss": validation.loss}
    state.curve.append(row | learner.notes())
    state.epoch = epoch + 1


def _save(learner: Learner, state: _State, path: Path) -> None:
    tensors = (
        checkpoint.prefixed("model", learner.model.state_dict())
        | checkpoint.prefixed("optimiser", checkpoint.optimiser_state(learner.optimiser))
        | checkpoint.prefixed("best", state.weights)
    )
    best = None if state.best is None else [state.best.accuracy, state.best.loss]
    about = {"epoch": state.epoch, "curve": state.curve, "best_epoch": state.best_epoch, "best": best}
    checkpoint.write(path, tensors, about)


def _restore(learner: Learner, path: Path) -> _State:
    device = next(learner.model.parameters()).device
    tensors, about = checkpoint.read(path, device)
    learner.model.load_state_dict(checkpoint.under("model", tensors))
    checkpoint.restore_optimiser(learner.optimiser, checkpoint.under("optimiser", tensors))
    best = None if about["best"] is None else Validation(*about["best"])
    return _State(about["epoch"], about["curve"], about["best_epoch"], best, checkpoint.under("best", tensors))
