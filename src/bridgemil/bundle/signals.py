"""Hashes of the training signals, by which ``validate`` and ``predict`` recognise a subject; no signal is kept.

Two kinds. The hash of a subject's windows is equal for the same recordings, prepared in the same way. Hash codes of
single windows (random hyperplanes: Charikar, 2002; as in the audit's search for duplicate signals) do not depend on
length, reference, gain and sign, and hardly on filters: they also recognise a part of a recording, of about half a
minute or more, if its windows begin at the same samples. On 65 training subjects of ``adftd-300s``, all 65 minutes of
theirs had 3 codes in common or more (with another band 2 or more); 36 subjects of another site, and the training
subjects among each other, had none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.measures import BLOCK, TABLES, WindowHash, spectra
from bridgemil.cohort.signal import Signal
from bridgemil.storage.artifact import array_checksum

KEPT = 8  # one in so many codes is kept, chosen by its value, so that two recordings keep the same
ENOUGH = 2  # codes in common that make two recordings one signal: one may be an artefact's
Keys = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingSignals:
    """Hashes of the signals that a model was trained on, or adapted with; both sorted."""

    subjects: Keys  # one per subject
    windows: Keys  # of some windows

    @classmethod
    def of(cls, bags: Iterable[NDArray[np.float32]], signal: Signal) -> TrainingSignals:
        """The hashes of subjects' windows, each n x C x T."""
        pairs = [(_subject_key(bag), window_keys(bag, signal)) for bag in bags]
        windows = np.unique(np.concatenate([keys for _, keys in pairs]))
        return cls(np.unique(np.array([key for key, _ in pairs], dtype=np.int64)), windows)

    def __or__(self, other: TrainingSignals) -> TrainingSignals:
        return TrainingSignals(np.union1d(self.subjects, other.subjects), np.union1d(self.windows, other.windows))

    def holds(self, bag: NDArray[np.float32], signal: Signal) -> bool:
        """Whether the signal of these windows (n x C x T), or a part of it, is among them."""
        if _subject_key(bag) in self.subjects:
            return True
        return int(np.isin(window_keys(bag, signal), self.windows).sum()) >= ENOUGH

    def tensors(self) -> dict[str, Keys]:
        """As a bundle stores them."""
        return {"signals.subjects": self.subjects, "signals.windows": self.windows}


def _subject_key(bag: NDArray[np.float32]) -> int:
    return int.from_bytes(bytes.fromhex(array_checksum(bag)[:16]), "big", signed=True)


def window_keys(bag: NDArray[np.float32], signal: Signal) -> Keys:
    """Some hash codes of windows: 24 bits of one of the audit's tables, 8 of the next, and the number of the table."""
    hashing, found = WindowHash(signal), []
    for first in range(0, len(bag), BLOCK):
        part = np.array(bag[first : first + BLOCK], dtype=np.float32)
        found.append(hashing.codes(part, spectra(part)))
    codes = np.concatenate(found).astype(np.int64)  # n x TABLES; -1 where a window is flat
    codes = codes[codes[:, 0] >= 0]
    further = np.roll(codes, -1, axis=1) >> 1 & 0xFF  # the lowest bit is always 1
    joined = codes | further << 24 | np.arange(TABLES) << 32
    keys: Keys = np.unique(joined[(codes >> 1) % KEPT == 0])
    return keys
