"""Windows are read when they are needed, in any order and from anywhere: the same bits as from one array in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bridgemil import aggregators, backbones
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData, BridgeMILError
from bridgemil.learning import data, networks, objectives
from bridgemil.learning.data import WindowSet
from bridgemil.learning.learners import BagLearner, WindowLearner
from bridgemil.learning.loop import Learner, Streams, train
from bridgemil.learning.networks import BagModel, WindowModel, in_blocks, stored_embeddings
from bridgemil.learning.objectives import STAGE1
from bridgemil.learning.settings import BagSettings, WindowSettings
from people import people

CPU = torch.device("cpu")


@pytest.fixture
def memory() -> Cohort:
    return people(10)


@pytest.fixture
def disk(memory: Cohort, tmp_path: Path) -> Cohort:
    return memory.save(tmp_path / "cohort")


def as_one_array(cohort: Cohort, subjects: list[str]) -> np.ndarray:
    """What a loop would hold if everything were in memory."""
    mean, std = (values.astype(np.float32)[:, None] for values in cohort.normalisation(subjects))
    return (np.concatenate([cohort.windows(subject) for subject in subjects]) - mean) / std


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_windows_come_normalised_in_the_order_asked_for(where: str, request: pytest.FixtureRequest) -> None:
    cohort = request.getfixturevalue(where)
    subjects = cohort.subjects[2:9]
    windows = WindowSet(cohort, subjects, cohort.normalisation(subjects))
    expected = as_one_array(cohort, subjects)
    assert len(windows) == len(expected)
    assert windows.shape == (4, 200)
    assert windows.n_bytes == expected.nbytes
    order = np.random.default_rng(0).permutation(len(windows))
    for index in (order, order[:1], np.array([5, 5, 90, 0, 5]), np.arange(40)[::-1], np.empty(0, dtype=np.int64)):
        assert np.array_equal(windows.take(index).numpy(), expected[index])
    ends = np.cumsum(windows.sizes)
    for i, bag in enumerate(np.split(expected, ends[:-1])):
        assert np.array_equal(torch.cat(list(windows.blocks(i))).numpy(), bag)
        assert np.array_equal(expected[windows.bag_index(i)], bag)


def test_a_bag_comes_in_blocks(memory: Cohort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "BLOCK", 5)
    windows = WindowSet(memory, memory.subjects, memory.normalisation(memory.subjects))
    blocks = list(windows.blocks(3))
    assert [len(block) for block in blocks] == [5] * (windows.sizes[3] // 5) + [windows.sizes[3] % 5]
    assert torch.equal(torch.cat(blocks), windows.take(windows.bag_index(3)))


def test_files_are_opened_when_they_are_read_and_only_some_at_once(
    disk: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MAPS", 3)
    opened = []
    windows_of = disk.windows
    monkeypatch.setattr(disk, "windows", lambda subject: opened.append(subject) or windows_of(subject))
    windows = WindowSet(disk, disk.subjects, disk.normalisation(disk.subjects))
    assert not opened
    windows.take(np.concatenate([windows.bag_index(4), windows.bag_index(1)]))
    assert opened == [disk.subjects[1], disk.subjects[4]], "not in the order of the files"
    windows.take(np.arange(len(windows)))
    list(windows.blocks(0))
    assert windows._opened.cache_info().currsize == 3
    opened.clear()
    windows.take(windows.bag_index(9))
    assert not opened, "the one read last is still open"


def test_features_can_stand_for_windows(memory: Cohort) -> None:
    rng = np.random.default_rng(0)
    features = {s: rng.normal(size=(memory.records[s].n_windows, 7)).astype(np.float32) for s in memory.subjects}
    plain = WindowSet(memory, memory.subjects, None, features.__getitem__)
    assert plain.shape == (7,)
    index = np.array([30, 2, 11])
    assert np.array_equal(plain.take(index).numpy(), np.concatenate(list(features.values()))[index])
    assert np.array_equal(plain.take(plain.bag_index(2)).numpy(), features[memory.subjects[2]])
    scaled = WindowSet(memory, memory.subjects, (np.full(7, 2.0), np.full(7, 4.0)), features.__getitem__)
    torch.testing.assert_close(scaled.take(index), (plain.take(index) - 2) / 4)


def test_without_a_scale_windows_are_microvolts(memory: Cohort) -> None:
    raw = WindowSet(memory, memory.subjects, None)
    assert np.array_equal(raw.take(raw.bag_index(1)).numpy(), memory.windows(memory.subjects[1]))
    next(raw.blocks(1)).zero_()
    assert memory.windows(memory.subjects[1]).any(), "the cohort's own array was handed out"


def test_an_array_of_another_cohort_is_refused_by_name(memory: Cohort) -> None:
    features = {s: np.zeros((memory.records[s].n_windows, 7), dtype=np.float32) for s in memory.subjects}
    features[memory.subjects[4]] = features[memory.subjects[4]][:-1]
    windows = WindowSet(memory, memory.subjects, None, features.__getitem__)
    list(windows.blocks(3))
    with pytest.raises(BadData, match=rf"{memory.subjects[4]}: its array is .*expected"):
        windows.take(np.arange(len(windows)))


def test_stored_embeddings_are_those_of_the_encoder(disk: Cohort) -> None:
    windows = WindowSet(disk, disk.subjects, disk.normalisation(disk.subjects))
    encoder = backbones.create("eegnet", 4, 200)
    bags = [in_blocks(encoder, windows.take(windows.bag_index(i)), CPU) for i in range(len(disk.subjects))]
    np.testing.assert_array_equal(stored_embeddings(encoder, windows, CPU), torch.cat(bags))


def _learner(kind: str, training: WindowSet, validation: WindowSet) -> Learner:
    torch.manual_seed(0)
    encoder = backbones.create("eegnet", 4, 200)
    if kind in STAGE1:
        settings = STAGE1[kind](objective=kind, epochs=2, batch_windows=32)
        return objectives.create(encoder, "eegnet", training, settings, CPU)
    if kind == "windows":
        window_model = WindowModel(encoder, backbones.create_head("eegnet", 96, 2))
        return WindowLearner(window_model, training, validation, WindowSettings(epochs=2, batch_windows=32), CPU)
    bag_model = BagModel(encoder, aggregators.create("attention", 96, 2))
    settings = BagSettings(epochs=3, freeze_epochs=1, batch_subjects=2, retention=0.1, retention_windows=7)
    return BagLearner(bag_model, training, validation, settings, CPU, pretrained=kind == "stage 2")


@pytest.mark.parametrize("kind", [*STAGE1, "windows", "bags", "stage 2"])
def test_reading_ahead_from_disk_trains_the_same_bits_as_memory(
    kind: str, memory: Cohort, disk: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, scale = memory.subjects, memory.normalisation(memory.subjects[:7])
    results = []
    for cohort, ahead in ((memory, False), (disk, True)):
        if ahead:
            monkeypatch.setattr(data, "MAPS", 2)
            monkeypatch.setattr(data, "machine_memory", lambda: 1000)
        parts = [WindowSet(cohort, ids, scale) for ids in (subjects[:7], subjects[7:])]
        learner = _learner(kind, *parts)
        assert learner.ahead == ahead
        curve = train(learner, Streams(0, subjects[:7])).curve
        results.append((curve, {name: value.clone() for name, value in learner.model.state_dict().items()}))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(value, results[1][1][name]) for name, value in results[0][1].items())


def test_reading_ahead_pays_on_a_gpu_or_where_memory_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "machine_memory", lambda: 16_000)
    assert not data.reads_ahead(3_000, "cpu")
    assert data.reads_ahead(5_000, "cpu")
    assert data.reads_ahead(10, "cuda")
    monkeypatch.setattr(data, "machine_memory", lambda: None)
    assert not data.reads_ahead(10**15, "cpu")
    monkeypatch.undo()
    assert data.machine_memory() is None or data.machine_memory() > 1e8


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("reading ahead")]


def test_only_the_reading_is_in_the_thread_and_it_ends_with_the_epoch() -> None:
    drawn, read = [], []

    def batches() -> Iterator[int]:
        for i in range(5):
            drawn.append(threading.current_thread())
            yield i

    def reader(batch: int) -> int:
        read.append(threading.current_thread())
        return 10 * batch

    for ahead in (False, True):
        seen = [(batch, windows()) for batch, windows in data.read_steps(batches(), reader, ahead=ahead)]
        assert seen == [(i, 10 * i) for i in range(5)]
    assert set(drawn) == {threading.main_thread()}
    assert [thread is threading.main_thread() for thread in read] == [True] * 5 + [False] * 5
    steps = data.read_steps(batches(), reader, ahead=True)
    next(steps)
    assert readers()
    steps.close()
    assert not readers()


def _fails(error: Exception) -> Callable[[np.ndarray], torch.Tensor]:
    def read(batch: np.ndarray) -> torch.Tensor:
        raise error

    return read


@pytest.mark.parametrize("ahead", [False, True])
def test_what_goes_wrong_in_reading_is_said_where_the_loop_is(memory: Cohort, ahead: bool) -> None:
    scale = memory.normalisation(memory.subjects)
    parts = [WindowSet(memory, ids, scale) for ids in (memory.subjects[:7], memory.subjects[7:])]
    for error, kind, words in (
        (MemoryError(), BridgeMILError, r"epoch 1, step 1: out of memory. Lower stage2\.batch_subjects"),
        (BadData("sub-1: cannot be read"), BadData, "sub-1: cannot be read"),
    ):
        learner = _learner("bags", *parts)
        learner.ahead, learner.read = ahead, _fails(error)
        with pytest.raises(kind, match=words):
            train(learner, Streams(0, ["a"]))
        assert not readers()


def test_blocks_of_windows_or_all_of_them_are_embedded_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nn.Flatten(), torch.randn(7, 2, 3)
    monkeypatch.setattr(networks, "BLOCK", 3)
    assert torch.equal(in_blocks(module, x, CPU), in_blocks(module, iter([x[:4], x[4:]]), CPU))
