"""Two ablations of Stage 1: classification of windows with inherited labels, and no training at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil import backbones
from bridgemil.learning.data import Index, WindowSet
from bridgemil.learning.objectives.objective import Objective


class Supervised(Objective):
    """Cross-entropy with inherited labels through the backbone's own window classifier."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """The window classifier of the backbone."""
        return backbones.create_head(backbone, backbones.embedding_dim(encoder), train.n_classes)

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        return F.cross_entropy(self.model(windows.to(self.device)), labels)


class Untrained(Objective):
    """Windows pass through random weights, so that batch norm has their statistics; the gradient is zero."""

    def make_head(self, encoder: nn.Module, backbone: str, train: WindowSet) -> nn.Module:
        """None."""
        return nn.Identity()

    def loss(self, batch: Index, windows: Tensor, rng: np.random.Generator) -> Tensor:
        """Zero, whatever the weights are."""
        return 0.0 * self.encoder(windows.to(self.device)).sum()
