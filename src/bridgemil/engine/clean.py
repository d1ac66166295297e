"""Removing from a folder of runs what is not wanted: chosen runs, leftovers, and what no run uses any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridgemil.cohort.folds import Round
from bridgemil.disk import Taken, lock
from bridgemil.engine.benchmark import collect
from bridgemil.engine.scheduler import only_scheduler
from bridgemil.methods import Settings
from bridgemil.runs import RunStore, stage1_identity


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
        """Let them go."""
        for paths in self.parts.values():
            for path in paths:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)


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
    """What may go.

    Parameters
    ----------
    store
        The folder of runs.
    methods, backbones, budgets
        Finished runs of these go; a run must fit all that are given.
    failed
        The records of failed runs, and what was left of them.
    unfinished
        Checkpoints too: what was interrupted would begin anew.
    unused
        Stage 1 encoders that no run left here was trained from, and all stored features (they are computed again when
        needed).
    """
    going = Leftovers()
    aside = store.root / "unfinished"
    entries = sorted(aside.iterdir()) if aside.is_dir() else []
    going.add("lock files nobody holds", [e for e in entries if e.suffix == ".lock" and _free(e)])
    going.add("half-written folders", [e for e in entries if e.suffix == ".folder" or e.name.endswith(".part")])
    if unfinished:
        going.add("checkpoints", [e for e in entries if e.suffix == ".safetensors"])
    if failed:
        records = sorted((store.root / "failed").glob("*.json"))
        going.add("failures", records)
        going.add("checkpoints", [f for r in records if (f := store.checkpoint(r.stem)).is_file() and not unfinished])
    chosen = set[str]()
    if methods or backbones or budgets:
        runs = collect(store)
        for column, values in (("method", methods), ("backbone", backbones), ("budget", budgets)):
            runs = runs[runs[column].isin(list(values))] if values and len(runs) else runs
        chosen = set(runs["identity"]) if len(runs) else set()
        going.add("runs", [store.run(identity) for identity in sorted(chosen)])
    if unused:
        needed = {_encoder(store, identity) for identity in store.finished() - chosen}
        folder = store.root / "stage1"
        encoders = sorted(folder.iterdir()) if folder.is_dir() else []
        going.add("Stage 1 encoders", [path for path in encoders if path.name not in needed])
        going.add("features", [path for path in [store.root / "features"] if path.is_dir()])
    return going


def clean(store: RunStore, going: Leftovers) -> None:
    """Remove them, while no benchmark runs on the folder."""
    with only_scheduler(store):
        going.remove()


def _encoder(store: RunStore, identity: str) -> str | None:
    about = store.about(identity)
    who = Round(about["fold"], *(tuple(about[part]) for part in ("train", "validation", "test")))
    return stage1_identity(Settings.model_validate(about["settings"]), about["cohort"]["hash"], who, about["seed"])


def _free(path: Path) -> bool:
    """Whether no living process holds the lock; looking removes a stale file, so it is made again to be counted."""
    try:
        with lock(path, wait=False):
            pass
    except Taken:
        return False
    path.touch()
    return True


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
