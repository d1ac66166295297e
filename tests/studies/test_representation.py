"""The study representation: spaces are those of the runs, scores say what they should, pictures repeat."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import pairwise_distances, silhouette_score

from bridgemil import backbones, methods, studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.errors import BadData
from bridgemil.models import FitCache, build_encoder, fit
from bridgemil.report.benchmark import paper
from bridgemil.studies import StudyContext
from bridgemil.studies import representation as study
from contexts import files, quick_context
from people import people

BACKBONES = ["eegnet", "covariance"]  # one of windows, one with a front end


class Remembers(FitCache):
    """Keeps the Stage 1 encoder that a fit in memory trained."""

    def stage1(self, train: Any) -> Any:
        tensors, note = super().stage1(train)
        self.tensors = {name: value.clone() for name, value in tensors.items()}
        return tensors, note


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_stage1_encoder_read_back_is_the_one_that_was_trained(
    cohort: Cohort, tmp_path: Path, backbone: str
) -> None:
    context = quick_context(cohort, tmp_path, backbone=backbone)
    experiment = context.experiment(cohort, "bridgemil")
    job = experiment.jobs(0)[0]
    fold = context.experiment(cohort, "bridgemil", part="first fold", drawn=lambda rounds: rounds[:1])
    context.perform([fold])
    cache = Remembers()
    fit(cohort, job.fold.train, job.fold.validation, job.settings, cache=cache)
    tensors = context.store.encoder(job.stage1)[0]
    stored = build_encoder(tensors, job.settings, cohort.signal)
    assert not stored.training
    assert stored.state_dict().keys() == cache.tensors.keys()
    assert all(torch.equal(value, cache.tensors[name]) for name, value in stored.state_dict().items())
    moved = context.store.model(job.identity).network.encoder.state_dict()
    assert any(not torch.equal(value, moved[name]) for name, value in stored.state_dict().items()), "Stage 2 trains on"

    other = next(name for name in backbones.names() if name != backbone)
    with pytest.raises(BadData, match=f"does not fit {other}"):
        build_encoder(tensors, job.settings.model_copy(update={"backbone": other}), cohort.signal)
    (context.store.place("stage1", job.stage1) / "encoder.safetensors").unlink()
    with pytest.raises(BadData, match=r"encoder\.safetensors: is missing"):
        context.store.encoder(job.stage1)


@pytest.fixture(scope="module", params=BACKBONES)
def studied(request: pytest.FixtureRequest, cohort: Cohort, out: Path) -> tuple[studies.StudyContext, studies.Findings]:
    folder = out if request.param == "eegnet" else out / request.param
    context = quick_context(cohort, folder, backbone=request.param)
    return context, studies.study("representation", context)


def test_every_space_has_its_row_its_points_and_its_panel(
    cohort: Cohort, studied: tuple[studies.StudyContext, studies.Findings]
) -> None:
    context, found = studied
    fixed = backbones.has_front_end(context.protocol.backbone)
    left_out = {("Stage 1", "masked")} if fixed else {("front end", "wo_stage1")}
    expected = [space for space in study.SPACES if (space.kind, space.method) not in left_out]
    table = found.tables["representation"]
    assert list(table["space"]) == [space.name for space in expected]
    assert table["space"].is_unique
    assert any(note.startswith("masked is left out") for note in found.footnotes) == fixed
    assert table["knn"].between(0, 100).all()
    assert table["silhouette_by_class"].between(-1, 1).all()
    assert list(table["moved"].notna()) == [space.kind == "Stage 2" for space in expected]
    for name in table["method"].unique():
        predictions = context.experiment(cohort, name, seeds=(0,)).results(context.store).predictions
        right = predictions["label"] == predictions["predicted"]
        assert table.loc[table["method"] == name, "accuracy"].to_numpy() == pytest.approx(100 * right.mean()), name
    points = found.data["representation_points"]
    test = context.split(cohort, 0).folds[0]
    whole = sorted((subject, window) for subject in test for window in range(cohort.records[subject].n_windows))
    for _, panel in points.groupby("space"):
        assert sorted(zip(panel["subject"], panel["window"], strict=True)) == whole, "all windows of test subjects only"
    drawn = [ax.get_title().partition("\n")[0] for ax in found.figures["representation"].axes]
    assert [title for title in drawn if title] == list(table["space"])
    assert "paper_accuracy" not in table
    assert any("t-SNE is a picture, not evidence" in words for words in found.sentences)
    assert any(f"{len(test)} test subjects" in words for words in found.sentences)


def test_what_stage2_makes_of_windows_is_what_its_model_embeds(
    cohort: Cohort, studied: tuple[studies.StudyContext, studies.Findings]
) -> None:
    context, _ = studied
    jobs = {name: context.experiment(cohort, name, seeds=(0,)).jobs(0)[0] for name in ("bridgemil", "wo_retention")}
    look = study.FirstFold(context, cohort, jobs)
    for name, job in jobs.items():
        model = context.store.model(job.identity)
        features = look.features[study.Space("Stage 2", name)][0]
        expected = np.concatenate([model.embed(cohort.windows(subject)) for subject in sorted(job.fold.test)])
        np.testing.assert_allclose(features, expected, atol=1e-5)
    first = look.features[study.Space("Stage 1", "bridgemil")][0]
    with_ = look.features[study.Space("Stage 2", "bridgemil")][0]
    assert look.moved(study.Space("Stage 2", "bridgemil")) == pytest.approx(
        np.linalg.norm(with_ - first) / np.linalg.norm(first), rel=1e-4
    )


def test_raw_windows_are_normalised_with_the_training_subjects(
    cohort: Cohort, studied: tuple[studies.StudyContext, studies.Findings]
) -> None:
    context, _ = studied
    jobs = {"bridgemil": context.experiment(cohort, "bridgemil").jobs(0)[0], "wo_stage1": None}
    test, train = study.FirstFold(context, cohort, jobs).features[study.SPACES[0]]
    by_channel = train.reshape(len(train), len(cohort.channels), -1)
    np.testing.assert_allclose(by_channel.mean(axis=(0, 2)), 0, atol=1e-3)
    np.testing.assert_allclose(by_channel.std(axis=(0, 2)), 1, atol=1e-3)
    assert test.shape[1] == len(cohort.channels) * cohort.n_times


def test_a_second_call_runs_nothing_and_writes_the_same_bytes(
    studied: tuple[studies.StudyContext, studies.Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = studied
    before = files(context.out / "representation")
    monkeypatch.setattr(type(context.where), "workers", lambda *_: pytest.fail("a run was started"))
    studies.study("representation", context)
    assert files(context.out / "representation") == before
    names = {"representation.csv", "representation_points.csv", "representation.png", "representation.svg"}
    assert set(before) == names | {"findings.md"}


def test_the_papers_numbers_are_of_spaces_there_are_and_stand_beside_comparable_runs_only(
    cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {(space.kind, space.method) for space in study.SPACES}
    for kinds in paper()["representation"].values():
        assert {(kind, name) for kind, cells in kinds.items() for name in cells} <= known
    rockhill: Any = SimpleNamespace(metadata={"source": "rockhill2021"})
    whole, masked = ("Stage 2", "bridgemil"), ("Stage 1", "masked")
    context = quick_context(cohort, tmp_path)
    monkeypatch.setattr(StudyContext, "matches_paper", lambda *_: False)
    assert context.published(rockhill, "representation", *whole) == {}
    monkeypatch.setattr(StudyContext, "matches_paper", lambda *_: True)
    numbers = {"accuracy": 80.48, "silhouette": 0.171, "davies_bouldin": 2.3335}
    assert context.published(rockhill, "representation", *whole) == numbers
    assert context.published(rockhill, "representation", *masked) == {"accuracy": 51.71}
    assert context.published(rockhill, "representation", "Stage 1", "nothing") == {}


def test_a_sample_is_even_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = people(4, n_channels=2, n_times=8, windows=20)
    whole = study.sample(cohort, cohort.subjects)
    assert len(whole) == cohort.n_windows, "nobody has more than the limit"
    monkeypatch.setattr(study, "PER_SUBJECT", 7)
    few = study.sample(cohort, cohort.subjects)
    kept = {subject: rows.to_numpy() for subject, rows in few.groupby("subject")["row"]}
    for subject, rows in kept.items():
        assert len(rows) == 7
        assert (rows[0], rows[-1]) == (0, cohort.records[subject].n_windows - 1)
        assert np.ptp(np.diff(rows)) <= 1
    monkeypatch.setattr(study, "IN_ALL", 12)
    assert len(study.sample(cohort, cohort.subjects)) == 12
    rows = study.take(few, cohort.windows)
    first = cohort.subjects[0]
    np.testing.assert_array_equal(rows[:7], cohort.windows(first)[kept[first]])
    assert list(few["subject"][:7]) == [first] * 7
    assert list(few["window"][:7]) == kept[first].tolist()


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    cohort = people(8, n_channels=2, n_times=8, windows=10)
    return study.sample(cohort, cohort.subjects)


def codes(values: Any) -> Any:
    return np.unique(values, return_inverse=True)[1]


def test_scores_tell_classes_from_fingerprints(sample: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(sample), 5))
    by_class = study.separation(noise + 50 * codes(sample["label"])[:, None], sample)
    assert by_class["silhouette_by_class"] > 0.9
    assert by_class["davies_bouldin"] < 0.1
    assert by_class["silhouette_by_subject"] < 0.1, "people of one class are not told apart"
    places = 50 * rng.normal(size=(8, 5))
    fingerprint = study.separation(noise + places[codes(sample["subject"])], sample)
    assert fingerprint["silhouette_by_subject"] > 0.8
    assert fingerprint["silhouette_by_class"] < 0.2
    again = study.separation(1e-6 * (noise + places[codes(sample["subject"])]) + 1e-4, sample)
    assert again == pytest.approx(fingerprint, rel=1e-5), "the unit of a space is no matter"


def test_silhouettes_of_permuted_diagnoses_are_scikit_learns_and_fingerprints_are_chance(sample: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(len(sample), 5))
    fingerprint = noise + 5 * rng.normal(size=(8, 5))[codes(sample["subject"])]
    sizes, even = sample.groupby("subject", sort=False).size().to_numpy(), study._standardised(fingerprint)
    far = np.add.reduceat(pairwise_distances(even), np.append(0, np.cumsum(sizes)[:-1]), axis=1)
    for labels in (np.arange(8) % 2, np.arange(8) // 3, np.arange(8)):
        expected = silhouette_score(even, np.repeat(labels, sizes))
        assert study.silhouette(far, sizes, labels) == pytest.approx(expected)
    assert study.separation(fingerprint, sample)["by_chance"] > 0.05
    by_class = study.separation(noise + 50 * codes(sample["label"])[:, None], sample)
    assert by_class["by_chance"] < 0.05, "2 of the 70 permutations are the true one"


def test_a_collapsed_space_has_no_scores_rather_than_perfect_ones(sample: pd.DataFrame) -> None:
    point = np.full((len(sample), 5), 3.0, dtype=np.float32)
    assert set(study.separation(point, sample).values()) == {None}
    assert not study.tsne(point).any()
    alone = sample[sample["subject"] == sample["subject"].iloc[0]]
    assert set(study.separation(np.random.default_rng(0).normal(size=(len(alone), 3)), alone).values()) == {None}


def test_neighbours_of_other_people_do_not_see_fingerprints() -> None:
    rng = np.random.default_rng(0)
    who, labels = np.repeat(np.arange(40), 20), np.repeat(np.arange(40) % 2, 20)
    places = 50 * rng.normal(size=(40, 20))
    features = rng.normal(size=(800, 20)) + places[who]
    held_out = who >= 20
    parts = [features[~held_out], labels[~held_out], features[held_out], labels[held_out]]
    assert 0.2 < study.knn_accuracy(*parts) < 0.8, "a person's place says nothing of the class"
    shifted = features + 500 * labels[:, None]
    assert study.knn_accuracy(shifted[~held_out], parts[1], shifted[held_out], parts[3]) == 1
    uneven = np.r_[np.zeros(90, int), np.ones(10, int)]
    assert study.knn_accuracy(np.zeros((5, 2)), np.zeros(5, int), np.zeros((100, 2)), uneven) == 0.5


@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (30, 2), (70, 120)])
def test_maps_of_small_and_large_spaces_repeat(shape: tuple[int, int]) -> None:
    features = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    places = study.tsne(features)
    assert places.shape == (shape[0], 2)
    assert np.isfinite(places).all()
    np.testing.assert_array_equal(places, study.tsne(features))


def test_people_of_a_class_have_shades_of_one_colour() -> None:
    shades = [study.shade(0, i, 5) for i in range(5)]
    light = [sum(shade) for shade in shades]
    assert light == sorted(light)
    assert len(set(shades)) == 5
    assert all(0 <= part <= 1 for shade in shades for part in shade)
    assert study.shade(0, 2, 5) == study.shade(0, 0, 1), "in the middle stands the class's own"


def test_a_figure_has_a_place_for_any_number_of_spaces() -> None:
    for n in (1, 3, 4, 11):
        rows = [{"space": str(i), "accuracy": 50.0, "silhouette_by_class": None} for i in range(n)]
        points = pd.DataFrame(
            {"space": ["0", "0"], "subject": ["a", "b"], "label": ["A", "B"], "x": [0, 1], "y": [0, 1]}
        )
        axes = study._figure(points, rows, ["A", "B"], "title").axes
        assert sum(ax.get_legend() is not None for ax in axes) == 1
        assert sum("no scores" in ax.get_title() for ax in axes) == n


def test_spaces_are_of_methods_there_are() -> None:
    every = {*methods.names(), *methods.ablations()}
    assert {space.method for space in study.SPACES} <= every
    two_stage = {name for name, made in (methods.METHODS | methods.ABLATIONS).items() if made.stage1 is not None}
    shown = {space.method for space in study.SPACES if space.kind == "Stage 1"}
    assert shown == two_stage - {"wo_retention"}, "which has bridgemil's"
