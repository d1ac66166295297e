"""A moving average of a model's weights: validated, selected and returned instead of the weights that are trained.

Averaged weights need batch-norm statistics of their own: the running ones follow the trained weights, whose activations
are of another size. They are re-estimated on training windows (Izmailov et al. 2018, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bridgemil.learning.data import WindowSet

MOST_WINDOWS = 8192  # that statistics are estimated on
BATCH = 512


class WeightAverage:
    """An exponential moving average of parameters over steps, with batch-norm statistics for it.

    After step t the average is the mean of the weights after steps 1 to t, those of k steps ago counting decay^k
    (0 < decay < 1): the random start does not count, and there is no state but the average.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.model = decay, model
        self.average = {name: value.detach().clone() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after this zero-based step of all."""
        share = (1 - self.decay) / (1 - self.decay ** (step + 1))
        for name, value in self.model.named_parameters():
            self.average[name].lerp_(value, share)

    def put(self) -> None:
        """Give the model the averaged weights; its batch-norm statistics stay as they are."""
        self.model.load_state_dict(self.average, strict=False)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights for a while, then its own again, with their statistics."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.put()
        try:
            yield
        finally:
            self.model.load_state_dict(own)


@torch.no_grad()
def estimate_statistics(network: nn.Module, data: WindowSet, device: torch.device, seed: int) -> None:
    """Replace the running statistics of a network's batch norms by those of training windows under its present weights.

    Mean and variance are over up to ``MOST_WINDOWS`` windows, drawn at random, without dropout: what the network will
    compute when it is used. Only norms in training mode are estimated (a frozen encoder keeps its statistics), and only
    those that follow trained weights: statistics of fixed features are those of any weights. Norms of other kinds (on
    manifolds) move from where they are, with their own momentum. All but these norms is left in evaluation mode.
    """
    norms = [module for module in network.modules() if _has_statistics(module) and module.training]
    network.eval()
    fixed = _fixed(network, data, device) if norms else []
    norms = [module for module in norms if module not in fixed]
    if not norms:
        return
    order = np.random.default_rng(seed).permutation(len(data))[:MOST_WINDOWS]
    for module in norms:
        module.train()
    plain: list[Any] = [module for module in norms if isinstance(module, _BatchNorm)]
    kept = [(norm.momentum, deepcopy(norm.num_batches_tracked)) for norm in plain]
    totals = [torch.zeros(()) for _ in plain]  # 2 x channels: sums of values and of squares
    for part in np.array_split(order, max(1, round(len(order) / BATCH))):
        for norm in plain:  # from zero, with a momentum of one half, a batch leaves half of its own statistics
            norm.momentum = 0.5
            norm.running_mean.zero_()
            norm.running_var.zero_()
        network(data.take(np.sort(part)).to(device))
        for i, norm in enumerate(plain):
            mean, variance = 2 * norm.running_mean.double(), 2 * norm.running_var.double()
            totals[i] = totals[i].to(mean) + len(part) * torch.stack([mean, variance + mean.square()])
    for norm, total, (momentum, tracked) in zip(plain, totals, kept, strict=True):
        mean, square = total / len(order)
        norm.running_mean.copy_(mean)
        norm.running_var.copy_((square - mean.square()).clamp_min(0))
        norm.momentum = momentum
        if tracked is not None:
            norm.num_batches_tracked.copy_(tracked)


def _has_statistics(module: nn.Module) -> bool:
    own = dict(module.named_buffers(recurse=False))
    return any(name.startswith("running") and value is not None for name, value in own.items())


def _fixed(network: nn.Module, data: WindowSet, device: torch.device) -> list[nn.Module]:
    """The batch norms whose input no trained weight changes: it has no gradient."""
    found: list[nn.Module] = []

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not inputs[0].requires_grad:
            found.append(module)

    hooks = [m.register_forward_pre_hook(look) for m in network.modules() if isinstance(m, _BatchNorm)]
    try:
        with torch.enable_grad():
            network(data.take(np.arange(min(2, len(data)))).to(device))
    finally:
        for hook in hooks:
            hook.remove()
    return found
