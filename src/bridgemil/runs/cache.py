"""What runs share in their folder: Stage 1 encoders, and features computed once per subject."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bridgemil.models import FitCache
from bridgemil.runs.store import ADVICE, KINDS, NOTE, WEIGHTS, RunStore
from bridgemil.storage.artifact import Artifact, new_artifact
from bridgemil.storage.files import Taken, lock, refuse_link, write_json

if TYPE_CHECKING:
    from torch import Tensor

FEATURES = "features.npy"


@dataclass(frozen=True)
class RunCache(FitCache):
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
        from bridgemil.learning.checkpoint import write_tensors

        identity = self.stage1_identity
        assert identity is not None
        place = self.store.stage1(identity)
        refuse_link(place.parent, place)
        with self.store.lock(identity):
            if not place.exists():
                tensors, made = train(self.store.checkpoint(identity))
                with self.store.writing("stage1", identity) as folder:
                    write_tensors(folder / WEIGHTS, tensors)
                    write_json(folder / NOTE, dict(self.note) | made)
        return self.store.encoder_tensors(identity)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Computed once per subject, stored as an array that is memory-mapped; a second process waits for the first."""
        self._compute(key, signal_hash, compute, wait=True)
        return read_features(self.store.features(key, signal_hash))

    def prepare_features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> None:
        """Compute them if they are missing and no other process computes them now."""
        self._compute(key, signal_hash, compute, wait=False)

    def _compute(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]], *, wait: bool) -> None:
        import numpy as np

        place = self.store.features(key, signal_hash)
        refuse_link(place.parent.parent, place.parent, place)
        if os.path.lexists(place):
            return
        with suppress(Taken), lock(self.store.lock_file(f"{place.parent.name}-{place.name}"), wait=wait):
            if not os.path.lexists(place):
                with new_artifact(place, KINDS["features"]) as folder:
                    np.save(folder / FEATURES, np.ascontiguousarray(compute()), allow_pickle=False)


def read_features(folder: Path) -> NDArray[Any]:
    """The stored features of one subject, memory-mapped."""
    return Artifact.open(folder, KINDS["features"], ADVICE, named=True).array(FEATURES)
