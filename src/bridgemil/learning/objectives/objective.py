"""What every Stage 1 objective is: an encoder with a head, the steps of an epoch, and a loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil.backbones import embedding_dim
from bridgemil.learning.settings import Stage1Settings
from bridgemil.learning.window_set import WindowSet, batches, n_batches


class Objective(nn.Module):
    """Sees the windows of the training subjects. ``head`` is discarded after Stage 1.

    Parameters
    ----------
    encoder
        N x *shape -> N x d.
    head
        Takes N x d; what it gives is the objective's affair.
    train
        The training subjects' windows.
    settings
        Of the objective.
    device
        Where the encoder is.
    """

    batch_settings = "stage1.batch_windows"  # what to lower when memory runs out

    def __init__(
        self, encoder: nn.Module, head: nn.Module, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head.to(device)
        self.data, self.batch_windows, self.device = train, settings.batch_windows, device
        self.steps = n_batches(len(train), settings.batch_windows)  # in an epoch

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        """The steps of one epoch: all windows, shuffled, unless the objective has its own way."""
        return batches(rng.permutation(len(self.data)), self.batch_windows)

    def read(self, batch: Any) -> Any:
        """The windows of one step, on the CPU; M x *shape for the numbers of M windows."""
        return self.data.take(batch)

    @abstractmethod
    def loss(self, batch: Any, windows: Any) -> Tensor:
        """The loss of one step, a scalar.

        Parameters
        ----------
        batch
            As ``batches`` gave it.
        windows
            What ``read`` made of it.
        """


def projection(encoder: nn.Module) -> nn.Module:
    """d-256-LN-ELU-128, shared by BridgeMIL's two pair types; SupCon's too."""
    return nn.Sequential(nn.Linear(embedding_dim(encoder), 256), nn.LayerNorm(256), nn.ELU(), nn.Linear(256, 128))
