"""Real recordings, and the paper's data sets at full length. Slow: `make test-real`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bridgemil import Cohort, prepare
from bridgemil.cohort.channels import ADFTD_ORDER
from layouts import fill_ds002778, fill_mumtaz2017

# Run a command from a small process of its own, and say how large its largest process was.
WITH_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, file=sys.stderr)
"""


def test_adftd_300s_in_20_seconds_and_1500_megabytes(shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    command = [
        sys.executable,
        "-m",
        "bridgemil",
        "prepare",
        str(shared / "adftd-300s"),
        str(out),
        "--label",
        "Group",
        "--json",
    ]
    start = time.perf_counter()
    answer = subprocess.run([sys.executable, "-c", WITH_MEMORY, *command], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    facts = json.loads(answer.stdout)
    assert {name: own["subjects"] for name, own in facts["classes"].items()} == {"A": 36, "C": 29, "F": 23}
    assert facts["n_windows"] == 26_369
    assert tuple(Cohort.open(out).channels) == ADFTD_ORDER
    assert seconds < 20
    largest = float(answer.stderr.splitlines()[-1])  # megabytes of one process; there are three
    assert 3 * largest < 1500


def test_mumtaz2017_at_full_length(shared: Path, tmp_path: Path) -> None:
    root = fill_mumtaz2017(shared / "layouts/mumtaz2017-files.tsv", tmp_path / "ds", seconds=None)
    cohort = prepare(root, tmp_path / "c", preset="mumtaz2017")
    assert (len(cohort), len(cohort.channels), cohort.n_windows) == (63, 19, 34_857)


def test_rockhill2021_at_full_length(shared: Path, tmp_path: Path) -> None:
    root = fill_ds002778(shared / "layouts/ds002778", tmp_path / "ds", seconds=None)
    cohort = prepare(root, tmp_path / "c", preset="rockhill2021")
    assert (len(cohort), len(cohort.channels), cohort.n_windows) == (31, 32, 12_095)
