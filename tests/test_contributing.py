"""The recipes of CONTRIBUTING.md, followed literally on a copy of the package: each adds one file and one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {"Backbone", "Aggregator", "Stage 1 objective", "Baseline", "Method", "Study"}

USE = """
import json, sys
import numpy as np
import bridgemil
from bridgemil import backbones, methods, studies
from bridgemil.cli import options
from bridgemil.engine.execute import Where
from bridgemil.studies.context import StudyContext
from pathlib import Path

rng, out = np.random.default_rng(0), Path(sys.argv[1])
bags = [(1 + i % 2) * 10 * rng.standard_normal((6, 4, 200)) for i in range(12)]
cohort = bridgemil.Cohort.from_arrays(bags, list("ab" * 6), sfreq=200.0, channels=["C3", "C4", "O1", "O2"])
cohort = cohort.save(out / "cohort")
one = {"stage2.epochs": 1, "stage2.burn_in": 0}
first = {"stage1.epochs": 1}

def accuracy(method, backbone="tiny", **settings):
    found = bridgemil.evaluate(
        cohort, method, backbone, budget="demo", recipe="paper", folds=3, jobs=1, baselines=False, progress=False,
        settings=settings, out=out / "runs",
    )
    return float(found.summary["accuracy"].iloc[0])

quick = one | first | {"stage1.subbag_pairs": 4}
context = StudyContext(
    (cohort,), out / "study",
    bridgemil.Protocol(backbone="tiny", recipe="paper", budget="demo", folds=3, settings=quick),
    where=Where("inline", device="cpu"), progress=False,
)
print(json.dumps({
    "Backbone": accuracy("attention", **one, **{"backbone_options.width": 4}),
    "Aggregator": accuracy("attention", **one, **{"stage2.aggregator": "max"}),
    "Stage 1 objective": accuracy("loudness", **one, **first),
    "Baseline": accuracy("amplitude", **{"baseline.power": 2}),
    "Method": accuracy("softmax", **one),
    "Study": studies.study("seeds", context).sentences[0],
    "help": options.METHODS + options.BACKBONES,
    "colours": {name: methods.colour(name) for name in ("loudness", "amplitude", "softmax")},
}))
"""


def recipes() -> dict[str, list[tuple[str, str]]]:
    """By heading: each block of code with the file, and the registry, that its first line names."""
    sections = re.split(r"^### ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.M)[1:]
    block = re.compile(r"^```python\n# (.*?)\n(.*?)^```", re.S | re.M)
    blocks = {section.splitlines()[0]: block.findall(section) for section in sections}
    return {heading: found for heading, found in blocks.items() if found}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a package says to which every recipe was applied."""
    folder = tmp_path_factory.mktemp("contributing")
    ignored = shutil.ignore_patterns("recordings", "bundles", "__pycache__")
    shutil.copytree(ROOT / "src" / "bridgemil", folder / "src" / "bridgemil", ignore=ignored)
    for place, text in (block for blocks in recipes().values() for block in blocks):
        name, _, registry = place.partition(", in ")
        file = folder / name
        if not registry:
            assert not file.exists(), "a recipe writes a new file"
            file.write_text(text)
            continue
        assert len(text.splitlines()) == 1, "one line"
        parts = re.split(rf"^({registry}\b[^\n]*{{\n)", file.read_text(), maxsplit=1, flags=re.M)
        assert len(parts) == 3, place
        file.write_text(parts[0] + parts[1] + text + parts[2])
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE, str(folder)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    content: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return content


def test_every_kind_has_a_recipe() -> None:
    assert set(recipes()) == KINDS


@pytest.mark.parametrize("kind", sorted(KINDS - {"Study"}))
def test_what_a_recipe_adds_can_be_evaluated(kind: str, answers: dict[str, object]) -> None:
    assert 0 <= answers[kind] <= 100


def test_a_study_runs_and_help_texts_and_figures_know_the_new_entries(answers: dict[str, object]) -> None:
    assert re.fullmatch(r"cohort: accuracy [\d.]+ %\.", str(answers["Study"]))
    for name in ("tiny (standard deviation of each channel)", "loudness (prediction of the amplitude"):
        assert name in str(answers["help"])
    assert "amplitude (logistic regression on amplitudes)" in str(answers["help"])
    assert answers["colours"] == {"loudness": "#447799", "amplitude": "#555555", "softmax": "#336699"}
