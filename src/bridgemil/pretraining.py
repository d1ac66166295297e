"""The two Stage 1 losses that are useful on their own."""

from bridgemil.learning.objectives.alignment import vicreg_loss
from bridgemil.learning.objectives.supcon import supcon_loss

__all__ = ["supcon_loss", "vicreg_loss"]
