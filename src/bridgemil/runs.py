"""Runs on disk: their identity, their folders, their checkpoints, reading them back; and what runs share.

    RUNS/runs/<identity>/      run.json, predictions.parquet, curves.parquet, windows.parquet, and the fitted model
    RUNS/stage1/<identity>/    encoder.safetensors (with its settings and curve)
    RUNS/features/<key>/       what is computed once of each person's windows: front-end and baseline features
    RUNS/splits/, ensembles/   the splits and ensembles that were planned here
    RUNS/unfinished/           checkpoints, locks, and folders being written
    RUNS/failed/               the errors of runs that failed

A run's folder appears in one rename: it is whole or absent. Nothing here is ever unpickled.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.folds import FoldPlan, Round
from bridgemil.disk import lock, new_file, new_folder, write_json
from bridgemil.errors import BadData, BridgeMILError, BridgeMILWarning
from bridgemil.methods import Settings, digest
from bridgemil.models import Model, Shelf, load

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

IDENTITY = re.compile("[0-9a-f]{24}")
# Raised by hand when the same settings would give other numbers, or a run's record changes its form.
# 2: a run is a fitted model with its split; folds count from 1; windows are a table.
RESULTS_VERSION = 2


def run_identity(settings: Settings, cohort_hash: str, subjects: Round, seed: int) -> str:
    """Everything that decides a run's result; not the device, threads, paths or the fold's number."""
    who = [sorted(subjects.train), sorted(subjects.validation), sorted(subjects.test)]
    return digest([settings.changed, cohort_hash, who, seed, RESULTS_VERSION])[:24]


def stage1_identity(settings: Settings, cohort_hash: str, subjects: Round, seed: int) -> str | None:
    """What decides a Stage 1 encoder: runs that would train the same one share it. None without a Stage 1."""
    if settings.stage1 is None:
        return None
    changed = settings.changed
    network = [changed["backbone"], settings.backbone_options, settings.code]
    return digest([changed["stage1"], network, cohort_hash, sorted(subjects.train), seed, RESULTS_VERSION])[:24]


@dataclass(frozen=True)
class RunStore:
    """A folder of runs."""

    root: Path

    @property
    def unfinished(self) -> Path:
        """Where checkpoints, locks and folders being written are; made if it is not there."""
        folder = self.root / "unfinished"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

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
        return self.unfinished / f"{identity}.safetensors"

    @contextmanager
    def lock(self, identity: str) -> Iterator[None]:
        """Wait until nobody else works on this run or encoder; a dead owner holds nothing."""

        def told() -> None:
            words = f"{self.root}: another process is doing {identity}; waiting for it"
            warnings.warn(words, BridgeMILWarning, stacklevel=5)

        with lock(self.unfinished / f"{identity}.lock", told=told):
            yield

    @contextmanager
    def writing(self, final: Path) -> Iterator[Path]:
        """A folder to fill; it takes its place when it is whole, and its checkpoint goes."""
        with new_folder(final, self.unfinished / f"{final.name}.folder") as folder:
            yield folder
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
        return self._table(identity, "predictions.parquet")

    def curves(self, identity: str) -> pd.DataFrame:
        """A row an epoch of either stage; empty for a baseline."""
        return self._table(identity, "curves.parquet")

    def windows(self, identity: str) -> pd.DataFrame:
        """A row a window of the test subjects: subject, window, second, and gate, contributions or probabilities.

        Empty for a baseline, which does not look at windows one by one.
        """
        return self._table(identity, "windows.parquet")

    def model(self, identity: str, **how: Any) -> Model:
        """The fitted model of a run; ``how`` as for ``bridgemil.models.load``."""
        return load(self.run(identity), **how)

    def _table(self, identity: str, name: str) -> pd.DataFrame:
        import pandas as pd

        file = self.run(identity) / name
        return pd.read_parquet(file) if file.is_file() else pd.DataFrame()

    def note_split(self, cohort_hash: str, plan: FoldPlan) -> None:
        """Write down a split that runs here follow, so that a report can tell which runs belong together."""
        folder = self.root / "splits"
        file = folder / f"{cohort_hash[:12]}-{plan.hash[:12]}.json"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(file, plan.for_json() | {"cohort": cohort_hash})

    def note_ensemble(self, settings: Settings) -> None:
        """Write down an ensemble whose members are run here, so that a report can show it."""
        folder = self.root / "ensembles"
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{settings.hash[:24]}.json", settings.model_dump(mode="json"))

    def ensembles(self) -> list[Settings]:
        """The ensembles that were planned here."""
        files = sorted((self.root / "ensembles").glob("*.json"))
        return [Settings.model_validate_json(file.read_text("utf-8")) for file in files]

    def splits(self) -> list[tuple[str, FoldPlan]]:
        """The splits that were planned here, each with its cohort's hash."""
        found = []
        for file in sorted((self.root / "splits").glob("*.json")):
            content = json.loads(file.read_text("utf-8"))
            found.append((str(content["cohort"]), FoldPlan.from_json(content)))
        return found


@dataclass(frozen=True)
class RunShelf(Shelf):
    """What a run keeps and shares in a folder of runs."""

    store: RunStore
    identity: str
    stage1_identity: str | None
    note: Mapping[str, Any]  # to write beside a Stage 1 encoder

    def checkpoint(self) -> Path:
        """Where the run goes on from."""
        return self.store.checkpoint(self.identity)

    def stage1(
        self, train: Callable[[Path | None], tuple[dict[str, Tensor], dict[str, Any]]]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The stored encoder; whoever comes first trains it while the others wait."""
        from bridgemil.learning import checkpoint

        assert self.stage1_identity is not None
        file = self.store.stage1(self.stage1_identity) / "encoder.safetensors"
        with self.store.lock(self.stage1_identity):
            if not file.is_file():
                tensors, made = train(self.store.checkpoint(self.stage1_identity))
                with self.store.writing(file.parent) as folder:
                    checkpoint.write(folder / file.name, tensors, dict(self.note) | made)
        return checkpoint.read(file)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Computed once of each person, kept as an array that is memory-mapped."""
        file = self.store.root / "features" / digest(key)[:24] / f"{signal_hash[:32]}.npy"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            array = compute()
            with new_file(file) as stream:
                np.save(stream, array, allow_pickle=False)
        try:
            loaded: NDArray[Any] = np.load(file, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise BadData(f"{file}: is damaged ({error}); delete it and run again") from None
        return loaded


def open_store(root: str | Path) -> RunStore:
    """A folder of runs, made if it is not there."""
    root = Path(root)
    try:
        (root / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BridgeMILError(f"{root}: cannot be written ({error.strerror}); choose another --out") from None
    return RunStore(root)
