"""Fixtures that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordings import build_bids

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; torch reads this when it is imported
    os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bids(tmp_path: Path) -> Path:
    """Six subjects, two classes."""
    return build_bids(tmp_path / "bids", {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 7)})


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development data beside the project."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the development data (../shared/data) are not beside the project")
    return path
