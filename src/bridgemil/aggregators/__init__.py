"""Aggregators map a bag of window embeddings to subject logits. Create them by name; add one with a file and a line.

All are called alike, ``aggregator(embeddings, mask)`` with embeddings B x N x d and a Boolean mask B x N (True where
valid), and return a ``BagOutput``. Padding never counts, whatever stands in it: a padded bag gives what it gives alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridgemil.errors import BadUse
from bridgemil.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

# Those with the option ``positions`` add a sinusoid to the embeddings that can be left out.
AGGREGATORS = Registry("aggregator", __name__, {
    "attention": Entry("classifier of the mean of gated embeddings", "gated:Attention", options=("positions",)),
    "additive": Entry("mean of classified, gated embeddings", "gated:Additive", options=("positions",)),
    "conjunctive": Entry("mean of gated window logits (MILLET)", "gated:Conjunctive", options=("positions",)),
    "timemil": Entry("transformer with wavelet positions (TimeMIL)", "timemil:TimeMIL"),
    "softmax_attention": Entry("softmax attention (Ilse et al. 2018)", "pooling:SoftmaxAttention"),
    "mean": Entry("classifier of the mean embedding", "pooling:Mean"),
})  # fmt: skip


def names() -> list[str]:
    """Names of the aggregators.

    Returns
    -------
    list of str
    """
    return list(AGGREGATORS)


def with_positions() -> list[str]:
    """The aggregators that add a window's position in the bag to its embedding, and can leave it out."""
    return [name for name in AGGREGATORS if "positions" in AGGREGATORS[name].options]


def create(name: str, embedding_dim: int, n_classes: int, *, positions: bool = True, dropout: float = 0.1) -> nn.Module:
    """An aggregator: embeddings B x N x d and a mask B x N to a ``BagOutput`` with logits B x K.

    Parameters
    ----------
    name : str
        One of ``names()``.
    embedding_dim : int
        d, the size of a window's embedding.
    n_classes : int
        K.
    positions : bool, default True
        Add a sinusoidal position of the window in the bag to its embedding. False is available for
        ``with_positions()`` only.
    dropout : float, default 0.1
        Of embeddings, and inside TimeMIL's blocks; 0.1 in the paper.

    Returns
    -------
    torch.nn.Module
        Called with embeddings (B, N, d) and a Boolean mask (B, N), True where valid.
    """
    aggregator = AGGREGATORS.load(name)
    options: dict[str, Any] = {"dropout": dropout}
    if not positions:
        if name not in with_positions():
            raise BadUse(f"positions cannot be left out of {name}, only of {', '.join(with_positions())}")
        options["positions"] = False
    return aggregator(embedding_dim, n_classes, **options)
