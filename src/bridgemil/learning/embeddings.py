"""Embeddings that are computed once, while an encoder does not change: in memory, or in a file if they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.backbones import embedding_dim
from bridgemil.learning.layout import Index
from bridgemil.learning.window_set import BLOCK, WindowSet

MOST_BYTES = 256 * 2**20  # of embeddings held in memory


@torch.no_grad()
def in_blocks(module: nn.Module, windows: Tensor | Iterable[Tensor], device: torch.device) -> Tensor:
    """Apply a module in evaluation mode to many windows, a block at a time.

    Parameters
    ----------
    module
        N x *shape -> N x d.
    windows
        n x *shape, or blocks of them as ``WindowSet.blocks`` gives them.
    device
        Where the module is; the result, n x d, stays there.
    """
    module.eval()
    blocks = windows.split(BLOCK) if isinstance(windows, Tensor) else windows
    return torch.cat([module(block.to(device)) for block in blocks])


class FrozenEmbeddings:
    """What an encoder, as it is now and in evaluation mode, makes of every window of a set.

    More than ``MOST_BYTES`` go to a temporary file (in ``TMPDIR``), which is gone with this object.

    Parameters
    ----------
    encoder
        N x *shape -> N x d.
    windows
        The set, n windows.
    device
        Where the encoder is, and where embeddings are wanted.
    """

    def __init__(self, encoder: nn.Module, windows: WindowSet, device: torch.device) -> None:
        self._bounds, self._device = [0, *windows.layout.subject_end.tolist()], device
        bags = (in_blocks(encoder, windows.blocks(i), device) for i in range(len(windows.subjects)))
        shape = (len(windows), embedding_dim(encoder))
        self.on_disk = 4 * shape[0] * shape[1] > MOST_BYTES
        if not self.on_disk:
            self._held = torch.cat(list(bags))
            return
        # Written, not mapped: a full disk is then an error and not the end of the process.
        with tempfile.TemporaryFile(prefix="bridgemil-embeddings-") as file:
            for bag in bags:
                file.write(bag.cpu().numpy().tobytes())
            file.flush()
            self._mapped = np.memmap(file, np.float32, "r", shape=shape)

    def take(self, index: Index) -> Tensor:
        """The embeddings of these windows, n x d."""
        if self.on_disk:
            return torch.from_numpy(np.array(self._mapped[index])).to(self._device)
        return self._held[torch.from_numpy(index)]

    def bag(self, i: int) -> Tensor:
        """The embeddings of the i-th subject, n x d."""
        first, last = self._bounds[i], self._bounds[i + 1]
        if self.on_disk:
            return torch.from_numpy(np.array(self._mapped[first:last])).to(self._device)
        return self._held[first:last]
