"""One run on disk: its identity, its folder, its checkpoints, reading it back; and the store of Stage 1 encoders.

    RUNS/runs/<identity>/      run.json, predictions.parquet, curves.parquet, windows.safetensors, model.safetensors
    RUNS/stage1/<identity>/    encoder.safetensors (with its settings and curve)
    RUNS/unfinished/           checkpoints, and folders being written

A run's folder appears in one rename: it is whole or absent. Weights are safetensors only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.cohort.folds import Round
from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.methods import Settings, digest

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

IDENTITY = re.compile("[0-9a-f]{24}")
RESULTS_VERSION = 1  # raised by hand when the same settings would give other numbers


def run_identity(settings: Settings, cohort_hash: str, subjects: Round, seed: int) -> str:
    """Everything that decides a run's result; not the device, threads, paths or the fold's number."""
    who = [sorted(subjects.train), sorted(subjects.validation), sorted(subjects.test)]
    return digest([settings.changed, cohort_hash, who, seed, RESULTS_VERSION])[:24]


def stage1_identity(settings: Settings, cohort_hash: str, subjects: Round, seed: int) -> str:
    """What decides a Stage 1 encoder: runs that would train the same one share it."""
    assert settings.stage1 is not None
    own = settings.stage1.model_dump(mode="json", exclude_defaults=True)
    network = [settings.backbone, settings.backbone_options]
    return digest([own, network, cohort_hash, sorted(subjects.train), seed, RESULTS_VERSION])[:24]


@dataclass(frozen=True)
class RunStore:
    """A folder of runs."""

    root: Path

    def run(self, identity: str) -> Path:
        """Where a finished run is."""
        return self.root / "runs" / identity

    def stage1(self, identity: str) -> Path:
        """Where a finished Stage 1 encoder is."""
        return self.root / "stage1" / identity

    def is_done(self, identity: str) -> bool:
        """Whether the run is finished."""
        return (self.run(identity) / "run.json").is_file()

    def finished(self) -> set[str]:
        """The identities of all finished runs: a run's folder is there only when it is whole."""
        folder = self.root / "runs"
        entries = folder.iterdir() if folder.is_dir() else ()
        return {entry.name for entry in entries if IDENTITY.fullmatch(entry.name)}

    def checkpoint(self, identity: str) -> Path:
        """Where an unfinished loop keeps its state."""
        folder = self.root / "unfinished"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{identity}.safetensors"

    @contextmanager
    def lock(self, identity: str) -> Iterator[None]:
        """Wait until nobody else works on this run or encoder; a dead owner holds nothing."""
        from filelock import FileLock, Timeout

        folder = self.root / "unfinished"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{identity}.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            warnings.warn(
                f"{self.root}: another process is doing {identity}; waiting for it", BridgeMILWarning, stacklevel=3
            )
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def writing(self, final: Path) -> Iterator[Path]:
        """A folder to fill; it takes its place when it is whole, and its checkpoint goes."""
        aside = self.root / "unfinished" / f"{final.name}.folder"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for file in aside.iterdir():
            with file.open("r+b") as stream:
                os.fsync(stream.fileno())
        final.parent.mkdir(parents=True, exist_ok=True)
        aside.replace(final)
        self.checkpoint(final.name).unlink(missing_ok=True)

    def about(self, identity: str) -> dict[str, Any]:
        """What run.json says."""
        try:
            content: dict[str, Any] = json.loads((self.run(identity) / "run.json").read_text("utf-8"))
        except (OSError, ValueError):
            raise BadData(f"{self.run(identity)}: is damaged (no run.json); delete it and run again") from None
        return content

    def predictions(self, identity: str) -> pd.DataFrame:
        """The held-out predictions of a run: seed, fold, subject, label, predicted, p_<class>…"""
        import pandas as pd

        return pd.read_parquet(self.run(identity) / "predictions.parquet")

    def curves(self, identity: str) -> pd.DataFrame:
        """A row an epoch of either stage; empty for band power."""
        import pandas as pd

        file = self.run(identity) / "curves.parquet"
        return pd.read_parquet(file) if file.is_file() else pd.DataFrame()

    def windows(self, identity: str) -> dict[str, Tensor]:
        """Per test subject: each window's gate, or (majority vote) its class probabilities; none for band power."""
        return self.tensors(self.run(identity) / "windows.safetensors")

    @staticmethod
    def tensors(path: Path) -> dict[str, Tensor]:
        """Read a safetensors file."""
        from bridgemil.learning import checkpoint

        return checkpoint.read(path)[0] if path.is_file() else {}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any] | None = None) -> None:
    """Write a safetensors file."""
    from bridgemil.learning import checkpoint

    checkpoint.write(path, tensors, about or {})


def open_store(root: str | Path) -> RunStore:
    """A folder of runs, made if it is not there."""
    root = Path(root)
    try:
        (root / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BridgeMILError(f"{root}: cannot be written ({error.strerror}); choose another --out") from None
    return RunStore(root)
