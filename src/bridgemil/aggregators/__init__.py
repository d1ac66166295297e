"""Aggregators map a bag of window embeddings to subject logits. Create them by name; add one with a file and a line.

All are called alike, ``aggregator(embeddings, mask)`` with embeddings B x N x d and a Boolean mask B x N (True where
valid), and return a ``BagOutput``. Padding never counts, whatever stands in it: a padded bag gives what it gives alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
WITH_POSITIONS = ("attention", "additive", "conjunctive")  # they add a sinusoid that can be left out


def names() -> list[str]:
    """The aggregators that ``create`` knows."""
    return list(_BUILT_IN)


def create(name: str, embedding_dim: int, n_classes: int, *, positions: bool = True, dropout: float = 0.1) -> nn.Module:
    """An aggregator: embeddings B x N x d and a mask B x N to a ``BagOutput`` with logits B x K.

    Parameters
    ----------
    name
        One of ``names()``.
    embedding_dim
        d, the size of a window's embedding.
    n_classes
        K.
    positions
        Whether each window's place in the bag is added to its embedding, as a sinusoid. False is for those in
        ``WITH_POSITIONS`` only.
    dropout
        Of embeddings, and inside TimeMIL's blocks; the paper's is 0.1.
    """
    if name not in _BUILT_IN:
        raise BadUse(f"aggregator must be one of {', '.join(names())}, got {name!r}")
    options: dict[str, Any] = {"dropout": dropout}
    if not positions:
        if name not in WITH_POSITIONS:
            raise BadUse(f"positions cannot be left out of {name}, only of {', '.join(WITH_POSITIONS)}")
        options["positions"] = False
    module, cls = _BUILT_IN[name]
    made = getattr(importlib.import_module(f"{__name__}.{module}"), cls)
    aggregator: nn.Module = made(embedding_dim, n_classes, **options)
    return aggregator
