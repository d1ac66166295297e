"""The training loop: what it selects, how it fails, and that a resumed loop is the loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridgemil.errors import BridgeMILError
from bridgemil.learning.loop import Learner, Streams, Validation, cosine, train

STREAMS = Streams(0, ["a", "b"])


class Line(Learner):
    """Fits a line through noise, with dropout, so that it depends on every random number."""

    phase, purpose, batch_settings, steps = "line", "line", "stage2.batch_windows", 3

    def __init__(
        self,
        validations: list[Validation] | None = None,
        broken: Exception | float | None = None,
        epochs: int = 6,
        **changes: object,
    ) -> None:
        self.epochs = epochs
        for name, value in changes.items():
            setattr(self, name, value)
        STREAMS.start("weights")
        self.model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 0.1)
        self.validation, self.broken, self.seen = validations, broken, []

    def rate(self, step: int) -> float:
        return cosine(step, 3, 30)

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        self.seen.append(epoch)

    def batches(self, rng: np.random.Generator) -> Iterator[Tensor]:
        for _ in range(self.steps):
            yield torch.from_numpy(rng.normal(size=(8, 4)).astype(np.float32))

    def read(self, batch: Tensor) -> None:
        return None

    def loss(self, batch: Tensor, windows: None, rng: np.random.Generator) -> Tensor:
        if isinstance(self.broken, Exception) and self.seen[-1] == 1:
            raise self.broken
        loss = (self.model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        return loss * self.broken if isinstance(self.broken, float) and self.seen[-1] == 1 else loss

    def validate(self) -> Validation:
        return self.validation[self.seen[-1]]


def test_warm_up_is_linear_and_the_cosine_ends_at_zero() -> None:
    rates = [cosine(step, 4, 20) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[12] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.02
    assert cosine(0, 0, 10) == 1.0


def test_selection_is_accuracy_then_loss_then_the_earliest_after_burn_in() -> None:
    seen = [Validation(*pair) for pair in ((1.0, 0.1), (0.5, 0.2), (0.75, 0.5), (0.75, 0.4), (0.75, 0.4), (0.5, 0.0))]
    learner = Line(seen, burn_in=1)
    snapshots = {}
    trained = train(
        learner,
        STREAMS,
        watch=lambda moment: snapshots.update(
            {moment.epoch - 1: {k: v.clone() for k, v in learner.model.state_dict().items()}}
        ),
    )
    assert trained.epoch == 3
    assert trained.validation == seen[3]
    for name, value in learner.model.state_dict().items():
        torch.testing.assert_close(value, snapshots[3][name], rtol=0, atol=0)


def test_the_lowest_loss_or_simply_the_last_epoch_can_be_taken() -> None:
    pairs = ((1.0, 0.1), (0.5, 0.3), (0.25, 0.2), (0.75, 0.2), (0.75, 0.2), (0.9, 0.4))
    seen = [Validation(*pair) for pair in pairs]
    by_loss = train(Line(seen, burn_in=1, selection="loss"), STREAMS)
    assert (by_loss.epoch, by_loss.validation) == (3, seen[3])
    last, plain = Line(seen, burn_in=1, selection="last"), Line()
    trained = train(last, STREAMS)
    assert (trained.epoch, trained.validation) == (5, seen[5])
    train(plain, STREAMS)
    assert all(torch.equal(value, plain.model.state_dict()[name]) for name, value in last.model.state_dict().items())


@pytest.fixture
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are kept however much of the time they take."""
    monkeypatch.setattr("bridgemil.learning.loop.SAVING_SHARE", float("inf"))


@pytest.mark.usefixtures("every_epoch")
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_loop_is_the_same_to_the_bit(tmp_path: Path, stop: int) -> None:
    validations = [Validation(0.1 * i, 1.0) for i in (3, 5, 4, 5, 1, 2)]

    def interrupt(moment: object) -> None:
        if moment.epoch == stop:
            raise KeyboardInterrupt

    whole = Line(validations)
    trained = train(whole, STREAMS)
    keep = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(Line(validations), STREAMS, keep=keep, watch=interrupt)
    resumed = Line(validations)
    again = train(resumed, STREAMS, keep=keep)
    assert resumed.seen == list(range(stop, 6)), "it did not go on from the checkpoint"
    assert again == trained
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert not list(tmp_path.glob("*.part"))


def test_short_epochs_are_not_each_worth_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridgemil.learning.loop.SAVING_SHARE", 1e-9)
    whole = train(Line(), STREAMS, keep=tmp_path / "state.safetensors")
    resumed = Line()
    assert train(resumed, STREAMS, keep=tmp_path / "state.safetensors") == whole
    assert resumed.seen == [1, 2, 3, 4, 5], "only the first epoch was to be kept"


def test_a_loss_that_is_not_finite_stops_at_once() -> None:
    with pytest.raises(
        BridgeMILError, match=r"line, epoch 2, step 1: the loss is nan.*learning rate, --set stage2\.lr"
    ):
        train(Line(broken=float("nan")), STREAMS)
    with pytest.raises(BridgeMILError, match=r"epoch 1, validation: the loss is nan"):
        train(Line([Validation(1.0, float("nan"))]), STREAMS)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_a_batch_that_does_not_fit_names_the_setting_to_lower(error: Exception) -> None:
    with pytest.raises(BridgeMILError, match=r"epoch 2, step 1: out of memory.*Lower stage2\.batch_windows"):
        train(Line(broken=error), STREAMS)


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        train(Line(broken=RuntimeError("shapes do not match")), STREAMS)


def test_a_damaged_checkpoint_is_not_used_and_said(tmp_path: Path) -> None:
    keep = tmp_path / "state.safetensors"
    whole = train(Line(epochs=3), STREAMS, keep=keep)
    keep.write_bytes(keep.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="line starts again.*damaged"):
        assert train(Line(epochs=3), STREAMS, keep=keep) == whole


@pytest.mark.usefixtures("every_epoch")
def test_shared_weights_can_be_kept(tmp_path: Path) -> None:
    learner = Line(epochs=2)
    learner.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 1))
    learner.model[2].weight = learner.model[0].weight
    learner.optimiser = torch.optim.AdamW(learner.model.parameters(), 0.1)
    train(learner, STREAMS, keep=tmp_path / "state.safetensors")
    again = Line(epochs=3)
    again.model, again.optimiser = learner.model, learner.optimiser
    train(again, STREAMS, keep=tmp_path / "state.safetensors")
    assert again.seen == [2]
