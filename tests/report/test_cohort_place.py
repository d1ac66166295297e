"""Where a run's cohort is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgemil.report.held_out import cohort_place


def test_a_cohort_is_found_as_recorded_or_beside_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort, elsewhere = tmp_path / "lab" / "my.cohort", tmp_path / "elsewhere"
    for folder in (cohort, elsewhere, tmp_path / "lab" / "runs"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    runs = tmp_path / "lab" / "runs"
    assert cohort_place(str(cohort), runs) == cohort
    assert cohort_place("my.cohort", runs) == cohort, "relative to where the command ran then"
    assert cohort_place("/gone/my.cohort", runs) == cohort, "moved together with the runs"
    assert cohort_place("my.cohort", runs.parent / "studies" / "runs") == cohort, "the runs of a study"
    assert cohort_place("other.cohort", runs) is None
    assert cohort_place("", runs) is None
