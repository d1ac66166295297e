"""What runs share in their folder: Stage 1 encoders, and features computed once of each person."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bridgemil.disk import Taken, lock, refuse_link
from bridgemil.errors import BadData
from bridgemil.methods import digest
from bridgemil.models import Shelf
from bridgemil.runs.files import ADVICE, RUN_ADVICE
from bridgemil.runs.store import ENCODER, RunStore
from bridgemil.stored import StoredFolder
from bridgemil.stored.hashes import write_hashed_array
from bridgemil.stored.headers import WrongHeader, read_array_header

if TYPE_CHECKING:
    from torch import Tensor


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

        identity = self.stage1_identity
        assert identity is not None
        file = self.store.stage1(identity) / ENCODER
        refuse_link(file.parent.parent, file.parent)
        with self.store.lock(identity):
            if not os.path.lexists(file):
                tensors, made = train(self.store.checkpoint(identity))
                with self.store.writing(file.parent) as folder:
                    checkpoint.write(folder / file.name, tensors, dict(self.note) | made | {"identity": identity})
        return read_encoder(file)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Computed once of each person, kept as an array that is memory-mapped; who comes second waits."""
        self._compute(key, signal_hash, compute, wait=True)
        return read_features(self.store.root, self._name(key, signal_hash))

    def prepare_features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> None:
        """Compute them if they are missing and no other process computes them now."""
        self._compute(key, signal_hash, compute, wait=False)

    def _compute(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]], *, wait: bool) -> None:
        name = self._name(key, signal_hash)
        file = self.store.root / name
        refuse_link(file.parent.parent, file.parent)
        if _is_there(file):
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        guard = self.store.unfinished / f"{file.parent.name}-{file.stem}.lock"
        with suppress(Taken), lock(guard, wait=wait):
            if not _is_there(file):
                write_hashed_array(file, compute(), name)

    @staticmethod
    def _name(key: str, signal_hash: str) -> str:
        return f"features/{digest(key)[:24]}/{signal_hash[:32]}.npy"


def read_encoder(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A stored Stage 1 encoder and what is known of it: seconds and curve."""
    from bridgemil.learning import checkpoint

    tensors, about = checkpoint.read(file, RUN_ADVICE)
    folder = StoredFolder(file.parent, RUN_ADVICE)
    if about.get("identity", file.parent.name) != file.parent.name:
        raise folder.bad(file.name, "is another encoder than its folder says")
    if not isinstance(about.get("curve"), list) or not isinstance(about.get("seconds"), int | float):
        raise folder.bad(file.name, "is no Stage 1 encoder: its curve or seconds are missing")
    return tensors, about


def read_features(root: Path, name: str) -> NDArray[Any]:
    """Stored features of one person; ``name`` is the file's path below the folder of runs."""
    return StoredFolder(root, ADVICE).array(name, words=name, trailing=True)


def _is_there(file: Path) -> bool:
    return os.path.lexists(file) and has_hash(file)


def has_hash(file: Path) -> bool:
    """Whether stored features have a hash; those of earlier versions have none and are computed anew."""
    try:
        StoredFolder(file.parent, ADVICE).file(file.name)
        return read_array_header(file).more > 0
    except (WrongHeader, BadData, OSError):
        return True  # damaged: who reads it says so
