"""No Stage 1 (an ablation): windows pass once through random weights, so that batch norm knows their statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bridgemil.learning.layout import Index
from bridgemil.learning.objectives.objective import Objective
from bridgemil.learning.settings import UntrainedSettings
from bridgemil.learning.window_set import WindowSet


class Untrained(Objective):
    """A loss of zero whatever the weights are: its gradient is zero, and nothing learns."""

    def __init__(
        self, encoder: nn.Module, backbone: str, train: WindowSet, settings: UntrainedSettings, device: torch.device
    ) -> None:
        super().__init__(encoder, nn.Identity(), train, settings, device)

    def loss(self, batch: Index, windows: Tensor) -> Tensor:
        """Zero."""
        return 0.0 * self.encoder(windows.to(self.device)).sum()
