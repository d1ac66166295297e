"""Stage 2 and the vote: freezing, retention, flat batches, against plain code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bridgemil import aggregators, backbones
from bridgemil.cohort.cohort import Cohort
from bridgemil.learning.data import WindowSet, batches, n_batches
from bridgemil.learning.learners import BagLearner, WindowLearner
from bridgemil.learning.loop import Streams, train
from bridgemil.learning.networks import BagModel, WindowModel, vote
from bridgemil.learning.settings import BagSettings, WindowSettings
from people import people

CPU = torch.device("cpu")


def sets() -> tuple[WindowSet, WindowSet]:
    cohort = people(10)
    train_ids, validation_ids = cohort.subjects[:7], cohort.subjects[7:]
    scale = cohort.normalisation(train_ids)
    return WindowSet(cohort, train_ids, scale), WindowSet(cohort, validation_ids, scale)


def everything(windows: WindowSet) -> torch.Tensor:
    return windows.take(np.arange(len(windows)))


def step_loss(learner: BagLearner, subjects: np.ndarray) -> torch.Tensor:
    rng = np.random.default_rng(0)
    step = learner._batch(subjects, rng)
    return learner.loss(step, learner.read(step), rng)


def model(dropout: bool = True) -> BagModel:
    torch.manual_seed(3)
    bag_model = BagModel(backbones.create("eegnet", 4, 200), aggregators.create("attention", 96, 2))
    if not dropout:
        for module in bag_model.modules():
            if isinstance(getattr(module, "p", None), float):
                module.p = 0.0
    return bag_model


def test_training_windows_are_normalised_by_their_own_mean_and_deviation() -> None:
    training, validation = sets()
    x = everything(training)
    assert torch.allclose(x.mean(dim=(0, 2)), torch.zeros(4), atol=1e-4)
    assert torch.allclose(x.std(dim=(0, 2), correction=0), torch.ones(4), atol=1e-4)
    assert not torch.allclose(everything(validation).mean(dim=(0, 2)), torch.zeros(4), atol=1e-5)


def test_a_step_equals_plain_code_bag_by_bag() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=4, freeze_epochs=1, retention=0.3, retention_windows=10_000)
    flat, plain = model(dropout=False), model(dropout=False)
    learner = BagLearner(flat, training, validation, settings, CPU, pretrained=True)
    reference = model(dropout=False).eval()
    learner.begin(1)
    batch = np.array([4, 0, 5])
    loss = step_loss(learner, batch)

    plain.train()
    windows = torch.cat([training.take(training.bag_index(i)) for i in batch])
    embeddings = plain.encoder(windows)
    logits, first = [], 0
    for i in batch:
        bag = embeddings[first : first + training.sizes[i]].unsqueeze(0)
        logits.append(plain.aggregator(bag, torch.ones(bag.shape[:2], dtype=torch.bool)).logits)
        first += training.sizes[i]
    expected = F.cross_entropy(torch.cat(logits), training.y[torch.from_numpy(batch)])
    with torch.no_grad():
        expected = expected + 0.3 * F.mse_loss(embeddings, reference.encoder(windows)) * 1.0
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


def test_while_frozen_the_encoder_does_not_move_and_its_embeddings_are_computed_once() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=3, freeze_epochs=2, burn_in=0)
    bag_model = model()
    before = {k: v.clone() for k, v in bag_model.encoder.state_dict().items()}
    learner = BagLearner(bag_model, training, validation, settings, CPU, pretrained=True)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    bag_model.encoder.register_forward_hook(count)
    moved = []
    train(
        learner,
        Streams(0, training.subjects),
        watch=lambda m: moved.append(
            (calls, any(not torch.equal(v, before[k]) for k, v in bag_model.encoder.state_dict().items()))
        ),
    )
    assert moved[0] == (0, False)
    assert moved[1] == (0, False)
    assert moved[2][0] > 0
    assert moved[2][1]


def test_while_frozen_the_result_is_that_of_encoding_every_time() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=2, freeze_epochs=2, burn_in=0)
    learner = BagLearner(model(dropout=False), training, validation, settings, CPU, pretrained=True)
    learner.begin(0)
    batch = np.array([2, 6])
    loss = step_loss(learner, batch)
    plain = model(dropout=False).eval()
    with torch.no_grad():
        logits = torch.cat([plain.explain(training.take(training.bag_index(i)), CPU).logits for i in batch])
    torch.testing.assert_close(
        loss.detach(), F.cross_entropy(logits, training.y[torch.from_numpy(batch)]), rtol=1e-5, atol=1e-6
    )
    expected = torch.cat([plain.explain(validation.take(validation.bag_index(i)), CPU).logits for i in range(3)])
    assert learner.validate().loss == pytest.approx(float(F.cross_entropy(expected, validation.y)), rel=1e-5)


def test_the_retention_gradient_is_logged_and_tiny() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=13, freeze_epochs=1, burn_in=0, batch_subjects=7)
    learner = BagLearner(model(), training, validation, settings, CPU, pretrained=True)
    curve = train(learner, Streams(0, training.subjects)).curve
    ratios = {row["epoch"]: row["retention_gradient_ratio"] for row in curve if "retention_gradient_ratio" in row}
    assert list(ratios) == [1, 11]
    assert all(0 < ratio < 1e-2 for ratio in ratios.values())


def test_retention_holds_the_embeddings_back() -> None:
    training, validation = sets()
    drift = {}
    for weight in (0.0, 1e3):
        settings = BagSettings(
            epochs=10, freeze_epochs=0, burn_in=9, retention=weight, schedule="constant", encoder_lr=1e-2
        )
        bag_model = model(dropout=False)
        for _ in range(50):  # so that batch norm's running statistics are those of these windows
            bag_model.train().encoder(everything(training))
        before = bag_model.eval().encoder(everything(training)).detach()
        learner = BagLearner(bag_model, training, validation, settings, CPU, pretrained=True)
        train(learner, Streams(0, training.subjects))
        drift[weight] = F.mse_loss(bag_model.eval().encoder(everything(training)).detach(), before).item()
    assert drift[1e3] < 0.5 * drift[0.0]


def test_without_stage_1_nothing_is_frozen_or_retained() -> None:
    training, validation = sets()
    learner = BagLearner(model(), training, validation, BagSettings(epochs=2), CPU, pretrained=False)
    assert learner.reference is None
    learner.begin(0)
    assert learner.model.encoder.training
    assert learner.phase == "bags"


def test_class_weights_are_inverse_frequencies() -> None:
    training, _ = sets()
    weights = training.class_weights()
    counts = torch.bincount(training.y)
    assert torch.allclose(weights * counts, torch.full((2,), len(training.y) / 2))


def test_window_batches_leave_a_single_window_out() -> None:
    sizes = [len(part) for part in batches(np.arange(9), 4)]
    assert sizes == [4, 4]
    assert n_batches(9, 4) == 2
    assert [len(part) for part in batches(np.arange(10), 4)] == [4, 4, 2]
    assert n_batches(10, 4) == 3


class Fixed(nn.Module):
    """Window probabilities that are given."""

    def __init__(self, p: list[list[float]]) -> None:
        super().__init__()
        self.p = torch.tensor(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.p.log()


def test_most_votes_win_and_a_tie_goes_to_the_mean_probability() -> None:
    x = torch.zeros(4, 1, 1)
    assert vote(Fixed([[0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.0, 1.0]]), x, CPU).predicted == 0
    assert vote(Fixed([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9], [0.1, 0.9]]), x, CPU).predicted == 1
    three = [[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.1, 0.45, 0.45 - 1e-3], [0.1, 0.4, 0.5]]
    assert vote(Fixed(three), x, CPU).predicted == 0, "a class with fewer votes won by its mean probability"


def test_the_votes_validation_loss_is_minus_log_of_the_mean_probability() -> None:
    training, validation = sets()
    torch.manual_seed(0)
    window_model = WindowModel(backbones.create("eegnet", 4, 200), backbones.create_head("eegnet", 96, 2))
    learner = WindowLearner(window_model, training, validation, WindowSettings(epochs=1), CPU)
    expected = []
    window_model.eval()
    for i, label in enumerate(validation.y.tolist()):
        p = torch.softmax(window_model(validation.take(validation.bag_index(i))), dim=1).mean(dim=0)
        expected.append(-math.log(p[label].item()))
    assert learner.validate().loss == pytest.approx(np.mean(expected), rel=1e-5)


def test_a_last_batch_of_one_window_joins_the_one_before() -> None:
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(1 if i == 0 else 3, 4, 200)) for i in range(5)]
    cohort = Cohort.from_arrays(bags, list("ABABA"), sfreq=200.0, channels=list("abcd"))
    data = WindowSet(cohort, cohort.subjects, cohort.normalisation(cohort.subjects))
    learner = BagLearner(model(), data, data, BagSettings(epochs=1, batch_subjects=2), CPU, pretrained=False)
    for seed in range(20):
        parts = [step.subjects for step in learner.batches(np.random.default_rng(seed))]
        assert sorted(np.concatenate(parts)) == list(range(5))
        assert all(sum(data.sizes[i] for i in part) > 1 for part in parts)


def test_bag_windows_draws_so_many_of_each_bag_anew_each_epoch() -> None:
    training, validation = sets()
    settings = BagSettings(epochs=1, freeze_epochs=0, burn_in=0, positions=False, bag_windows=5, batch_subjects=3)
    learner = BagLearner(model(), training, validation, settings, CPU, pretrained=False)
    rng = np.random.default_rng(0)
    epochs = [list(learner.batches(rng)) for _ in range(2)]
    for steps in epochs:
        for step in steps:
            assert step.sizes == [5] * len(step.subjects)
            for subject, windows in zip(step.subjects, np.split(step.windows, len(step.subjects)), strict=True):
                assert len(set(windows)) == 5
                assert (np.diff(windows) > 0).all()
                assert set(windows) <= set(training.bag_index(subject))
    drawn = [{int(w) for step in steps for w in step.windows} for steps in epochs]
    assert drawn[0] != drawn[1]
    with pytest.raises(ValueError, match="positions in it mean nothing"):
        BagSettings(bag_windows=5)
