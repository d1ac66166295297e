"""Learning rates as a function of the step alone, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def cosine(step: int, warmup: int, total: int) -> float:
    """The share of the peak at a zero-based step: linear up to ``warmup`` steps, then a half cosine to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
