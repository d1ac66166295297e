"""Removing from a folder of runs what is not wanted: chosen runs, leftovers, and what no run uses any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridgemil.engine.benchmark import collect
from bridgemil.engine.execute import only_scheduler
from bridgemil.errors import BridgeMILError, one_of
from bridgemil.methods import short_name
from bridgemil.runs import PARTS, RunStore, fitted_settings, fold_of, stage1_identity
from bridgemil.storage.files import Taken, lock, refuse_link, remove


@dataclass
class Leftovers:
    """What is to go, by kind."""

    parts: dict[str, list[Path]] = field(default_factory=dict)

    def add(self, kind: str, paths: Sequence[Path]) -> None:
        """Note some."""
        if paths:
            self.parts.setdefault(kind, []).extend(paths)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(_size(path) for paths in self.parts.values() for path in paths)

    def remove(self) -> None:
        """Let them go; a link among them is refused before anything goes, and what somebody works on by now stays."""
        going = [path for paths in self.parts.values() for path in paths]
        refuse_link(*going)
        for path in going:
            if path.parent.name != "unfinished":
                remove(path)
                continue
            with suppress(Taken), lock(RunStore(path.parents[1]).lock_file(_identity(path)), wait=False):
                remove(path)


def leftovers(
    store: RunStore,
    methods: Sequence[str] = (),
    backbones: Sequence[str] = (),
    budgets: Sequence[str] = (),
    *,
    failed: bool = False,
    unfinished: bool = False,
    unused: bool = False,
) -> Leftovers:
    """What may go; what a living process works on stays.

    Parameters
    ----------
    store
        The folder of runs.
    methods, backbones, budgets
        Finished runs of these go; a run must fit all that are given.
    failed, unfinished
        The records of failed runs and what was left of them; checkpoints, so that interrupted runs start again.
    unused
        Stage 1 encoders that no run left here was trained from, and all stored features (they are computed again when
        needed).
    """
    refuse_link(*(store.root / part for part in PARTS))
    going = Leftovers()
    aside = store.root / "unfinished"
    entries = sorted(aside.iterdir()) if aside.is_dir() else []
    refuse_link(*entries)
    locks = sorted((store.root / ".locks").glob("*.lock"))
    refuse_link(*locks)
    alive = {file.stem for file in locks if not _free(file)} - {"scheduler"}
    left = [entry for entry in entries if _identity(entry) not in alive]
    going.add("half-written files", [e for e in left if e.suffix == ".folder" or e.name.endswith(".part")])
    going.add("half-removed folders", [entry for part in ("runs", "stage1") for entry in _asides(store.root / part)])
    checkpoints = [entry for entry in left if entry.suffix == ".safetensors"]
    records = sorted((store.root / "failed").glob("*.json")) if failed else []
    going.add("failures", records)
    gone = {record.stem for record in records}
    gone |= {file.stem for file in checkpoints if store.is_done(file.stem) or store.stage1(file.stem).is_dir()}
    going.add("checkpoints", [file for file in checkpoints if unfinished or file.stem in gone])
    chosen = _chosen(store, {"method": methods, "backbone": backbones, "budget": budgets})
    going.add("runs", [store.run(identity) for identity in sorted(chosen)])
    if unused:
        if alive:
            raise BridgeMILError(f"{store.root}: another process is working on this folder; wait, or without --unused")
        needed = {_encoder(store, identity) for identity in store.finished() - chosen}
        folder = store.root / "stage1"
        encoders = sorted(set(folder.iterdir()) - set(_asides(folder))) if folder.is_dir() else []
        going.add("Stage 1 encoders", [path for path in encoders if path.name not in needed])
        going.add("stores of features", [path for path in [store.root / "features"] if path.is_dir()])
    return going


def clean(store: RunStore, going: Leftovers) -> None:
    """Remove them, while no benchmark runs on the folder."""
    with only_scheduler(store):
        going.remove()


def _chosen(store: RunStore, wanted: Mapping[str, Sequence[str]]) -> set[str]:
    """The finished runs that fit everything that is wanted; refuses a name that no run here has."""
    if not any(wanted.values()):
        return set()
    runs = collect(store)
    if runs.empty:
        return set()
    runs["backbone"] = [short_name(name) for name in runs["backbone"].fillna("")]  # net.py:Tiny, wherever it was
    for column, values in wanted.items():
        for value in values:
            one_of(column, short_name(value), sorted(set(runs[column].dropna()) - {""}), f" (what {store.root} has)")
    for column, values in wanted.items():
        runs = runs[runs[column].isin([short_name(value) for value in values])] if values else runs
    return set(runs["identity"])


def _encoder(store: RunStore, identity: str) -> str | None:
    """The Stage 1 encoder that a run was trained from."""
    metadata = store.metadata(identity)
    settings, cohort = fitted_settings(metadata), metadata["cohort"]["hash"]
    return stage1_identity(settings, cohort, fold_of(metadata), metadata["seed"])


def _identity(entry: Path) -> str:
    """The run or encoder that something unfinished belongs to."""
    return entry.name.lstrip(".").partition(".")[0]


def _asides(folder: Path) -> list[Path]:
    """What was renamed to be removed, by a process that was killed then."""
    return sorted(folder.glob(".*.part")) if folder.is_dir() else []


def _free(path: Path) -> bool:
    """Whether no living process holds the lock."""
    try:
        with lock(path, wait=False):
            return True
    except Taken:
        return False


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())
