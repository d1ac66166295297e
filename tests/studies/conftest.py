"""What the tests of studies share."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgemil.cohort.cohort import Cohort
from people import people


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """Nine people on disk."""
    return people(9, n_channels=4, windows=3, effect=0.5).save(tmp_path_factory.mktemp("studies") / "nine.cohort")


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose runs several studies use."""
    return tmp_path_factory.mktemp("studied")
