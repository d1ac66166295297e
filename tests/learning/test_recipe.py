"""What a recipe may change: length, selection, averaging, smoothing, positions; and what the curve tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bridgemil import aggregators, backbones
from bridgemil.learning import averaging, learners, loop, objectives
from bridgemil.learning.averaging import WeightAverage
from bridgemil.learning.data import WindowSet
from bridgemil.learning.learners import BagLearner, WindowLearner
from bridgemil.learning.loop import Learner, Progress, Streams, train
from bridgemil.learning.networks import BagModel, WindowModel
from bridgemil.learning.settings import BagSettings, WindowSettings
from people import people

CPU = torch.device("cpu")
STREAMS = Streams(0, ["a", "b"])


def sets() -> tuple[WindowSet, WindowSet]:
    cohort = people(10)
    scale = cohort.normalisation(cohort.subjects[:7])
    return WindowSet(cohort, cohort.subjects[:7], scale), WindowSet(cohort, cohort.subjects[7:], scale)


def learner(kind: str, aggregator: str = "attention", **changes: object) -> Learner:
    torch.manual_seed(0)
    training, validation = sets()
    data = training, None if changes.get("selection") == "last" else validation
    encoder = backbones.create("eegnet", 4, 200)
    if kind == "windows":
        window_model = WindowModel(encoder, backbones.create_head("eegnet", 96, 2))
        settings = WindowSettings(**{"epochs": 4, "batch_windows": 32} | changes)
        return WindowLearner(window_model, *data, settings, CPU)
    settings = BagSettings(**{"epochs": 4, "freeze_epochs": 1, "batch_subjects": 2} | changes)
    bag_model = BagModel(encoder, aggregators.create(aggregator, 96, 2))
    return BagLearner(bag_model, *data, settings, CPU, pretrained=True)


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_floor_of_steps_makes_more_epochs() -> None:
    few = learner("bags", epochs=2, min_steps=17, freeze_epochs=1, warmup_epochs=1, burn_in=1)
    assert few.steps == 4  # seven subjects, two a step
    assert (few.epochs, few.frozen_epochs, few.burn_in, few.warmup, few.total) == (5, 3, 3, 12, 20)
    trained = train(few, STREAMS)
    assert len(trained.curve) == 5
    assert trained.epoch >= 3
    settings = objectives.STAGE1["alignment"](epochs=1, min_steps=10_000)
    stage1 = objectives.create(backbones.create("eegnet", 4, 200), "eegnet", sets()[0], settings, CPU)
    assert (stage1.epochs - 1) * stage1.steps < 10_000 <= stage1.epochs * stage1.steps == stage1.total


@pytest.mark.parametrize("kind", ["bags", "windows"])
def test_under_a_ceiling_of_steps_every_epoch_visits_a_random_part(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = learner(kind), learner(kind, max_steps=9)
    assert (part.epochs, part.steps, part.total) == (4, 2, 8)
    assert whole.steps > 2
    seen: list[list[int]] = []
    take = part.data.take
    monkeypatch.setattr(part.data, "take", lambda index: seen.append(index.tolist()) or take(index))
    monkeypatch.setattr(loop, "_estimate_statistics", lambda *_: None)
    part.validation = None
    trained = train(part, STREAMS)
    assert [row["epoch"] for row in trained.curve] == [0, 1, 2, 3]
    assert len({tuple(batch) for batch in seen}) > 3, "another part in every epoch"
    assert len(seen) == (8 if kind == "windows" else 6), "the frozen epoch reads none"
    first = next(iter(whole.batches(STREAMS.start(whole.purpose, 3))))
    assert (first if kind == "windows" else first.windows).tolist() == seen[-2], "its first steps are those of all"


def test_under_a_ceiling_stage_1_draws_some_anchors_in_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = objectives.STAGE1["alignment"](epochs=3, batch_windows=8, subbag_pairs=4, max_steps=7, warmup_epochs=1)
    stage1 = objectives.create(backbones.create("eegnet", 4, 200), "eegnet", sets()[0], settings, CPU)
    assert (stage1.steps, stage1.warmup, stage1.total) == (2, 2, 6)
    assert len(list(stage1.batches(np.random.default_rng(0)))) > 6
    steps, loss = [], stage1.loss
    monkeypatch.setattr(stage1, "loss", lambda *given: steps.append(given[0][0][0].tolist()) or loss(*given))
    train(stage1, STREAMS)
    assert len(steps) == 6
    assert len({number for step in steps for number in step}) > 16, "others in other epochs"


@pytest.mark.parametrize("kind", ["bags", "windows"])
@pytest.mark.parametrize("selection", ["last", "accuracy"])
def test_the_averaged_weights_are_validated_and_returned(
    kind: str, selection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    averaged = learner(kind, averaging=0.7, selection=selection, burn_in=3)  # the last of four epochs is kept
    history, validated = [], []
    update, validate = WeightAverage.update, averaged.validate

    def noted(average: WeightAverage, step: int) -> None:
        history.append(state(averaged.model))
        update(average, step)

    monkeypatch.setattr(WeightAverage, "update", noted)
    averaged.validate = lambda: validated.append(state(averaged.model)) or validate()  # type: ignore[method-assign]
    train(averaged, STREAMS)
    n = len(history)
    assert n == 4 * averaged.steps
    share = 0.7 ** np.arange(n - 1, -1, -1)
    result = averaged.model.state_dict()
    for name, _ in averaged.model.named_parameters():
        expected = sum(w * step[name].double() for w, step in zip(share / share.sum(), history, strict=True))
        torch.testing.assert_close(result[name], expected.float(), rtol=1e-4, atol=1e-6)
    if selection == "accuracy":
        assert all(torch.equal(value, validated[-1][name]) for name, value in result.items()), "statistics included"
    assert not torch.equal(result["encoder.bn3.running_var"], history[-1]["encoder.bn3.running_var"])
    plain = learner(kind, selection=selection, burn_in=3)
    train(plain, STREAMS)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, history[-1][name]), "averaging changed what is trained"
    assert not torch.equal(plain.model.encoder.spatial.weight, averaged.model.encoder.spatial.weight)


def activations(encoder: torch.nn.Module, windows: torch.Tensor) -> dict[str, torch.Tensor]:
    """What enters EEGNet's three batch norms (channels first), computed layer by layer in evaluation mode."""

    def norm(bn: torch.nn.BatchNorm2d, u: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(u, bn.running_mean, bn.running_var, bn.weight, bn.bias, False, 0.0, bn.eps)

    found = {}
    found["bn1"] = encoder.temporal(F.pad(windows[:, None], (31, 32)))
    found["bn2"] = encoder.spatial(norm(encoder.bn1, found["bn1"]))
    u = F.avg_pool2d(F.elu(norm(encoder.bn2, found["bn2"])), (1, 4))
    found["bn3"] = encoder.pointwise(encoder.depthwise(F.pad(u, (7, 8))))
    return {name: value.transpose(0, 1).flatten(1).double() for name, value in found.items()}


@pytest.mark.parametrize("kind", ["bags", "windows"])
@pytest.mark.parametrize("most", [8192, 40])
@torch.no_grad()
def test_stored_statistics_are_those_of_the_averaged_weights_on_training_windows(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averaging, "MOST_WINDOWS", most)
    monkeypatch.setattr(averaging, "BATCH", 20)
    rates = {"encoder_lr": 5e-3} if kind == "bags" else {}
    averaged = learner(kind, averaging=0.98, selection="last", epochs=8, lr=5e-3, **rates)
    with torch.enable_grad():
        train(averaged, STREAMS)
    encoder, n = averaged.model.encoder, len(averaged.data)
    assert n > 40
    near = 0.05 if most > n else 0.6  # a part of the windows is an estimate
    for name, u in activations(encoder, averaged.data.take(np.arange(n))).items():
        bn = getattr(encoder, name)
        torch.testing.assert_close(bn.running_var.double(), u.var(dim=1), rtol=near, atol=0)
        assert ((bn.running_mean - u.mean(dim=1)).abs() < near * u.std(dim=1)).all()
        assert bn.momentum == 0.1


def test_a_frozen_encoder_keeps_the_statistics_of_stage_1() -> None:
    frozen = learner("bags", averaging=0.7, selection="last", frozen=True)
    before = state(frozen.model.encoder)
    train(frozen, STREAMS)
    assert all(torch.equal(value, before[name]) for name, value in frozen.model.encoder.state_dict().items())


class OnFeatures(torch.nn.Module):
    """A batch norm of what no weight changes, and one of what a weight changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.linear = torch.nn.BatchNorm1d(800, affine=False), torch.nn.Linear(800, 3)
        self.second = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.linear(self.first(x.flatten(1))))


def test_statistics_of_fixed_features_are_left_alone() -> None:
    data, network = sets()[0], OnFeatures().train()
    network(data.take(np.arange(10)))
    before = state(network)
    averaging.estimate_statistics(network, data, CPU, 0)
    after = network.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"second.running_mean", "second.running_var"}
    averaging.estimate_statistics(network, data, CPU, 0)
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in after.items()), "the same windows"


@pytest.mark.parametrize("selection", ["accuracy", "loss", "last"])
@pytest.mark.parametrize("kind", ["bags", "windows"])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_average_is_the_same_to_the_bit(
    kind: str, selection: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SAVING_SHARE", float("inf"))

    def interrupt(moment: Progress) -> None:
        if moment.epoch == stop:
            raise KeyboardInterrupt

    settings = {"averaging": 0.8, "selection": selection, "epochs": 4}
    whole, keep = learner(kind, **settings), tmp_path / "state.safetensors"
    trained = train(whole, STREAMS)
    with pytest.raises(KeyboardInterrupt):
        train(learner(kind, **settings), STREAMS, keep=keep, watch=interrupt)
    resumed = learner(kind, **settings)
    assert train(resumed, STREAMS, keep=keep) == trained
    assert all(torch.equal(value, resumed.model.state_dict()[name]) for name, value in state(whole.model).items())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["bags", "windows"])
def test_labels_are_smoothed_in_training_only(kind: str, smoothing: float) -> None:
    smoothed = learner(kind, label_smoothing=smoothing, **({"retention": 0.0} if kind == "bags" else {}))
    before = smoothed.validate()
    smoothed.begin(1)
    smoothed.model.eval()
    batch = next(smoothed.batches(np.random.default_rng(0)))
    loss = smoothed.loss(batch, smoothed.read(batch), np.random.default_rng(0))
    with torch.no_grad():
        if kind == "bags":
            bags = [
                smoothed.model.explain(smoothed.data.take(smoothed.data.bag_index(i)), CPU).logits
                for i in batch.subjects
            ]
            logits, labels = torch.cat(bags), smoothed.data.y[torch.from_numpy(batch.subjects)]
        else:
            logits = smoothed.model(smoothed.data.take(batch))
            labels = smoothed.data.window_y[torch.from_numpy(batch)]
    p = torch.full((len(labels), 2), smoothing / 2)
    p[torch.arange(len(labels)), labels] += 1 - smoothing
    torch.testing.assert_close(loss.detach(), -(p * F.log_softmax(logits, dim=1)).sum(dim=1).mean())
    assert before == learner(kind).validate()


@pytest.mark.parametrize("aggregator", aggregators.names())
def test_the_curve_has_the_spread_of_the_gates(aggregator: str) -> None:
    logged = learner("bags", aggregator, epochs=2)
    seen: list[torch.Tensor] = []
    aggregate = logged.model.aggregate

    def noted(embeddings: torch.Tensor, sizes: list[int]) -> object:
        output = aggregate(embeddings, sizes)
        if logged.model.training:
            seen.extend(gates[:n].detach().double() for gates, n in zip(output.gates, sizes, strict=True))
        return output

    logged.model.aggregate = noted
    curve = train(logged, STREAMS).curve
    gates = torch.cat(seen[7:])  # of the second epoch
    assert len(gates) == len(logged.data)
    assert curve[1]["gate_mean"] == pytest.approx(float(gates.mean()))
    assert curve[1]["gate_std"] == pytest.approx(float(gates.std(correction=0)), abs=1e-7)
    assert "gate_mean" in curve[0], "also while the encoder is frozen"


def test_positions_and_dropout_reach_the_aggregator() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=1, positions=False, dropout=0.35)
    encoder = backbones.create("eegnet", *training.shape)
    model = learners.create(encoder, "eegnet", training, validation, settings, CPU, pretrained=False).model
    assert (model.aggregator.positions, model.aggregator.dropout.p) == (False, 0.35)
