"""Every script in benchmarks/ still runs: numbers that the README cites come from scripts that work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py"))
# These make what the package holds, and are not for `make bench`: the demo's recordings, and the model in the box.
CHECKED = {"demo_recordings", "alzheimer_bundle"}


def run(script: str, *more: object) -> str:
    words = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *map(str, more)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# The first is checked against its source, the others by tests of their numbers: test_engine.py, and below.
TESTED = {"demo_recordings", "engine_regimes", "null_simulation"}


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in TESTED])
def test_every_script_runs_quickly(script: str) -> None:
    assert re.search(r"\d", run(script, "--quick")), "it prints no number"


def test_the_demos_recordings_are_those_of_the_source(shared: Path) -> None:
    assert "65 recordings, each sample as in the source" in run("demo_recordings", shared / "adftd-300s", "--check")


def test_make_bench_runs_every_script() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"benchmarks/(\w+)\.py", recipe)) == [name for name in SCRIPTS if name not in CHECKED]


def test_scripts_that_are_cited_are_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"(?<!tests/)benchmarks/(\w+)\.py", page.read_text("utf-8")):
            assert name in SCRIPTS, f"{page.name} cites benchmarks/{name}.py"


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(tmp_path: Path) -> None:
    words = [
        sys.executable,
        str(ROOT / "benchmarks" / "large_cohort.py"),
        "--gigabytes",
        "1e9",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "are needed" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_type_one_error_and_coverage_of_the_quick_simulation() -> None:
    """150 data sets: three standard errors around what 1,000 show (docs/guarantees.md)."""
    tables = run("null_simulation", "--quick").split("\n\n")[1:]
    for table in tables:
        header, _, *rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
        for row in rows:
            for name, value in zip(header[3:], map(float, row[3:]), strict=True):
                if name.startswith(("comparison", "Holm", "better")):
                    assert value <= 8, name
                elif name.startswith(("accuracy", "balanced", "AUROC", "difference")) and "bootstrap" not in name:
                    assert value >= 83, name
