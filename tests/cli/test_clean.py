"""``bridgemil clean``: what was named goes, what a living process works on stays, and nothing else is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import collect
from bridgemil.engine.clean import clean, leftovers, size
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.runs import RunStore, open_store
from command import bridgemil
from people import people

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}


def run(cohort: Cohort, method: str, out: Path, backbone: str = "eegnet", **more: object) -> None:
    settings = {key: value for key, value in QUICK.items() if methods.has_setting(method, key)}
    how = {"budget": "demo", "folds": 3, "progress": False, "baselines": False} | more
    evaluate(cohort, method, backbone, out=out, settings=settings, **how)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return open_store(tmp_path / "runs")


def contents(store: RunStore) -> set[str]:
    return {
        str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.suffix != ".lock" and path.is_file()
    }


HOLD = """
import sys, time
from pathlib import Path
from bridgemil.runs import open_store
with open_store(sys.argv[1]).lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(store: RunStore) -> Iterator[subprocess.Popen[str]]:
    """A living process that holds the lock of the run ``aaaa``."""
    words = [sys.executable, "-c", HOLD, str(store.root), "aaaa"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()


def test_runs_leave_nothing_unfinished(store: RunStore) -> None:
    run(people(6, windows=2), "bridgemil", store.root, baselines=True)
    assert list((store.root / "unfinished").iterdir()) == []
    before = contents(store)
    assert leftovers(store, failed=True, unfinished=True) == {}
    clean(store, leftovers(store, failed=True, unfinished=True))
    assert contents(store) == before


def test_what_somebody_has_begun_since_it_was_looked_at_stays(store: RunStore) -> None:
    for name in ("aaaa", "bbbb"):
        store.checkpoint(name).write_bytes(b"")
    going = leftovers(store, unfinished=True)
    with store.lock("aaaa"):
        clean(store, going)
        assert [file.name for file in sorted((store.root / "unfinished").iterdir())] == ["aaaa.safetensors"]
    clean(store, leftovers(store, unfinished=True))
    assert list((store.root / "unfinished").iterdir()) == []


def test_chosen_runs_go_and_a_run_must_fit_all_that_is_given(store: RunStore) -> None:
    cohort = people(6, windows=2)
    for method, backbone in (("attention", "eegnet"), ("attention", "mtdnet"), ("millet", "eegnet"), ("bandpower", "")):
        run(cohort, method, store.root, backbone or "eegnet")
    assert len(store.finished()) == 12
    only = leftovers(store, ["attention", "bandpower"], ["eegnet"])
    assert {kind: len(paths) for kind, paths in only.items()} == {"runs": 3}
    clean(store, only)
    runs = collect(store)
    kinds = set(zip(runs["method"], runs["backbone"].fillna(""), strict=True))
    assert kinds == {("attention", "mtdnet"), ("bandpower", ""), ("millet", "eegnet")}
    clean(store, leftovers(store, ["bandpower"]))
    assert len(store.finished()) == 6
    clean(store, leftovers(store, budgets=["demo"]))
    assert not store.finished()
    assert leftovers(store, ["attention"]) == {}, "an empty folder has nothing to choose from"


def test_a_name_that_no_run_has_is_refused(store: RunStore) -> None:
    run(people(6, windows=2), "attention", store.root)
    with pytest.raises(BadUse, match=r"method must be one of attention \(what .* has\); got 'atention'; did you mean"):
        leftovers(store, ["atention"])
    with pytest.raises(BadUse, match="backbone must be one of eegnet"):
        leftovers(store, backbones=["mtdnet"])
    assert len(store.finished()) == 3


def test_ones_own_network_is_named_by_its_short_name(store: RunStore, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    network = "nn.Sequential(nn.Flatten(), nn.Linear(c * t, 3))"
    file.write_text(f"from torch import nn\n\ndef flat(c, t):\n    return {network}\n")
    run(people(6, windows=2), "attention", store.root, f"{file}:flat")
    assert len(leftovers(store, backbones=["net.py:flat"])["runs"]) == 3
    assert len(leftovers(store, backbones=[f"{file}:flat"])["runs"]) == 3


def test_failed_runs_are_forgotten_with_their_checkpoints(store: RunStore) -> None:
    (store.root / "failed").mkdir()
    (store.root / "failed" / "aaaa.json").write_text("{}")
    for name in ("aaaa", "bbbb"):
        store.checkpoint(name).write_bytes(b"12345")
    assert leftovers(store) == {}
    clean(store, leftovers(store, failed=True))
    assert contents(store) == {"unfinished/bbbb.safetensors"}
    clean(store, leftovers(store, failed=True, unfinished=True))
    assert contents(store) == set()


def test_what_a_killed_process_left_goes_without_being_asked_for(store: RunStore) -> None:
    half = store.root / "runs" / ".aaaa.77-00.part"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"123")
    store.checkpoint("aaaa").write_bytes(b"12345")
    (store.root / "unfinished" / ".aaaa.safetensors.77.part").write_bytes(b"12")
    going = leftovers(store)
    assert {kind: len(paths) for kind, paths in going.items()} == {"half-written files": 2}
    assert size(going) == 5
    clean(store, going)
    assert contents(store) == {"unfinished/aaaa.safetensors"}, "a run goes on from its checkpoint"


@pytest.mark.usefixtures("holder")
def test_what_a_living_process_works_on_stays(store: RunStore) -> None:
    for name in ("aaaa", "bbbb"):
        (store.root / "runs" / f".{name}.77-00.part").mkdir()
        (store.root / "runs" / f".{name}.77-00.part" / "run.json").touch()
        store.checkpoint(name).touch()
        (store.root / "unfinished" / f".{name}.safetensors.77.part").touch()
    (store.root / "failed").mkdir()
    (store.root / "failed" / "aaaa.json").write_text("{}")  # it failed before, and is tried again now
    clean(store, leftovers(store, failed=True, unfinished=True))
    files = ("runs/.aaaa.77-00.part/run.json", "unfinished/.aaaa.safetensors.77.part", "unfinished/aaaa.safetensors")
    assert contents(store) == set(files)
    with pytest.raises(BridgeMILError, match="another process is working on this folder; wait, or without --unused"):
        leftovers(store, unused=True)


def test_unused_encoders_and_features_go_and_used_ones_stay(store: RunStore) -> None:
    cohort = people(6, windows=2)
    for method in ("bridgemil", "wo_retention", "supcon", "bandpower"):
        run(cohort, method, store.root)
    assert len(list((store.root / "stage1").iterdir())) == 6
    kept = {path.name for path in (store.root / "stage1").iterdir()}
    clean(store, leftovers(store, ["bridgemil"], unused=True))
    assert {path.name for path in (store.root / "stage1").iterdir()} == kept, "wo_retention uses them still"
    assert not (store.root / "features").exists()
    clean(store, leftovers(store, ["wo_retention"], unused=True))
    left = {path.name for path in (store.root / "stage1").iterdir()}
    assert len(left) == 3
    clean(store, leftovers(store, ["supcon"]))
    assert len(list((store.root / "stage1").iterdir())) == 3, "not asked for"
    clean(store, leftovers(store, unused=True))
    assert not list((store.root / "stage1").iterdir())
    run(cohort, "bandpower", store.root)  # nothing is missed


def test_encoders_of_harmonised_runs_stay(store: RunStore) -> None:
    made = people(12, windows=2)
    bags, site = [made.windows(subject) for subject in made.subjects], {"site": list("AABB") * 3}
    cohort = Cohort.from_arrays(bags, made.labels, sfreq=200, channels=made.channels, columns=site, burn_in=0)
    settings = QUICK | {"site_adjust": "people"}
    how = {"budget": "demo", "folds": 3, "progress": False, "baselines": False, "out": store.root}
    evaluate(cohort, "bridgemil", "covariance", settings=settings, **how)
    assert "Stage 1 encoders" not in leftovers(store, unused=True)


def test_the_command_says_what_goes_and_a_dry_run_touches_nothing(store: RunStore, tmp_path: Path) -> None:
    run(people(6, windows=2), "bandpower", store.root)
    store.checkpoint("bbbb").write_bytes(b"1" * 200_000)
    before = contents(store)
    dry = bridgemil("clean", store.root, "--methods", "bandpower", "--unfinished", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "would remove 3 runs" in dry.stdout
    assert "would remove 1 checkpoints" in dry.stdout
    assert contents(store) == before
    told = bridgemil("clean", store.root, "--unfinished", "--dry-run", "--json")
    assert json.loads(told.stdout) == {"removed": {}, "would_remove": {"checkpoints": 1}, "bytes": 200_000}
    done = json.loads(bridgemil("clean", store.root, "--unfinished", "--json").stdout)
    assert done["removed"] == {"checkpoints": 1}
    assert contents(store) == before - {"unfinished/bbbb.safetensors"}
    assert bridgemil("clean", store.root).stdout == "nothing to remove\n"
    assert bridgemil("clean", store.root, "--methods", "magic").returncode == 2
    nothing = bridgemil("clean", tmp_path / "nowhere")
    assert nothing.returncode == 2
    assert "no folder of runs" in nothing.stderr
