"""Which epoch's weights are kept: by validation subjects alone, never by test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Selection = Literal["accuracy", "loss", "last"]


@dataclass(frozen=True)
class Validation:
    """How the validation subjects fared after an epoch."""

    accuracy: float  # of subjects
    loss: float  # mean over subjects of the subject's cross-entropy

    def beats(self, best: Validation | None, by: Selection = "accuracy") -> bool:
        """Whether this epoch is to be kept instead of the best one so far.

        Parameters
        ----------
        best
            The best epoch before, if any counted.
        by
            ``accuracy``: higher accuracy, then lower loss. ``loss``: lower loss, then higher accuracy. In either an
            equal epoch does not beat the earlier one.
        """
        if best is None:
            return True
        if by == "loss":
            return (-self.loss, self.accuracy) > (-best.loss, best.accuracy)
        return (self.accuracy, -self.loss) > (best.accuracy, -best.loss)
