"""Stage 1's objectives as they are wired: what is encoded, what is learnt, what stays out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from bridgemil import backbones
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData
from bridgemil.learning import objectives
from bridgemil.learning.data import WindowSet
from bridgemil.learning.loop import Streams, train
from bridgemil.learning.objectives import STAGE1, masked
from bridgemil.learning.objectives.masked import span_mask
from bridgemil.learning.objectives.objective import Objective
from bridgemil.pretraining import vicreg_loss
from people import people

CPU = torch.device("cpu")


def training_windows() -> WindowSet:
    cohort = people(8)
    return WindowSet(cohort, cohort.subjects, cohort.normalisation(cohort.subjects))


def encoder() -> torch.nn.Module:
    torch.manual_seed(1)
    return backbones.create("eegnet", 4, 200).eval()


def small(objective: str = "alignment", **changes: object) -> BaseModel:
    pairs = {"subbag_pairs": 6, "subbag_size": 4} if objective == "alignment" else {}
    return STAGE1[objective](objective=objective, **{"epochs": 6, "batch_windows": 32} | pairs | changes)


def step_loss(objective: Objective, batch: object) -> torch.Tensor:
    return objective.loss(batch, objective.read(batch), np.random.default_rng(0))


def test_alignment_is_the_mean_of_both_pair_types_and_a_sub_bag_the_mean_of_projections() -> None:
    data = training_windows()
    objective = objectives.create(encoder(), "eegnet", data, small(), CPU)
    near, bags = next(objective.batches(np.random.default_rng(0)))
    loss = step_loss(objective, (near, bags))

    def z(index: np.ndarray) -> torch.Tensor:
        return objective.model(data.take(index))

    first = torch.stack([z(subbag).mean(dim=0) for subbag in bags[0]])
    second = torch.stack([z(subbag).mean(dim=0) for subbag in bags[1]])
    expected = (vicreg_loss(z(near[0]), z(near[1])) + vicreg_loss(first, second)) / 2
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)


def test_every_window_is_an_anchor_once_an_epoch_and_every_step_has_its_sub_bag_pairs() -> None:
    data = training_windows()
    objective = objectives.create(encoder(), "eegnet", data, small(), CPU)
    steps = list(objective.batches(np.random.default_rng(0)))
    assert sorted(np.concatenate([near[0] for near, _ in steps])) == list(range(len(data)))
    assert all(bags.shape == (2, 6, 4) for _, bags in steps)
    assert len(steps) == objective.steps
    subject = np.repeat(np.arange(8), data.sizes)
    assert all((subject[bags[0]] == subject[bags[1]][:, :1]).all() for _, bags in steps)


@pytest.mark.parametrize("off", ["nearby", "subbag"])
def test_either_scale_can_be_left_out(off: str) -> None:
    data = training_windows()
    whole = objectives.create(encoder(), "eegnet", data, small(), CPU)
    part = objectives.create(encoder(), "eegnet", data, small(**{off: False}), CPU)
    part.model.load_state_dict(whole.model.state_dict())
    encoded = []
    part.model.encoder.register_forward_hook(lambda module, given, out: encoded.append(len(out)))
    batch = next(part.batches(np.random.default_rng(0)))
    step_loss(part, batch)
    assert encoded == ([2 * 6 * 4] if off == "nearby" else [64])
    assert part.steps == whole.steps


def test_sub_bags_alone_need_no_neighbours() -> None:
    rng = np.random.default_rng(0)
    bags = [[rng.normal(size=(1, 4, 200)), rng.normal(size=(1, 4, 200))] for _ in range(6)]
    cohort = Cohort.from_arrays(bags, list("ABABAB"), sfreq=200.0, channels=list("abcd"))
    data = WindowSet(cohort, cohort.subjects, cohort.normalisation(cohort.subjects))
    alone = objectives.create(encoder(), "eegnet", data, small(nearby=False), CPU)
    assert torch.isfinite(step_loss(alone, next(alone.batches(rng))))
    with pytest.raises(BadData, match="no nearby windows"):
        objectives.create(encoder(), "eegnet", data, small(), CPU)


def test_without_variance_and_covariance_only_the_distance_counts() -> None:
    data = training_windows()
    objective = objectives.create(encoder(), "eegnet", data, small(variance=0, covariance=0, subbag=False), CPU)
    near, _ = next(objective.batches(np.random.default_rng(0)))
    z = objective.model(data.take(near.ravel())).view(2, 32, -1)
    torch.testing.assert_close(step_loss(objective, (near, None)), 25 * (z[0] - z[1]).square().mean())


LEARNT = [name for name in STAGE1 if name != "untrained"]  # whose loss is zero, and whose weights stay


@pytest.mark.parametrize("name", LEARNT)
def test_the_loss_goes_down(name: str) -> None:
    data = training_windows()
    learner = objectives.create(encoder(), "eegnet", data, small(objective=name, warmup_epochs=1), CPU)
    curve = train(learner, Streams(0, data.subjects)).curve
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert "validation_accuracy" not in curve[0]


class FrontEnd(torch.nn.Module):
    """An encoder of raw windows, N x C x T, or of features that were computed before, N x F."""

    embedding_dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 5)

    def front_end(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.std(dim=2), x.mean(dim=2)], dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.front_end(x) if x.ndim == 3 else x)


@pytest.mark.parametrize("name", [name for name in LEARNT if name != "masked"])
def test_features_are_learnt_from_as_windows_are(name: str) -> None:
    cohort, front = people(8), FrontEnd()
    features = {s: front.front_end(torch.from_numpy(cohort.windows(s))).numpy() for s in cohort.subjects}
    data = WindowSet(cohort, cohort.subjects, None, features.__getitem__)
    settings = small(name)
    learner = objectives.create(front, "eegnet", data, settings, CPU)
    before = front.linear.weight.clone()
    train(learner, Streams(0, data.subjects))
    assert not torch.equal(front.linear.weight, before)
    if name == "alignment":  # without random views the raw windows give the same loss
        raw = objectives.create(front, "eegnet", WindowSet(cohort, cohort.subjects, None), settings, CPU)
        raw.model.load_state_dict(learner.model.state_dict())
        batch = next(raw.batches(np.random.default_rng(0)))
        torch.testing.assert_close(step_loss(raw, batch), step_loss(learner, batch))


def test_only_hidden_samples_are_reconstructed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = training_windows()
    objective = objectives.create(encoder(), "eegnet", data, small("masked"), CPU)
    assert objective.model.head(torch.randn(5, 96)).shape == (5, 4 * 200)
    assert objective.model.head[0].out_features == min(512, 4 * 96)
    x, mask = data.take(np.arange(9)), span_mask(9, 4, 200)
    monkeypatch.setattr(masked, "span_mask", lambda *_: mask)
    monkeypatch.setattr(objective, "model", lambda shown: torch.where(shown == 0, x + 2, x + 1000))
    assert float(step_loss(objective, np.arange(9))) == pytest.approx(4, rel=1e-4)


def test_supcon_draws_classes_evenly() -> None:
    cohort = people(8, classes=("control", "control", "control", "patient"))
    data = WindowSet(cohort, cohort.subjects, cohort.normalisation(cohort.subjects))
    objective = objectives.create(encoder(), "eegnet", data, small(objective="supcon"), CPU)
    drawn = np.concatenate([b for seed in range(30) for b in objective.batches(np.random.default_rng(seed))])
    assert data.window_y[torch.from_numpy(drawn)].double().mean() == pytest.approx(0.5, abs=0.03)
