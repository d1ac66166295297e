"""Aggregators map a bag of window embeddings to subject logits. Create them by name; add one with a file and a line.

All are called alike, ``aggregator(embeddings, mask)`` with embeddings B x N x d and a Boolean mask B x N (True where
valid), and return a ``BagOutput``. Padding never counts, whatever stands in it: a padded bag gives what it gives alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bridgemil.errors import BadUse

if TYPE_CHECKING:
    from torch import nn

# name -> module and class
_BUILT_IN = {
    "attention": ("gated", "Attention"),
    "additive": ("gated", "Additive"),
    "conjunctive": ("gated", "Conjunctive"),
    "timemil": ("timemil", "TimeMIL"),
    "softmax_attention": ("pooling", "SoftmaxAttention"),
    "mean": ("pooling", "Mean"),
}


def names() -> list[str]:
    """The aggregators that ``create`` knows."""
    return list(_BUILT_IN)


def create(name: str, embedding_dim: int, n_classes: int) -> nn.Module:
    """An aggregator for embeddings of this size and this many classes."""
    if name not in _BUILT_IN:
        raise BadUse(f"aggregator must be one of {', '.join(names())}, got {name!r}")
    module, cls = _BUILT_IN[name]
    aggregator: nn.Module = getattr(importlib.import_module(f"{__name__}.{module}"), cls)(embedding_dim, n_classes)
    return aggregator
