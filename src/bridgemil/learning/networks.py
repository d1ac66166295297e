"""The two networks that are trained: an encoder with a window classifier, or an encoder with an aggregator of bags."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bridgemil import aggregators, backbones
from bridgemil.aggregators.bags import BagOutput
from bridgemil.learning.data import BLOCK, WindowSet
from bridgemil.learning.settings import BagSettings, WindowSettings


@torch.no_grad()
def in_blocks(module: nn.Module, windows: Tensor | Iterable[Tensor], device: torch.device) -> Tensor:
    """Apply a module (N x *shape -> N x d, on ``device``) in evaluation mode to many windows, a block at a time.

    ``windows`` are n x *shape, or blocks of them as of ``WindowSet.blocks``; the result, n x d, stays on the device.
    """
    module.eval()
    blocks = windows.split(BLOCK) if isinstance(windows, Tensor) else windows
    return torch.cat([module(block.to(device)) for block in blocks])


class WindowModel(nn.Module):
    """An encoder (N x *shape -> N x d) and its own window classifier (N x d -> N x K)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor) -> Tensor:
        """N x *shape -> logits N x K."""
        return self.head(self.encoder(x))


@dataclass(frozen=True)
class Vote:
    """The majority vote of a subject's windows."""

    predicted: int
    probabilities: Tensor  # K, mean over windows
    windows: Tensor  # n x K, the probabilities of each window


def vote(model: nn.Module, windows: Tensor | Iterable[Tensor], device: torch.device) -> Vote:
    """Classify a subject by majority vote; a tie goes to the tied class with the highest mean probability."""
    p = in_blocks(model, windows, device).softmax(dim=1).cpu()
    votes = torch.bincount(p.argmax(dim=1), minlength=p.shape[1])
    mean = p.mean(dim=0)
    return Vote(int(mean.masked_fill(votes < votes.max(), -1).argmax()), mean, p)


class BagModel(nn.Module):
    """An encoder of windows (N x *shape -> N x d) and an aggregator of bags."""

    def __init__(self, encoder: nn.Module, aggregator: nn.Module) -> None:
        super().__init__()
        self.encoder, self.aggregator = encoder, aggregator

    def aggregate(self, embeddings: Tensor, sizes: Sequence[int]) -> BagOutput:
        """The aggregator's output for B bags with these numbers of windows; embeddings (n x d) one after the other."""
        padded = pad_sequence(list(embeddings.split(list(sizes))), batch_first=True)  # B x N x d
        places = torch.arange(padded.shape[1], device=padded.device)
        mask = places < torch.tensor(sizes, device=padded.device).unsqueeze(1)
        return self.aggregator(padded, mask)

    @torch.no_grad()
    def explain(self, windows: Tensor | Iterable[Tensor], device: torch.device) -> BagOutput:
        """One subject in evaluation mode: logits 1 x K, attention weights 1 x n."""
        self.eval()
        embeddings = in_blocks(self.encoder, windows, device)
        return self.aggregate(embeddings, [len(embeddings)])


def assemble(
    encoder: nn.Module, backbone: str, n_classes: int, settings: WindowSettings | BagSettings
) -> WindowModel | BagModel:
    """The encoder (N x *shape -> N x d) with the window classifier of its backbone, or with an aggregator."""
    dim = backbones.embedding_dim(encoder)
    if isinstance(settings, WindowSettings):
        return WindowModel(encoder, backbones.create_head(backbone, dim, n_classes))
    aggregator = aggregators.create(
        settings.aggregator, dim, n_classes, positions=settings.positions, dropout=settings.dropout
    )
    return BagModel(encoder, aggregator)


def stored_embeddings(encoder: nn.Module, windows: WindowSet, device: torch.device) -> NDArray[np.float32]:
    """The embeddings of all windows of a set by an encoder as it is now, in evaluation mode: n x d.

    They are in a temporary file (in ``TMPDIR``), which is removed with the array; the operating system keeps as much
    of it in memory as there is room for.
    """
    # Written, not mapped: a full disk is then an error and does not end the process.
    with tempfile.TemporaryFile(prefix="bridgemil-embeddings-") as file:
        for i in range(len(windows.subjects)):
            file.write(in_blocks(encoder, windows.blocks(i), device).cpu().numpy().tobytes())
        file.flush()
        return np.memmap(file, np.float32, "r", shape=(len(windows), backbones.embedding_dim(encoder)))
