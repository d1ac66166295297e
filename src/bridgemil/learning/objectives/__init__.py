"""What Stage 1 minimises. Add an objective with a file and a line."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bridgemil.learning.objectives.objective import Objective
    from bridgemil.learning.settings import Stage1Settings
    from bridgemil.learning.window_set import WindowSet

_BUILT_IN = {
    "alignment": "Alignment",
    "supcon": "SupCon",
    "masked": "Masked",
    "supervised": "Supervised",
    "untrained": "Untrained",
}


def create(
    encoder: nn.Module, backbone: str, train: WindowSet, settings: Stage1Settings, device: torch.device
) -> Objective:
    """The objective that the settings name, around this encoder and these training windows."""
    module = importlib.import_module(f"{__name__}.{settings.objective}")
    objective: Objective = getattr(module, _BUILT_IN[settings.objective])(encoder, backbone, train, settings, device)
    return objective
