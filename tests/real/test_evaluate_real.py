"""The protocol on the real ADFTD recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.engine.evaluate import evaluate
from bridgemil.evaluation.protocol import Protocol
from bridgemil.evaluation.run import Run
from bridgemil.methods import settings
from bridgemil.parallel import device_of
from bridgemil.runs import open_store


@pytest.fixture(scope="module")
def cohort(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    out = tmp_path_factory.mktemp("adftd") / "cohort"
    return prepare(shared / "adftd-300s", out, label="Group", progress=False)


def test_folds_have_the_sizes_of_the_method(cohort: Cohort) -> None:
    sizes = sorted((len(fold) for fold in Protocol().fold_plan(cohort).folds), reverse=True)
    assert sizes == [10, 10, 10, 9, 9, 9, 8, 8, 8, 7]


def test_band_power_is_better_than_guessing(cohort: Cohort) -> None:
    row = evaluate(cohort, "bandpower", progress=False).summary.iloc[0]
    assert row["n_subjects"] == 88
    assert row["accuracy"] > row["chance95_high"]


def test_a_fold_of_bridgemil_learns_in_both_stages(cohort: Cohort, tmp_path: Path) -> None:
    changes = {"stage1.epochs": 2, "stage2.epochs": 4, "stage2.burn_in": 0, "stage2.freeze_epochs": 1}
    own = settings("bridgemil", budget="laptop", changes=changes)
    store = open_store(tmp_path)
    identity = Run(cohort, Protocol().fold_plan(cohort).cv_folds()[0], own, 0).perform(store, device_of("cpu"))
    curves = store.table(identity, "curves.parquet")
    stage1, stage2 = (curves[curves["phase"] == name]["loss"].tolist() for name in ("Stage 1", "Stage 2"))
    assert stage1[1] < 0.97 * stage1[0]
    assert stage2[-1] < stage2[0]
    assert store.table(identity, "windows.parquet").groupby("subject").size().to_dict() == {
        subject: cohort.records[subject].n_windows for subject in Protocol().fold_plan(cohort).cv_folds()[0].test
    }
