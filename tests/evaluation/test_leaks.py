"""Nothing of a test subject reaches training: not its signal, not its label. And a planted leak is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridgemil import methods
from bridgemil.cohort.folds import Round, SubjectKFold
from bridgemil.cohort.store import Cohort
from bridgemil.errors import BadData
from bridgemil.evaluation.run import Run, device_of
from bridgemil.learning import checkpoint, window_set
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


def quantities(cohort: Cohort, subjects: Round, method: str, folder: Path, backbone: str = "eegnet") -> dict[str, Any]:
    """Everything training decides: weights of both stages, curves, the selected epoch."""
    changes = {key: value for key, value in (EPOCHS | STAGE1).items() if methods.has_setting(method, key)}
    run = Run(cohort, subjects, methods.for_cohort(cohort, method, backbone, "demo", changes), seed=0)
    store = open_store(folder)
    identity = run.perform(store, device_of("cpu"))
    found: dict[str, Any] = dict(checkpoint.read(store.run(identity) / "model.safetensors")[0])
    found["curve"] = store.curves(identity).to_csv()
    found["epoch"] = store.about(identity)["selected_epoch"]
    if run.settings.stage1 is not None:
        file = store.stage1(stage1_identity(run.settings, cohort.hash, subjects, 0)) / "encoder.safetensors"
        found |= {f"stage 1 {name}": value for name, value in checkpoint.read(file)[0].items()}
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    assert list(one) == list(other)
    return [
        name
        for name, value in one.items()
        if not (torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name])
    ]


@pytest.mark.parametrize("method", ["majority_vote", "attention", "supcon", "masked", "bridgemil"])
def test_noise_in_place_of_the_test_subjects_changes_nothing_in_training(method: str, tmp_path: Path) -> None:
    cohort = people()
    subjects = SubjectKFold(3).plan(cohort.subjects, cohort.labels).rounds()[0]
    noisy = with_noise(cohort, subjects.test)
    assert noisy.hash != cohort.hash
    one = quantities(cohort, subjects, method, tmp_path / "one")
    assert not differing(one, quantities(noisy, subjects, method, tmp_path / "other"))


def test_a_planted_leak_in_the_normalisation_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = people()
    subjects = SubjectKFold(3).plan(cohort.subjects, cohort.labels).rounds()[0]
    honest = Cohort.normalisation
    monkeypatch.setattr(Cohort, "normalisation", lambda self, ids: honest(self, self.subjects))
    one = quantities(cohort, subjects, "bridgemil", tmp_path / "one")
    found = differing(one, quantities(with_noise(cohort, subjects.test), subjects, "bridgemil", tmp_path / "other"))
    assert "curve" in found
    assert any(name.startswith("stage 1 ") for name in found)


def test_a_planted_leak_of_test_windows_into_stage_1_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = people()
    subjects = SubjectKFold(3).plan(cohort.subjects, cohort.labels).rounds()[0]
    honest = window_set.WindowSet.load.__func__

    def leaking(cls: type, data: Cohort, ids: tuple[str, ...], *more: Any) -> Any:
        ids = [*ids, *subjects.test] if set(ids) == set(subjects.train) else ids
        return honest(cls, data, ids, *more)

    monkeypatch.setattr(window_set.WindowSet, "load", classmethod(leaking))
    one = quantities(cohort, subjects, "bridgemil", tmp_path / "one")
    found = differing(one, quantities(with_noise(cohort, subjects.test), subjects, "bridgemil", tmp_path / "other"))
    assert any(name.startswith("stage 1 ") for name in found)


def test_a_round_that_overlaps_is_refused() -> None:
    cohort = people()
    s = cohort.subjects
    with pytest.raises(BadData, match=r"train and test both: subject-001"):
        Run(cohort, Round(0, tuple(s[:6]), tuple(s[6:9]), (*s[9:], s[0])), methods.settings("attention"), 0)
