"""Checking everything in a folder of ours against its hashes: a cohort, a folder of runs, or a bundle."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bridgemil.bundle import store as bundles
from bridgemil.bundle.shipped import locate
from bridgemil.cohort import opening
from bridgemil.cohort.folds import Round
from bridgemil.cohort.records import SubjectRecord
from bridgemil.cohort.store import Cohort
from bridgemil.cohort.writing import ABOUT, MARKER, SUBJECTS, TABLE, subject_name
from bridgemil.errors import BadData, BadUse, BridgeMILError, plain
from bridgemil.methods import Settings
from bridgemil.parallel import each
from bridgemil.runs import RESULTS_VERSION, RunStore, run_identity
from bridgemil.runs.files import PARTS, TABLES
from bridgemil.runs.shelf import has_hash, read_encoder, read_features
from bridgemil.stored import StoredFolder

NO_HASHES = "no hashes: made by an earlier version; read, but not checked against what was written"
SUBJECT_FILES = ("windows.npy", "starts.npy", "record.json")


@dataclass(frozen=True)
class Step:
    """Something to check.

    Parameters
    ----------
    name
        What is checked: a file or folder, below the folder that is verified.
    check
        Raises ``BadData`` where it is wrong; returns a remark, or None.
    """

    name: str
    check: Callable[[], str | None]


@dataclass
class Verdict:
    """What was checked, and what is wrong.

    Parameters
    ----------
    kind
        ``cohort``, ``runs`` or ``bundle``.
    path
        The folder.
    checked
        How many things were looked at.
    findings
        Sentences that name what is wrong.
    remarks
        What could not be checked, or does not belong there.
    is_empty
        Whether there was nothing to check: a folder of runs without a finished run, encoder or feature.
    """

    kind: str
    path: Path
    checked: int = 0
    findings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    is_empty: bool = False

    @property
    def remarks_in_short(self) -> list[str]:
        """Remarks that say the same of several things in one part of the folder, as one."""
        alike: dict[tuple[str, str], list[str]] = {}
        for remark in self.remarks:
            name, _, words = remark.partition(": ")
            alike.setdefault((name.partition("/")[0], words), []).append(name)
        return [
            f"{names[0] if len(names) == 1 else f'{part} ({len(names)})'}: {words}"
            for (part, words), names in alike.items()
        ]

    def for_json(self) -> dict[str, Any]:
        """For machines."""
        whole = not self.findings and not self.is_empty
        counts = {"kind": self.kind, "path": shown(str(self.path)), "checked": self.checked, "whole": whole}
        return counts | {"empty": self.is_empty, "findings": self.findings, "remarks": self.remarks}


def shown(name: str) -> str:
    """A file's name as it is printed: on one line, and without what a terminal would obey."""
    return plain(name).replace("\n", "\\n").replace("\t", "\\t")


def verify(path: str | Path, *, progress: bool = True) -> Verdict:
    """Check every file of a cohort, a folder of runs or a bundle.

    Parameters
    ----------
    path
        The folder (of runs also the folder of a study, whose runs are below it), or the name of a model that comes with
        the package.
    progress
        Draw a progress bar on standard error.
    """
    folder = Path(path) if os.path.lexists(path) else locate(path)
    kind = kind_of(folder)
    if kind == "runs" and _is_study(folder):
        folder = folder / "runs"
    steps = {"cohort": _cohort, "runs": _runs, "bundle": _bundle}[kind](folder)
    verdict = Verdict(kind, folder, is_empty=kind == "runs" and not any(map(_is_made, steps)))
    if verdict.is_empty:
        verdict.remarks.append("runs: no finished run, encoder or feature is there: nothing could be checked")
    order = {step.name: place for place, step in enumerate(steps)}
    said: list[tuple[int, str, bool]] = []
    for step, (words, is_bad) in each(_checked, steps, jobs=1, label="verifying", show=progress):
        verdict.checked += 1
        if words:
            said.append((order[step.name], words if is_bad else f"{shown(step.name)}: {words}", is_bad))
    for _, words, is_bad in sorted(said):
        (verdict.findings if is_bad else verdict.remarks).append(words)
    verdict.findings = list(dict.fromkeys(verdict.findings))
    return verdict


def kind_of(folder: Path) -> str:
    """What a folder is, by the files in it."""
    if any(os.path.lexists(folder / name) for name in (bundles.ABOUT, bundles.REFERENCE)):
        return "bundle"
    if any(os.path.lexists(folder / name) for name in (ABOUT, TABLE, MARKER, SUBJECTS)):
        return "cohort"
    if os.path.lexists(folder / "runs"):
        return "runs"
    raise BadUse(f"{folder}: is no cohort, no folder of runs and no bundle (by the files in it); name one of these")


def _is_study(folder: Path) -> bool:
    """Whether a folder has its runs one deeper, as a study writes them."""
    below = folder / "runs"
    return (below / "runs").is_dir() and not below.is_symlink() and not RunStore(folder).finished()


def _is_made(step: Step) -> bool:
    return step.name.startswith(("runs/", "stage1/", "features/"))


def _checked(step: Step) -> tuple[str, bool]:
    try:
        return step.check() or "", False
    except BridgeMILError as error:
        return str(error), True


def _entries(root: Path, below: str = "", left_out: Collection[str] = ()) -> Iterator[str]:
    """All that is in a folder but folders, by name; links are not followed, folders ``left_out`` not looked into."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_passing(below):
            return
        raise BadData(f"{root / below}: cannot be read ({error.strerror})") from None
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from () if name in left_out else _entries(root, name, left_out)
        else:
            yield name


def _is_passing(name: str) -> bool:
    """Whether something is hidden or being written: whoever works in the folder may take it away at any time."""
    return any(part.startswith(".") or part.endswith(".part") for part in name.split("/"))


def _strangers(root: Path, known: Callable[[str], bool], advice: str, left_out: Collection[str] = ()) -> list[Step]:
    """Entries that are no regular files, and those that do not belong there."""
    folder = StoredFolder(root, advice)

    def stranger(name: str) -> str | None:
        if _is_passing(name) and not folder.has(name):
            return None
        status = folder.file(name)
        is_hidden = name.rpartition("/")[2].startswith(".")
        return None if is_hidden or known(name) or not stat.S_ISREG(status.st_mode) else "does not belong there"

    return [Step(name, partial(stranger, name)) for name in _entries(root, left_out=left_out)]


# Cohorts


def _cohort(path: Path) -> list[Step]:
    try:
        cohort = Cohort.open(path)
    except BadData as error:
        words = str(error)
        return [Step(ABOUT, partial(_raise, words)), *_strangers(path, lambda name: True, opening.ADVICE)]
    known = {f"{SUBJECTS}/{subject_name(subject)}/{name}" for subject in cohort.subjects for name in SUBJECT_FILES}
    sealed = cohort.about.get("contents") is not None
    steps = [Step(ABOUT, lambda: None if sealed else NO_HASHES.replace("read, but not", "only labels and signals"))]
    for subject in cohort.subjects:
        place = f"{SUBJECTS}/{subject_name(subject)}"
        steps.append(Step(f"{place}/windows.npy", partial(_quiet, cohort.windows, subject)))
        steps.append(Step(f"{place}/starts.npy", partial(_quiet, cohort.window_starts, subject)))
        steps.append(Step(f"{place}/record.json", partial(_record, cohort, subject)))
    return steps + _strangers(path, lambda name: name in known | {ABOUT, TABLE, "inspect.png"}, opening.ADVICE)


def _record(cohort: Cohort, subject: str) -> None:
    """A subject's record.json must say what subjects.parquet does."""
    assert cohort.path is not None
    if SubjectRecord.from_row(opening.read_record(cohort.path, subject)) != cohort.records[subject]:
        name = f"{SUBJECTS}/{subject_name(subject)}/record.json"
        raise opening.stored(cohort.path).bad(name, "says something else than subjects.parquet")


# Runs


def _runs(path: Path) -> list[Step]:
    store = RunStore(path)
    folder = StoredFolder(path, "put the folder itself there")
    links = [part for part in PARTS if (path / part).is_symlink()]
    if links:
        return [Step(part, partial(_quiet, folder.file, part)) for part in links]
    steps: list[Step] = []
    for identity in sorted(store.finished()):
        steps.append(Step(f"runs/{identity}", partial(_run, store, identity)))
    for part, read in (("splits", store.split), ("ensembles", store.ensemble), ("audits", store.audit)):
        for name in store.names(part):
            steps.append(Step(f"{part}/{name}", partial(_quiet, read, name)))
    if store.names("failed"):
        steps.append(Step("failed", partial(_quiet, store.failures)))
    for name in store.names("stage1", ""):
        file = path / "stage1" / name / "encoder.safetensors"
        steps.append(Step(f"stage1/{name}/{file.name}", partial(_encoder, file)))
    for key in store.names("features", ""):
        for name in store.names(f"features/{key}", ".npy"):
            steps.append(Step(f"features/{key}/{name}", partial(_features, path, f"features/{key}/{name}")))
    # What is unfinished changes while a benchmark runs, and no result is read from it.
    return steps + _strangers(path, lambda name: True, "delete it and run again", ("report", "unfinished"))


def _run(store: RunStore, identity: str) -> str | None:
    """A run's files against their hashes, and what they say against each other."""
    about, folder = store.about(identity), StoredFolder(store.run(identity), "delete it and run again")
    hashes = store.hashes(identity)
    predictions = store.predictions(identity)
    store.curves(identity)
    store.windows(identity)
    store.check_model(identity)
    present = {name for name in _entries(store.run(identity)) if not name.rpartition("/")[2].startswith(".")}
    if hashes is not None and present != {*hashes, "run.json"}:
        name = sorted(present ^ {*hashes, "run.json"})[0]
        raise folder.bad(name, "is missing" if name in hashes else "is not a part of this run")
    if sorted(predictions["subject"]) != sorted(about["test"]):
        raise folder.bad(TABLES[0], "is of other people than run.json says")
    if abs(float((predictions["label"] == predictions["predicted"]).mean()) - about["accuracy"]) > 1e-9:
        raise folder.bad(TABLES[0], "gives another accuracy than run.json states")
    if about["results_version"] != RESULTS_VERSION:
        return f"made by results version {about['results_version']}; this is {RESULTS_VERSION}"
    kept = {subject: tuple(rows) for subject, rows in about.get("kept", {}).items()}
    train, validation, test = (tuple(about[part]) for part in ("train", "validation", "test"))
    who = Round(about["fold"], train, validation, test, kept)
    settings = Settings.model_validate(about["settings"])
    if run_identity(settings, about["cohort"]["hash"], who, about["seed"]) != identity:
        raise folder.bad("run.json", "settings, cohort, people or seed are not those that the run is named by")
    return NO_HASHES if hashes is None else None


def _encoder(file: Path) -> str | None:
    _, about = read_encoder(file)
    return None if "identity" in about else NO_HASHES


def _features(root: Path, name: str) -> str | None:
    if not has_hash(root / name):
        return "no hash: made by an earlier version; computed anew when needed"
    read_features(root, name)
    return None


# Bundles


def _bundle(path: Path) -> list[Step]:
    def whole() -> None:
        about = bundles.read_about(path)
        bundles.check_files(path, about["files"])
        try:
            settings = Settings.model_validate(about["settings"])
        except (KeyError, ValueError):
            words = "holds settings that this version does not know; use the version that wrote it"
            raise BadData(f"{path / bundles.ABOUT}: {words}") from None
        if not any(member.code for member in settings.each):  # the user's own code is not run to look at a folder
            bundles.load(path)

    return [Step(bundles.ABOUT, whole), *_strangers(path, lambda name: True, bundles.ADVICE)]


def _quiet(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def _raise(words: str) -> None:
    raise BadData(words)
