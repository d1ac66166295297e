"""Learning rates as a function of the step alone, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def cosine(step: int, warmup: int, total: int) -> float:
    """The share of the peak learning rate: linear up to ``warmup`` steps, then a half cosine to zero.

    Parameters
    ----------
    step
        Zero-based, of all steps.
    warmup
        Steps of the linear rise.
    total
        Steps of the whole run.
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
