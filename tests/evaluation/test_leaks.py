"""Nothing of a test subject reaches training: not its signal, not its label. And a planted leak is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridgemil import backbones, baselines, methods, models
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, SubjectKFold
from bridgemil.cohort.views import Unlabelled
from bridgemil.errors import BadData
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.run import Run
from bridgemil.learning import checkpoint
from bridgemil.learning.data import WindowSet
from bridgemil.parallel import device_of
from bridgemil.runs import open_store, stage1_identity
from people import people

EPOCHS = {"stage2.epochs": 3, "stage2.burn_in": 0}
STAGE1 = {"stage1.epochs": 2, "stage1.subbag_pairs": 8, "stage1.batch_windows": 64}


def with_noise(cohort: Cohort, subjects: tuple[str, ...]) -> Cohort:
    """The cohort with other signals and other labels for these subjects."""
    rng = np.random.default_rng(99)
    bags, labels = [], []
    for subject, label in zip(cohort.subjects, cohort.labels, strict=True):
        sizes = cohort.records[subject].recording_windows
        windows = np.array(cohort.windows(subject))
        if subject in subjects:
            windows = rng.normal(50, 300, windows.shape).astype(np.float32)
            label = {"control": "patient", "patient": "control"}[label]
        bags.append(np.split(windows, np.cumsum(sizes)[:-1]))
        labels.append(label)
    return Cohort.from_arrays(bags, labels, cohort.subjects, cohort.sfreq, cohort.channels, burn_in=1)


def first_fold(cohort: Cohort, method: str, recipe: str = "ours") -> Fold:
    """As ``evaluate`` has it: recipe ours and baselines train on all folds but the test fold."""
    return (
        SubjectKFold(3)
        .plan(cohort.subjects, cohort.labels)
        .cv_folds(methods.settings(method, recipe=recipe).selects)[0]
    )


def quantities(
    cohort: Cohort,
    subjects: Fold,
    method: str,
    folder: Path,
    backbone: str = "eegnet",
    recipe: str = "ours",
    other: Cohort | None = None,
) -> dict[str, Any]:
    """Everything training decides: weights of both stages, curves, the selected epoch."""
    changes = {key: value for key, value in (EPOCHS | STAGE1).items() if methods.has_setting(method, key)}
    settings = Protocol(method, backbone, recipe, "demo", changes, pretrain_on=other).method_settings(cohort)
    run = Run(cohort, subjects, settings, seed=0, pretrain_on=other)
    store = open_store(folder)
    identity = run.perform(store, device_of("cpu"))
    found: dict[str, Any] = dict(checkpoint.read_tensors(store.run_folder(identity) / "model.safetensors"))
    found["curve"] = store.table(identity, "curves.parquet").to_csv()
    found["epoch"] = store.metadata(identity)["selected_epoch"]
    if run.settings.stage1 is not None:
        file = store.place("stage1", stage1_identity(run.settings, cohort.hash, subjects, 0)) / "encoder.safetensors"
        found |= {f"stage 1 {name}": value for name, value in checkpoint.read_tensors(file).items()}
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    assert list(one) == list(other)
    return [
        name
        for name, value in one.items()
        if not (torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name])
    ]


# Every method on a plain network, and what is trained on a front end's stored features.
PAIRS = [(method, "eegnet") for method in methods.names()]
PAIRS += [(m, name) for name in backbones.names() if backbones.has_front_end(name) for m in ("attention", "bridgemil")]


PROTOCOLS = [(*pair, "ours") for pair in PAIRS]  # trained on k - 1 folds
PROTOCOLS += [("majority_vote", "eegnet", "paper"), ("bridgemil", "eegnet", "paper")]  # on k - 2, one selects


@pytest.mark.parametrize(("method", "backbone", "recipe"), PROTOCOLS)
def test_noise_in_place_of_the_test_subjects_changes_nothing_in_training(
    method: str, backbone: str, recipe: str, tmp_path: Path
) -> None:
    cohort = people(9, windows=4)
    subjects = first_fold(cohort, method, recipe)
    assert bool(subjects.validation) is (recipe == "paper")
    assert {*subjects.train, *subjects.validation} == set(cohort.subjects) - set(subjects.test)
    noisy = with_noise(cohort, subjects.test)
    assert noisy.hash != cohort.hash
    one = quantities(cohort, subjects, method, tmp_path / "one", backbone, recipe)
    assert len(one) > 2
    assert ("validation_loss" in one["curve"]) is (recipe == "paper")
    other = quantities(noisy, subjects, method, tmp_path / "other", backbone, recipe)
    assert not differing(one, other)


STORED = [(method, "eegnet") for method in baselines.names()]
STORED += [pair for pair in PAIRS if backbones.has_front_end(pair[1])]


@pytest.mark.parametrize(("method", "backbone"), STORED)
def test_stored_features_of_another_cohort_change_nothing_in_training(
    method: str, backbone: str, tmp_path: Path
) -> None:
    """Two cohorts, in one the test fold is noise, share a folder of runs, and so what is stored of each person."""
    cohort = people(9, windows=4)
    subjects = first_fold(cohort, method)
    noisy = with_noise(cohort, subjects.test)
    rounds = SubjectKFold(3).plan(noisy.subjects, noisy.labels).cv_folds(selects=False)
    for everyone in rounds:  # so that each person's features are stored, those of the noise as well
        quantities(noisy, everyone, method, tmp_path / "shared", backbone)
    stored = {file: file.stat().st_mtime_ns for file in (tmp_path / "shared" / "features").rglob("*.npy")}
    per_subject = 2 if method in ("bandpower", "tangent") else 1  # of windows, and their mean
    assert len(stored) == per_subject * len(cohort)
    alone = quantities(cohort, subjects, method, tmp_path / "alone", backbone)
    assert not differing(alone, quantities(cohort, subjects, method, tmp_path / "shared", backbone))
    now = {file: file.stat().st_mtime_ns for file in (tmp_path / "shared" / "features").rglob("*.npy")}
    assert stored.items() <= now.items(), "what was stored of the training subjects served again"
    assert len(now) == per_subject * (len(cohort) + len(subjects.test)), (
        "of the test subjects' own, when they were predicted"
    )


@pytest.mark.parametrize(("method", "backbone"), STORED)
def test_a_planted_leak_in_the_stored_features_is_caught(
    method: str, backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features that are told by the person's name only would be those of the other cohort."""
    cohort = people(9, windows=4)
    subjects = first_fold(cohort, method)
    noisy = with_noise(cohort, subjects.train[:2])
    honest = models.features_of

    def careless(cache: Any, features: models.Features, data: Cohort, subject: str) -> Any:
        return cache.features(features.key, f"{subject:-<64}", lambda: features.compute(data.windows(subject)))

    alone = quantities(cohort, subjects, method, tmp_path / "alone", backbone)
    for features_of, leaks in ((honest, False), (careless, True)):
        monkeypatch.setattr(models.fitting, "features_of", features_of)
        folder = tmp_path / f"shared {leaks}"
        quantities(noisy, subjects, method, folder, backbone)
        assert bool(differing(alone, quantities(cohort, subjects, method, folder, backbone))) is leaks


def test_a_planted_leak_in_the_normalisation_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = people()
    subjects = first_fold(cohort, "bridgemil")
    honest = Cohort.normalisation
    monkeypatch.setattr(Cohort, "normalisation", lambda self, ids: honest(self, self.subjects))
    one = quantities(cohort, subjects, "bridgemil", tmp_path / "one")
    found = differing(one, quantities(with_noise(cohort, subjects.test), subjects, "bridgemil", tmp_path / "other"))
    assert "curve" in found
    assert any(name.startswith("stage 1 ") for name in found)


def test_a_planted_leak_of_test_windows_into_stage_1_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = people()
    subjects = first_fold(cohort, "bridgemil")
    honest = WindowSet.__init__

    def leaking(self: WindowSet, data: Cohort, ids: tuple[str, ...], *more: Any) -> None:
        honest(self, data, [*ids, *subjects.test] if set(ids) == set(subjects.train) else ids, *more)

    monkeypatch.setattr(WindowSet, "__init__", leaking)
    one = quantities(cohort, subjects, "bridgemil", tmp_path / "one")
    found = differing(one, quantities(with_noise(cohort, subjects.test), subjects, "bridgemil", tmp_path / "other"))
    assert any(name.startswith("stage 1 ") for name in found)


@pytest.mark.parametrize("backbone", ["eegnet", "covariance"])
def test_test_subjects_in_the_cohort_to_pretrain_on_change_nothing(backbone: str, tmp_path: Path) -> None:
    """The second cohort holds everybody of the first, under other names and labels, and three further people."""
    cohort, further = people(9, windows=4), people(3, classes=("healthy",), seed=5)
    subjects = first_fold(cohort, "bridgemil")
    alone = quantities(cohort, subjects, "bridgemil", tmp_path / "alone", backbone)
    found = []
    for name, data in (("honest", cohort), ("noisy", with_noise(cohort, subjects.test))):
        bags = [one.windows(who) for one in (data, further) for who in one.subjects]
        sizes = [one.records[who].recording_windows for one in (data, further) for who in one.subjects]
        parts = [np.split(bag, np.cumsum(size)[:-1]) for bag, size in zip(bags, sizes, strict=True)]
        other = Cohort.from_arrays(parts, ["x"] * 12, sfreq=cohort.sfreq, channels=cohort.channels)
        found.append(quantities(data, subjects, "bridgemil", tmp_path / name, backbone, other=other))
    assert not differing(*found)
    assert "curve" in differing(alone, found[0]), "it is learned from the three"


def test_a_planted_leak_of_test_subjects_through_the_second_cohort_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = people(9, windows=4)
    subjects = first_fold(cohort, "bridgemil")
    monkeypatch.setattr(
        Unlabelled, "beside", classmethod(lambda cls, own, other: cls(other, tuple(other.subjects), ()))
    )
    one, other = (
        quantities(data, subjects, "bridgemil", tmp_path / str(i), other=data)
        for i, data in enumerate((cohort, with_noise(cohort, subjects.test)))
    )
    assert any(name.startswith("stage 1 ") for name in differing(one, other))


def test_a_round_that_overlaps_is_refused() -> None:
    cohort = people()
    s = cohort.subjects
    with pytest.raises(BadData, match=r"train and test both: subject-001"):
        Run(cohort, Fold(0, tuple(s[:6]), tuple(s[6:9]), (*s[9:], s[0])), methods.settings("attention"), 0)
