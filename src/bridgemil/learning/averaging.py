"""A moving average of a model's weights: validated, selected and returned instead of the weights that are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """An exponential moving average of parameters over steps. Buffers (batch norm's statistics) are the model's own.

    After step t the average is the mean of the weights after steps 1 to t, those of k steps ago counting decay^k: the
    random start does not count, and there is no state but the average.

    Parameters
    ----------
    model
        Whose parameters are averaged.
    decay
        Per step, 0 < decay < 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters = dict(model.named_parameters())
        self.average = {name: value.detach().clone() for name, value in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after this zero-based step of all."""
        share = (1 - self.decay) / (1 - self.decay ** (step + 1))
        for name, value in self._parameters.items():
            self.average[name].lerp_(value, share)

    def restore(self, average: Mapping[str, Tensor]) -> None:
        """Go on from an average that a checkpoint holds."""
        for name, value in self.average.items():
            value.copy_(average[name])

    @torch.no_grad()
    def put(self) -> None:
        """Give the model the averaged weights, for good."""
        for name, value in self._parameters.items():
            value.copy_(self.average[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights for a while, then its own again."""
        trained = {name: value.detach().clone() for name, value in self._parameters.items()}
        self.put()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in self._parameters.items():
                    value.copy_(trained[name])
