"""Which epoch's weights are kept: by validation subjects alone, never by test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Validation:
    """How the validation subjects fared after an epoch."""

    accuracy: float  # of subjects
    loss: float  # mean over subjects of the subject's cross-entropy

    def beats(self, other: Validation | None) -> bool:
        """Higher accuracy, then lower loss; an equal one does not, so that the earliest epoch stays."""
        return other is None or (self.accuracy, -self.loss) > (other.accuracy, -other.loss)
