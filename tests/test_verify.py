"""Folders of ours that were damaged, edited or set as a trap: always a sentence that names the file, never used."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bridgemil import bundle as bundles
from bridgemil.bundle.training import train
from bridgemil.cli import app
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.engine.clean import clean, leftovers
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.estimator import BridgeMILClassifier
from bridgemil.report.benchmark import build
from bridgemil.runs import RunStore, open_store
from bridgemil.storage.files import lock, new_folder
from bridgemil.verify import verify
from evaluated import cohort_on_disk
from leaky import resealed
from named_pipes import make_pipe

FOLDERS = ("cohort", "runs", "bundle")
QUICKEST = {"stage1.epochs": 1, "stage2.epochs": 2}


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort, runs of an ensemble of a network and a baseline, and a bundle."""
    root = tmp_path_factory.mktemp("whole")
    cohort = cohort_on_disk(root / "cohort", n=8, windows=6)
    evaluate(
        cohort, "tangent+bridgemil", "covariance", budget="demo", folds=3, out=root / "runs", threads=1,
        progress=False, baselines=False, settings=QUICKEST,
    )  # fmt: skip
    train(cohort, root / "bundle", "bandpower", folds=3, baselines=False, progress=False)
    return root


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """The three folders, to be damaged."""
    for name in FOLDERS:
        shutil.copytree(whole / name, tmp_path / name)
    return tmp_path


def flipped(at: float) -> Callable[[Path], object]:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        place = min(int(at * len(content)), len(content) - 1)
        content[place] ^= 1
        file.write_bytes(content)

    return flip


def in_place(make: Callable[[Path, Path], object]) -> Callable[[Path], object]:
    """Something else where the file was; the file itself goes out of the folder."""

    def replace(file: Path) -> None:
        outside = next(folder for folder in reversed(file.parents) if folder.name.startswith("test_")) / "elsewhere"
        outside.mkdir(exist_ok=True)
        target = outside / file.name
        shutil.move(file, target)
        make(file, target)

    return replace


DAMAGE: dict[str, Callable[[Path], object]] = {
    **{f"a byte flipped at {at}": flipped(at) for at in (0, 0.3, 0.6, 0.9, 1)},
    "cut in half": lambda file: os.truncate(file, file.stat().st_size // 2),
    "a byte short": lambda file: os.truncate(file, file.stat().st_size - 1),
    "a byte long": lambda file: file.write_bytes(file.read_bytes() + b"\x01"),
    "empty": lambda file: file.write_bytes(b""),
    "no text": lambda file: file.write_bytes(b"\xff\xfe{}"),
    "nested deep": lambda file: file.write_bytes(b'{"a":' + b"[" * 100_000),
    "other JSON": lambda file: file.write_bytes(b'{"format": 1, "kind": [], "results_version": {}}'),
    "a pipe": in_place(lambda file, _: make_pipe(file)),
    "a folder": in_place(lambda file, _: file.mkdir()),
    "a link out": in_place(lambda file, outside: file.symlink_to(outside)),
    "a link to itself": in_place(lambda file, _: file.symlink_to(file.name)),
    "gone": in_place(lambda file, outside: None),
}


def kinds_of_files(folder: Path) -> dict[str, Path]:
    """One file of each kind that there is, so that kinds added later are tested too."""
    kinds = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not name.startswith((".", "unfinished/")) and "/." not in name:
            pattern = re.sub(r"[0-9a-f]{12,}(-[0-9a-f]+)?|subject-\d+|fold-\d+", "*", name)
            is_network = (file.parent / "curves.parquet").exists()
            kinds[f"{pattern}{' of a network' if is_network else ''}"] = file.relative_to(folder)
    return kinds


def put_back(file: Path, content: bytes) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    file.write_bytes(content)


@pytest.mark.parametrize("name", FOLDERS)
def test_whatever_is_done_to_any_file_is_found_and_named(copy: Path, name: str) -> None:
    folder = copy / name
    assert verify(folder, progress=False).findings == []
    kinds = kinds_of_files(folder)
    assert len(kinds) >= {"cohort": 7, "runs": 20, "bundle": 6}[name]
    for kind, place in kinds.items():
        file, content = folder / place, (folder / place).read_bytes()
        for what, spoil in DAMAGE.items():
            spoil(file)
            findings = verify(folder, progress=False).findings
            assert any(file.name in line for line in findings), f"{kind}: {what}: {findings}"
            assert not [line for line in findings if "Traceback" in line or "Error(" in line]
            put_back(file, content)
    again = verify(folder, progress=False)
    assert (again.findings, again.remarks) == ([], [])


def used(folder: Path) -> None:
    """What the package does with a folder."""
    if folder.name == "cohort":
        cohort = Cohort.open(folder)
        for subject in cohort.subjects:
            cohort.windows(subject)
            cohort.window_starts(subject)
    elif folder.name == "bundle":
        bundles.load(folder)
    else:
        store = RunStore(folder)
        for cell in build(store).cells:
            assert len(cell.results.windows) > 0 or cell.method == "tangent"
        for identity in store.finished():
            store.model(identity)
        for name in store.names("audits"):
            store.record("audits", name)
        store.splits()


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("what", ["a byte flipped at 0.6", "cut in half", "a pipe", "a link out"])
def test_what_is_damaged_is_never_used(copy: Path, name: str, what: str) -> None:
    folder = copy / name
    used(folder)
    for place in kinds_of_files(folder).values():
        if place.parts[0] in ("stage1", "features") or (name == "cohort" and place.name == "record.json"):
            continue  # read when a cohort is prepared or a run made: tested below
        file, content = folder / place, (folder / place).read_bytes()
        DAMAGE[what](file)
        with pytest.raises(BadData, match=re.escape(file.name)):
            used(folder)
        put_back(file, content)
    used(folder)


@pytest.mark.parametrize("what", ["a byte flipped at 0.9", "cut in half", "a pipe", "a link out"])
def test_damaged_encoders_and_features_train_nothing(copy: Path, what: str) -> None:
    folder = copy / "runs"
    cohort = Cohort.open(copy / "cohort")
    shutil.rmtree(folder / "runs")
    for part in ("stage1", "features"):
        files = sorted(file for file in (folder / part).rglob("*") if file.is_file())
        contents = {file: file.read_bytes() for file in files}
        for file in files:
            DAMAGE[what](file)
        with pytest.raises(BadData, match=r"manifest\.json"):
            evaluate(
                cohort, "bridgemil", "covariance", budget="demo", folds=3, out=folder, threads=1, progress=False,
                baselines=False, settings=QUICKEST,
            )  # fmt: skip
        for file, content in contents.items():
            put_back(file, content)


# Edits that leave a file well formed


def edit_table(file: Path, column: str, value: object) -> None:
    table = pd.read_parquet(file)
    table.loc[0, column] = value
    table.to_parquet(file)


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def a_run(folder: Path, method: str) -> Path:
    store = RunStore(folder / "runs")
    return next(
        store.run_folder(i) for i in sorted(store.finished()) if store.metadata(i)["settings"]["method"] == method
    )


EDITS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a label": ("subjects.parquet", lambda c: edit_table(c / "cohort/subjects.parquet", "label", "patient")),
    "a column": ("subjects.parquet", lambda c: edit_table(c / "cohort/subjects.parquet", "age", 44)),
    "the rate": ("cohort.json", lambda c: edit_json(c / "cohort/cohort.json", sfreq=100.0)),
    "a probability": (
        "predictions.parquet",
        lambda c: edit_table(a_run(c, "tangent") / "predictions.parquet", "p_control", 0.5),
    ),
    "a gate": ("windows.parquet", lambda c: edit_table(a_run(c, "bridgemil") / "windows.parquet", "gate", 0.5)),
    "the seed": ("run.json", lambda c: edit_json(a_run(c, "tangent") / "run.json", seed=7)),
    "another run's folder": (
        "is the folder of another run",
        lambda c: [shutil.copytree(a_run(c, "tangent"), a_run(c, "bridgemil"), dirs_exist_ok=True)],
    ),
    "the classes": ("model.json", lambda c: edit_json(a_run(c, "tangent") / "model.json", classes=["a", "b"])),
    "another run's weights": (
        "model.safetensors",
        lambda c: shutil.copy(
            sorted((c / "runs/runs").rglob("model.safetensors"))[0],
            sorted((c / "runs/runs").rglob("model.safetensors"))[-1],
        ),
    ),
    "another person's features": (
        "features.npy",
        lambda c: shutil.copy(*sorted((c / "runs/features").rglob("*.npy"))[:2]),
    ),
    "another encoder": (
        "encoder.safetensors",
        lambda c: shutil.copy(*sorted((c / "runs/stage1").rglob("*.safetensors"))[:2]),
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_found_and_named(copy: Path, what: str) -> None:
    name, change = EDITS[what]
    change(copy)
    findings = [line for folder in FOLDERS for line in verify(copy / folder, progress=False).findings]
    assert len(findings) == 1
    assert name in findings[0]


def test_stored_features_are_used_without_reading_the_signal(copy: Path) -> None:
    """A baseline's features of all people stand there: a run with another seed needs no windows."""
    folder = copy / "runs"
    shutil.rmtree(folder / "runs")
    cohort = Cohort.open(copy / "cohort")
    for file in (copy / "cohort").rglob("windows.npy"):
        file.unlink()
    done = evaluate(cohort, "tangent", folds=3, out=folder, threads=1, progress=False, baselines=False)
    assert len(done.predictions) == 8


# Nothing outside is written or removed


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Somebody's folder, which must be the same afterwards."""
    folder = tmp_path / "outside"
    for name in ("sub-99/record.json", "sub-99/windows.npy", "x.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("all there is")
    yield folder
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    assert files == ["sub-99/record.json", "sub-99/windows.npy", "x.txt"]
    assert {(folder / name).read_text() for name in files} == {"all there is"}


@pytest.mark.parametrize(
    "name", ["subjects", "subjects/sub-01", ".bridgemil-cohort", ".lock", "cohort.json", "manifest.json"]
)
def test_prepare_writes_and_removes_nothing_through_a_link(
    bids: Path, tmp_path: Path, outside: Path, name: str
) -> None:
    out = tmp_path / "c"
    (out / name).parent.mkdir(parents=True)
    (out / ".bridgemil-cohort").touch()
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(outside if name.startswith("subjects") else outside / "x.txt")
    with pytest.raises(BridgeMILError, match="is a link, and nothing is written or removed through links"):
        prepare(bids, out, label="Group", jobs=1, progress=False)


@pytest.mark.parametrize("part", ["runs", "stage1", "features", "splits", "ensembles", "unfinished", "failed"])
def test_runs_write_and_remove_nothing_through_a_link(whole: Path, tmp_path: Path, outside: Path, part: str) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    (root / part).symlink_to(outside)
    with pytest.raises(BadData, match=f"{part}: is a link"):
        open_store(root)
    if part != "runs":
        (root / "runs").mkdir()
    with pytest.raises(BadData, match=f"{part}: is a link"):
        leftovers(RunStore(root), failed=True, unfinished=True, unused=True)
    assert [part in line for line in verify(root, progress=False).findings] == [True]


@pytest.mark.parametrize("name", ["unfinished/aa.safetensors", "runs/.aa.77-00.part", ".locks/aa.lock", "stage1/aa"])
def test_clean_removes_nothing_through_a_link(tmp_path: Path, outside: Path, name: str) -> None:
    store = open_store(tmp_path / "runs")
    (store.root / name).parent.mkdir(exist_ok=True)
    (store.root / name).symlink_to(outside / "x.txt" if name.endswith(".lock") else outside)
    with pytest.raises(BadData, match="is a link"):
        clean(store, leftovers(store, unused=True))


def test_a_folder_or_lock_is_not_put_in_the_place_of_a_link(tmp_path: Path, outside: Path, whole: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "file").symlink_to(outside / "x.txt")
    with pytest.raises(BadData, match="link: is a link"), new_folder(tmp_path / "link"):
        pass
    with pytest.raises(BadData, match="file: is a link"), lock(tmp_path / "file"):
        pass
    with pytest.raises(BridgeMILError, match="link: is a link"):
        bundles.load(whole / "bundle").save(tmp_path / "link", overwrite=True)


# What is damaged can be made again


def test_preparing_again_mends_a_cohort(bids: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    before = prepare(bids, out, label="Group", jobs=1, progress=False).hash
    for name, spoil in (
        ("subjects/sub-01/windows.npy", flipped(0.9)),
        ("subjects/sub-02/starts.npy", flipped(0.9)),
        ("subjects/sub-03/record.json", DAMAGE["cut in half"]),
        ("subjects/sub-04/windows.npy", in_place(lambda file, _: make_pipe(file))),
        ("subjects.parquet", flipped(0.5)),
        ("cohort.json", flipped(0.5)),
    ):
        spoil(out / name)
        assert verify(out, progress=False).findings
        if name.endswith("record.json"):
            (out / "manifest.json").unlink()  # interrupted: only then are these read
        assert prepare(bids, out, label="Group", jobs=1, progress=False).hash == before
        assert verify(out, progress=False).findings == []


def test_a_cohort_that_says_nothing_of_itself_is_not_replaced_by_another(bids: Path, tmp_path: Path) -> None:
    out, also = tmp_path / "c", tmp_path / "bids2"
    shutil.copytree(bids, also)
    before = prepare(bids, out, label="Group", jobs=1, progress=False, window_seconds=1.0)
    about = (out / "cohort.json").read_text()
    for damaged in (about[:100], about.replace("recipe", "recipes")):
        (out / "cohort.json").write_text(damaged)
        with pytest.raises(BadUse, match=r"made from other files or settings.*--overwrite"):
            prepare(also, out, label="Group", jobs=1, progress=False, window_seconds=0.5)
        assert (out / "cohort.json").read_text() == damaged
        assert prepare(bids, out, label="Group", jobs=1, progress=False, window_seconds=1.0).hash == before.hash
    (out / "cohort.json").write_text(about[:100])
    again = prepare(also, out, label="Group", jobs=1, progress=False, window_seconds=0.5, overwrite=True)
    assert again.hash != before.hash


# The command


def test_the_command_names_findings_and_ends_with_one(copy: Path) -> None:
    runner = CliRunner()
    said = runner.invoke(app, ["verify", str(copy / "cohort")])
    assert said.exit_code == 0
    assert "nothing wrong" in said.stdout
    flipped(0.5)(copy / "cohort/subjects/subject-003/windows.npy")
    said = runner.invoke(app, ["verify", str(copy / "cohort")])
    assert said.exit_code == 1
    assert "WRONG" in said.stdout
    assert "subject-003/windows.npy: was changed since it was written" in said.stdout
    told = runner.invoke(app, ["verify", str(copy / "cohort"), "--json"])
    content = json.loads(told.stdout)
    assert (told.exit_code, content["kind"], content["whole"], len(content["findings"])) == (1, "cohort", False, 1)
    assert json.loads(runner.invoke(app, ["verify", "alzheimer", "--json"]).stdout)["whole"] is True
    assert "bundle, 1 artifact, nothing wrong" in runner.invoke(app, ["verify", "alzheimer"]).stdout
    bags = [np.random.default_rng(i).normal(0, 20, (4, 19, 200)).astype("float32") for i in range(12)]
    BridgeMILClassifier("tangent", sfreq=200.0).fit(bags, ["a", "b"] * 6).save(copy / "saved")
    assert (verify(copy / "saved").kind, verify(copy / "saved").findings) == ("classifier", [])
    flipped(0.5)(copy / "saved/estimator.json")
    assert verify(copy / "saved").findings
    (copy / "nothing").mkdir()
    with pytest.raises(BadUse, match="is not a cohort, a folder of runs or a bundle"):
        verify(copy / "nothing")


def test_the_runs_of_a_study_are_verified_and_an_empty_folder_is_said_to_be_empty(copy: Path) -> None:
    runner = CliRunner()
    (copy / "study").mkdir()
    (copy / "runs").rename(copy / "study/runs")
    assert verify(copy / "study", progress=False).checked > 10
    flipped(0.5)(next((copy / "study/runs/runs").rglob("predictions.parquet")))
    assert len(verify(copy / "study", progress=False).findings) == 1
    (copy / "empty/runs").mkdir(parents=True)
    said = runner.invoke(app, ["verify", str(copy / "empty")])
    assert said.exit_code == 0
    assert "no finished run, encoder or feature is there" in said.stdout
    assert "nothing wrong" not in said.stdout
    assert json.loads(runner.invoke(app, ["verify", str(copy / "empty"), "--json"]).stdout)["whole"] is False


def test_names_that_a_terminal_would_obey_are_shown_as_codes(copy: Path) -> None:
    for name in (b"\xff.txt", b"\x1b[2J.txt", b"a\nWRONG  b.txt"):
        Path(os.fsdecode(bytes(copy / "cohort") + b"/" + name)).touch()
    for options in ([], ["--json"]):
        said = CliRunner().invoke(app, ["verify", str(copy / "cohort"), *options])
        assert said.exit_code == 0
        assert "\x1b" not in said.stdout
        assert not [line for line in said.stdout.splitlines() if line.startswith("WRONG")]
    remarks = verify(copy / "cohort", progress=False).remarks
    assert {"\\udcff.txt: does not belong there", "\\x1b[2J.txt: does not belong there"} <= set(remarks)


def test_what_a_running_benchmark_writes_is_no_finding(copy: Path) -> None:
    (copy / "runs/features/.x.1-aa.part").mkdir()
    (copy / "runs/unfinished").mkdir(exist_ok=True)
    make_pipe(copy / "runs/unfinished/aa.safetensors")
    assert verify(copy / "runs", progress=False).findings == []


def test_a_bundle_with_settings_of_another_version_is_a_finding(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(whole / "bundle", folder)
    about = json.loads((folder / "bundle.json").read_text())
    about["settings"]["an_option_to_come"] = 1
    (folder / "bundle.json").write_text(json.dumps(about))
    resealed(folder, "bundle")
    (finding,) = verify(folder, progress=False).findings
    assert finding.endswith("bundle.json: has settings that this version does not know; use the version that wrote it")
