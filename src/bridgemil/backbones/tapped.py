"""A package's model as a backbone: what enters its final layer is the embedding."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bridgemil.errors import BadUse, did_you_mean


class Tap(nn.Module):
    """Stands in for a model's final layer and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        """Keep the input, N x d, and pass it on."""
        self.seen = x.flatten(1)
        return self.seen


class Features(nn.Module):
    """A model whose final layers are taps; what reaches several of them is joined.

    Parameters
    ----------
    model
        A network on windows N x C x T.
    taps
        What now stands in the place of its final layers.
    """

    def __init__(self, model: nn.Module, taps: Sequence[Tap]) -> None:
        super().__init__()
        self.model = model
        self.taps = list(taps)

    def forward(self, x: Tensor) -> Tensor:
        """N x C x T -> N x d."""
        self.model(x)
        seen = [tap.seen for tap in self.taps if tap.seen is not None]
        for tap in self.taps:
            tap.seen = None  # a graph must not outlive its step
        return torch.cat(seen, dim=1)


def choose(models: Any, package: str, name: str) -> type[nn.Module]:
    """The class of a package's model; refuses a name that it does not have."""
    public = {key: getattr(models, key, None) for key in dir(models)}
    known = {key: value for key, value in public.items() if isinstance(value, type) and issubclass(value, nn.Module)}
    if name not in known:
        raise BadUse(f"{package} has no model {name!r}; it has {', '.join(known)}{did_you_mean(name, known)}")
    return known[name]


def build(kind: type[nn.Module], full_name: str, n_channels: int, n_times: int, sfreq: float, **options: Any) -> Any:
    """A model for windows of C x T at a rate in Hz, told as much of that as it takes; two classes."""
    given: dict[str, Any] = {"n_chans": n_channels, "n_times": n_times, "n_outputs": 2, "sfreq": sfreq}
    accepted = inspect.signature(kind).parameters
    try:
        return kind(**{name: value for name, value in given.items() if name in accepted}, **options)
    except Exception as error:
        size = f"{n_channels} x {n_times} at {sfreq:g} Hz"
        raise BadUse(f"{full_name} cannot be built for windows of {size}: {type(error).__name__}: {error}") from error
