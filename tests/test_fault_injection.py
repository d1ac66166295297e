"""Every writer of this package, killed at each of its steps, on a full disk, and without permission.

Afterwards each file (or folder that is one thing) is what it was or what it was to be, nothing half is taken for a
result, the user reads one sentence that names the file, and the same command goes on. A new writer is a new row of
``WRITERS``; what writes past ``bridgemil.storage.files`` is found below.
"""

from __future__ import annotations

import ast
import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bridgemil
from bridgemil.bundle.training import train
from bridgemil.cli.demo import _manifest
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.cohort.prepare import prepare
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData
from bridgemil.report.figures import draw_accuracy
from bridgemil.report.pages.results import demo_page
from bridgemil.report.templating import write
from bridgemil.storage.files import restore
from bridgemil.studies.findings import Findings
from bridgemil.verify import verify
from evaluated import cohort_on_disk
from faults import KILLED, NONE, Command, Ended, Fault, perform
from people import people
from recordings import build_bids

PACKAGE = Path(bridgemil.__file__).parent
QUICK = ("--budget", "demo", "--folds", "3", "--threads", "1", "--no-baselines")
QUICKEST = ("--set", "stage1.epochs=1", "--set", "stage2.epochs=1")


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What writers need: recordings, a cohort, runs of a network and a baseline, and a bundle."""
    for module in ("matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "sklearn",
                   "scipy.signal", "pyarrow.parquet", "jinja2", "mne.filter", "rich.progress"):  # fmt: skip
        importlib.import_module(module)  # once, before a hundred forks would
    root = tmp_path_factory.mktemp("stage")
    build_bids(root / "bids", {f"sub-{i:02d}": "AC"[i % 2] for i in range(1, 7)}, seconds=12)
    prepare(root / "bids", root / "prepared", label="Group", jobs=1, progress=False)
    cohort = cohort_on_disk(root / "cohort", n=8, windows=6)
    how = {"folds": 3, "threads": 1, "progress": False, "baselines": False, "out": root / "runs"}
    evaluate(cohort, "bandpower", **how)
    evaluate(cohort, "bridgemil", "covariance", budget="demo", settings={"stage1.epochs": 1, "stage2.epochs": 1}, **how)
    train(root / "prepared", root / "bundle", "bandpower", folds=3, baselines=False, progress=False)
    return root


# What is on disk afterwards


def visible(place: Path) -> dict[str, bytes]:
    """All files but those that no reader takes for a result: hidden ones, locks, checkpoints of runs."""
    found = {}
    for file in sorted(place.rglob("*")):
        name = file.relative_to(place)
        passing = file.suffix == ".lock" or any(part.startswith(".") or part == "unfinished" for part in name.parts)
        if file.is_file() and not passing:
            found[name.as_posix()] = file.read_bytes()
    return found


ENDS = {".html": b"</html>", ".png": b"IEND\xaeB`\x82", ".svg": b"</svg>", ".csv": b"\n", ".md": b"\n", ".tex": b"\n"}


def old_or_new(place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Every file is what it was, or what it was to be (a page that tells the time, at least to its end)."""
    after = visible(place)
    for name in {*old, *after}:
        content = after.get(name)
        if content not in (old.get(name), new.get(name)):
            ending = ENDS.get(Path(name).suffix)
            assert content is not None, f"{name} is gone"
            assert name in new, f"{name} is something else"
            assert ending is not None, f"{name} is neither what it was nor what it was to be"
            assert content.rstrip().endswith(ending.rstrip()), f"{name} is cut short"
            assert abs(len(content) / len(new[name]) - 1) < 0.02, f"{name} is cut short"


def whole_or_unfinished(place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """A cohort is whole, or said not to be finished."""
    if (place / "out/manifest.json").is_file():
        assert verify(place / "out", progress=False).findings == []
    else:
        with pytest.raises(BadData, match="no cohort there"):
            Cohort.open(place / "out")


def nothing_wrong(place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """What ``verify`` knows is whole, and a thing that was there is still there."""
    for name in {"runs", "model"} & {path.name for path in place.iterdir()}:
        if name == "runs" and not (place / "runs/runs").is_dir():
            continue
        assert verify(place / name, progress=False).findings == []
    assert {path.split("/")[0] for path in old} <= {path.split("/")[0] for path in visible(place)}


def one_version(place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """All files of a folder are of one time, once it was opened."""
    for folder in {name.split("/")[0] for name in new}:
        restore(place / folder)
    assert visible(place) in (old, new)


Judge = Callable[[Path, dict[str, bytes], dict[str, bytes]], None]


@dataclass(frozen=True)
class Writer:
    """Something that writes.

    Parameters
    ----------
    command
        Of the stage and a folder to write to, the arguments of ``bridgemil``, or a function.
    before
        Puts something older there.
    judge
        Raises if what is there afterwards is half of something.
    kills
        At how many steps, spread evenly, it is killed; fewer where computing takes long and writing is little.
    done_again
        Its exit code where there is nothing left to do.
    """

    command: Callable[[Path, Path], Command]
    before: Callable[[Path, Path], object] = lambda stage, place: None
    judge: Judge = old_or_new
    kills: int = 12
    done_again: int = 0


def plain_findings() -> Findings:
    from matplotlib.figure import Figure

    table = pd.DataFrame({"method": ["a", "b"], "accuracy": [50.0, 60.0]})
    figure = Figure()
    figure.subplots().plot([1, 2])
    return Findings("A study", ["It found something."], {"table": table}, {"figure": figure})


def results(stage: Path) -> list[object]:
    return [evaluate(stage / "cohort", "bandpower", folds=3, out=stage / "runs", progress=False, baselines=False)]


def classifier(seed: int) -> bridgemil.BridgeMILClassifier:
    cohort = people(8, windows=4)
    bags = [np.array(cohort.windows(subject)) for subject in cohort.subjects]
    return bridgemil.BridgeMILClassifier("bandpower", seed=seed, sfreq=cohort.sfreq).fit(bags, cohort.labels)


def checkpoint(place: Path, value: float) -> None:
    import torch

    from bridgemil.learning import checkpoint as checkpoints

    checkpoints.write(place / "a.safetensors", {"model": {"w": torch.full((64, 64), value)}}, {"epoch": value})


def copied(*names: str) -> Callable[[Path, Path], object]:
    return lambda stage, place: [shutil.copytree(stage / name, place / Path(name).name) for name in names]


def older(*names: str) -> Callable[[Path, Path], object]:
    """Files of an earlier time, so that new ones must take their place."""
    return lambda stage, place: [(place / name).write_text("older\n") for name in names]


def without_runs(stage: Path, place: Path) -> None:
    copied("runs")(stage, place)
    shutil.rmtree(place / "runs/runs")
    (place / "runs/runs").mkdir()


def recording(stage: Path) -> str:
    return str(stage / "bids/sub-01/eeg/sub-01_task-rest_eeg.edf")


def held_out(stage: Path, place: Path) -> list[str]:
    page = ["--out", f"{place}/page.html", "--csv", f"{place}"]
    return ["explain", f"{stage}/runs", "--subject", "subject-001", "--method", "bridgemil", *page]


WRITERS = {
    "prepare": Writer(
        lambda s, p: ["prepare", f"{s}/bids", f"{p}/out", "--label", "Group", "--jobs", "1"],
        judge=whole_or_unfinished,
        kills=8,
    ),
    "prepare, in place of another cohort": Writer(
        lambda s, p: ["prepare", f"{s}/bids", f"{p}/out", "--label", "Group", "--jobs", "1", "--overwrite"],
        lambda s, p: prepare(s / "bids", p / "out", label="Group", jobs=1, progress=False, window_seconds=0.5),
        whole_or_unfinished,
        kills=8,
    ),
    "a cohort of arrays": Writer(lambda s, p: lambda: people(6).save(p / "out"), judge=whole_or_unfinished),
    "synth": Writer(lambda s, p: ["synth", f"{p}/out", "--subjects", "6", "--seconds", "60", "--jobs", "1"], kills=6),
    "manifest": Writer(lambda s, p: ["manifest", f"{p}/sub-01"], copied("bids/sub-01"), done_again=2),
    "folds": Writer(
        lambda s, p: ["folds", f"{s}/cohort", "--folds", "3", "--out", f"{p}/split.json"],
        lambda s, p: SubjectKFold(3, 1).plan(list("abcdef"), list("xyxyxy")).save(p / "split.json"),
    ),
    "inspect": Writer(
        lambda s, p: ["inspect", f"{s}/cohort", "--picture", f"{p}/cohort.png"], older("cohort.png"), kills=4
    ),
    "audit": Writer(lambda s, p: ["audit", f"{s}/cohort", "--html", f"{p}/audit.html"], older("audit.html")),
    "evaluate: run, encoder, features, checkpoint, split, audit": Writer(
        lambda s, p: ["evaluate", f"{s}/cohort", "--method", "bridgemil", "--backbone", "covariance", *QUICK,
                      *QUICKEST, "--out", f"{p}/runs"],
        judge=nothing_wrong,
    ),
    "train": Writer(
        lambda s, p: ["train", f"{s}/prepared", "--out", f"{p}/model", "--runs", f"{s}/bundle.runs", "--method",
                      "bandpower", *QUICK, "--overwrite"],
        lambda s, p: shutil.copytree(s / "bundle", p / "model"),
        nothing_wrong,
        kills=6,
    ),
    "checkpoint": Writer(lambda s, p: lambda: checkpoint(p, 2.0), lambda s, p: checkpoint(p, 1.0)),
    "estimator": Writer(
        lambda s, p: lambda: classifier(1).save(p / "saved"), lambda s, p: classifier(0).save(p / "saved"), one_version
    ),
    "report": Writer(
        lambda s, p: ["report", f"{s}/runs", "--out", f"{p}", "--html"], older("report.md", "table.csv", "report.html"),
        kills=4,
    ),
    "explain": Writer(held_out, older("page.html", "windows.csv"), kills=3),
    "predict": Writer(
        lambda s, p: ["predict", f"{s}/bundle", recording(s), "--report", f"{p}/page.html", "--csv", f"{p}/said.csv"],
        older("page.html", "said.csv"),
        kills=4,
    ),
    "study": Writer(lambda s, p: lambda: plain_findings().write(p), older("table.csv", "findings.md"), kills=6),
    "demo: manifest": Writer(lambda s, p: lambda: _manifest(p / "all.csv"), older("all.csv")),
    "demo: results": Writer(
        lambda s, p: lambda: draw_accuracy(p / "results.png", results(s)), older("results.png"), kills=4
    ),
    "demo: page": Writer(
        lambda s, p: lambda: write(p / "demo.html", demo_page(Cohort.open(s / "cohort"), results(s))),
        older("demo.html"),
    ),
    "clean": Writer(
        lambda s, p: ["clean", f"{p}/runs", "--methods", "bridgemil"], copied("runs"), nothing_wrong, done_again=2
    ),
    "clean: encoders and features": Writer(
        lambda s, p: ["clean", f"{p}/runs", "--unused"], without_runs, nothing_wrong
    ),
}  # fmt: skip


@dataclass
class Try:
    """A writer, a place where it can be made to fail again and again, and what it does when nothing fails."""

    writer: Writer
    stage: Path
    root: Path
    count: int = 0

    def again(self) -> Path:
        """A place as it was before; names are of one length, so that pages that tell them are too."""
        self.count += 1
        place = self.root / f"{self.count:03d}"
        place.mkdir()
        self.writer.before(self.stage, place)
        return place

    def perform(self, place: Path, fault: Fault = NONE) -> Ended:
        return perform(self.writer.command(self.stage, place), place, fault)


@pytest.fixture(params=WRITERS)
def attempt(request: pytest.FixtureRequest, stage: Path, tmp_path: Path) -> Try:
    return Try(WRITERS[request.param], stage, tmp_path)


def test_whatever_happens_to_a_writer_leaves_old_or_new_and_one_sentence(attempt: Try) -> None:
    place = attempt.again()
    old = visible(place)
    clean = attempt.perform(place)
    new = visible(place)
    assert clean.code == 0, clean.words
    assert clean.steps > 1
    assert new != old
    steps = sorted({round(step) for step in np.linspace(1, clean.steps, attempt.writer.kills)})
    largest = max(map(len, new.values()))
    faults = [Fault("killed", step) for step in steps] + [Fault("denied", step) for step in steps[::3]]
    for fault in (*faults, Fault("full", 0), Fault("full", largest // 2)):
        place = attempt.again()
        ended = attempt.perform(place, fault)
        attempt.writer.judge(place, old, new)
        assert (ended.code == KILLED) == (fault.kind == "killed"), f"{fault}: {ended}"
        if ended.code == 1:
            refused_in_a_sentence(ended, place)
        else:
            assert ended.code in (0, KILLED), f"{fault}: {ended}"
        if ended.code != 0:
            again = attempt.perform(place)
            assert again.code in (0, attempt.writer.done_again), f"{fault}: the same command does not go on: {again}"
        assert set(visible(place)) == set(new), f"{fault}: something is missing, or left over"
        attempt.writer.judge(place, new, new)
        shutil.rmtree(place)


def refused_in_a_sentence(ended: Ended, place: Path) -> None:
    said = ended.words.strip().splitlines()[-1]
    assert "Traceback" not in ended.words, ended.words
    assert said.startswith("bridgemil: "), ended.words
    assert str(place) in said, said
    assert ".part" not in said, said


# Nobody writes past bridgemil.storage.files

WRITING = {
    "write_text", "write_bytes", "to_csv", "to_parquet", "savefig", "save", "savez", "save_file", "tofile", "dump",
    "write_table", "write_image", "write_html", "touch", "open", "export_raw",
}  # fmt: skip
ASIDE = {
    "new_file",
    "new_folder",
    "new_artifact",
    "writing",
    "TemporaryFile",
    "TemporaryDirectory",
    "BytesIO",
    "StringIO",
}
# These are handed a folder that is being filled aside, or save by what is written in one step; one reason each.
HANDED = {
    "evaluation/run.py:_record": "the folder of ``RunStore.writing``",
    "bundle/training.py:train": "``Bundle.save``, itself in one step",
    "bundle/adaptation.py:adapt": "``Bundle.save``, itself in one step",
    "cohort/cleaning.py:_clean": "the folder of ``new_folder`` in ``clean``",
    "cli/folds.py:run": "``FoldPlan.save``, itself in one step",
    "learning/checkpoint.py:write_tensors": "weights as bytes in memory",
}


def called(node: ast.Call) -> str:
    """What is called; ``write_text`` by itself is ``bridgemil.storage.files``'s."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return "" if name == "write_text" and isinstance(node.func, ast.Name) else name


def opens_to_read(node: ast.Call) -> bool:
    modes = [part.value for part in (*node.args, *(word.value for word in node.keywords if word.arg == "mode"))
             if isinstance(part, ast.Constant) and isinstance(part.value, str)]  # fmt: skip
    return called(node) == "open" and not any(set(mode) & set("wxa+") and len(mode) < 5 for mode in modes)


def written_past_the_disk(tree: ast.AST) -> list[tuple[str, int]]:
    """Calls that write, by function and line, whose target is not one that was opened aside in the same function."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        safe = set()
        for node in ast.walk(function):
            pairs = [(item.optional_vars, item.context_expr) for item in getattr(node, "items", ())]
            pairs += [(node.targets[0], node.value)] if isinstance(node, ast.Assign) else []
            made = [
                (target, value) for target, value in pairs if isinstance(value, ast.Call) and called(value) in ASIDE
            ]
            safe |= {target.id for target, _ in made if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or called(node) not in WRITING or opens_to_read(node):
                continue
            if called(node) in ("to_csv", "dump") and not node.args:
                continue  # as text
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if not names & safe:
                found.append((function.name, node.lineno))
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_nothing_is_written_past_the_disk(file: Path) -> None:
    name = file.relative_to(PACKAGE).as_posix()
    if name == "storage/files.py":
        return
    past = [f"line {line}, in {function}" for function, line in written_past_the_disk(ast.parse(file.read_text()))
            if f"{name}:{function}" not in HANDED]  # fmt: skip
    gone = [
        key for key in HANDED if key.startswith(f"{name}:") and f"def {key.partition(':')[2]}(" not in file.read_text()
    ]
    assert not gone, f"no such function any more: {gone}"
    assert not past, f"written past bridgemil.storage.files (new_file, write_text, write_json, new_folder): {past}"


@pytest.mark.parametrize(
    "code",
    [
        "path.write_text('x')",
        "with path.open('w') as stream: pass",
        "with open(path, 'wb') as stream: pass",
        "table.to_csv(path)",
        "figure.savefig(folder / 'x.png')",
        "np.save(path, array)",
        "with new_file(path) as stream: other.to_parquet(path)",
    ],
)
def test_a_writer_that_goes_past_the_disk_is_found(code: str) -> None:
    assert written_past_the_disk(ast.parse(f"def write():\n    {code}"))
    assert not written_past_the_disk(
        ast.parse("def read():\n    path.open('rb'); open(path); table.to_csv(index=False)")
    )
    kept = "def write():\n    with new_file(path) as stream:\n        np.save(stream, array)"
    assert not written_past_the_disk(ast.parse(kept))
