"""Random streams: each purpose has its own, decided by the seed and the training subjects, and starts anew each epoch.

So an epoch can be repeated without the ones before it, and no draw depends on what the held-out subjects hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Streams:
    """The random streams of one run."""

    seed: int
    subjects: tuple[str, ...]  # the training fold's

    @classmethod
    def of(cls, seed: int, subjects: Sequence[str]) -> Streams:
        """The streams of this seed and these training subjects, in whatever order they come."""
        return cls(seed, tuple(sorted(subjects)))

    def number(self, purpose: str, epoch: int = 0) -> int:
        """A 63-bit seed."""
        text = json.dumps([self.seed, self.subjects, purpose, epoch])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def start(self, purpose: str, epoch: int = 0) -> np.random.Generator:
        """Seed torch's generators (weights, dropout), and return one for draws."""
        number = self.number(purpose, epoch)
        torch.manual_seed(number)
        return np.random.default_rng(number)
