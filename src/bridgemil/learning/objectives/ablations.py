"""Two ablations of Stage 1: classification of windows with inherited labels, and no training at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil import backbones
from bridgemil.learning.data import Index, WindowSet
from bridgemil.learning.objectives.objective import Objective
from bridgemil.learning.settings import Stage1Settings


class Supervised(Objective):
    """Cross-entropy with inherited labels through the backbone's own window classifier."""

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        head = backbones.create_head(backbone, backbones.embedding_dim(encoder), train.n_classes)
        super().__init__(encoder, head, train, settings, device)
        self.labels = train.window_y

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        return F.cross_entropy(self.model(windows.to(self.device)), labels)


class Untrained(Objective):
    """Windows pass through random weights, so that batch norm has their statistics; the gradient is zero."""

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
    ) -> None:
        super().__init__(encoder, nn.Identity(), train, settings, device)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Zero, whatever the weights are."""
        return 0.0 * self.encoder(windows.to(self.device)).sum()
