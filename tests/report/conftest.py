"""Folders of runs that the tests of reports and pages share."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgemil.engine.evaluate import evaluate
from bridgemil.runs import RunStore
from evaluated import evaluated
from people import people

QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}
PAPER = {"backbone": "eegnet", "recipe": "paper", "budget": "demo"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cohort and split: two networks with two seeds, an ensemble, and the baselines with one."""
    folder = tmp_path_factory.mktemp("report")
    cohort = people(9, windows=3, classes=("AD", "FTD", "HC"))
    cohort.metadata["source"] = "adftd"  # as the preset would write
    saved = cohort.save(folder / "adftd.cohort")
    how = {"seeds": 2, "folds": 3, "out": folder / "runs", "progress": False, "settings": QUICK, **PAPER}
    evaluate(saved, "attention", **how)
    evaluate(saved, "majority_vote", **how, baselines=False)
    evaluate(saved, "tangent+attention", **how, baselines=False)
    return folder / "runs"


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four splits of one cohort for the baselines, three of them for a network with two seeds; and another k."""
    folder = tmp_path_factory.mktemp("splits")
    saved = people(12, windows=3, effect=0.3).save(folder / "cohort")
    how = {"out": folder / "runs", "progress": False, **PAPER}
    for split_seed in range(4):
        for name in ("bandpower", "tangent"):
            evaluate(saved, name, folds=3, split_seed=split_seed, **how, baselines=False)
    for split_seed in range(3):
        evaluate(saved, "attention", seeds=2, folds=3, split_seed=split_seed, **how, baselines=False, settings=QUICK)
    evaluate(saved, "bandpower", folds=4, **how, baselines=False)
    return folder / "runs"


@pytest.fixture(scope="session")
def explained(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """attention, bridgemil, millet, majority_vote and tangent on twelve people."""
    folder = tmp_path_factory.mktemp("evaluated")
    return evaluated(folder, "attention", "bridgemil", "millet", "majority_vote", "tangent")
