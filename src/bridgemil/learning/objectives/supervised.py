"""Supervised Stage 1 (an ablation): windows inherit their subject's diagnosis, as in a majority vote."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgemil import backbones
from bridgemil.learning.layout import Index
from bridgemil.learning.objectives.objective import Objective
from bridgemil.learning.settings import SupervisedSettings
from bridgemil.learning.window_set import WindowSet


class Supervised(Objective):
    """Cross-entropy through the backbone's own window classifier."""

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: SupervisedSettings, device: torch.device
    ) -> None:
        head = backbones.create_head(backbone, backbones.embedding_dim(encoder), train.n_classes)
        super().__init__(encoder, head, train, settings, device)
        self.labels = train.window_y

    def loss(self, batch: Index, windows: Tensor) -> Tensor:
        """Cross-entropy with inherited labels."""
        labels = self.labels[torch.from_numpy(batch)].to(self.device)
        return F.cross_entropy(self.head(self.encoder(windows.to(self.device))), labels)
