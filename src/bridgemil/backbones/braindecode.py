"""Any braindecode model as a backbone: what enters its final layer is the embedding."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from bridgemil.errors import BadUse


class _FinalInput(nn.Module):
    """Stands in for a model's final layer and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        self.seen = x.flatten(1)
        return self.seen


class Features(nn.Module):
    """A braindecode model without its final layer (or its several final layers, whose inputs are joined)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        several = isinstance(model.final_layer, nn.ModuleList)
        self.taps = [_FinalInput() for _ in range(len(model.final_layer) if several else 1)]
        model.final_layer = nn.ModuleList(self.taps) if several else self.taps[0]

    def forward(self, x: Tensor) -> Tensor:
        """N x C x T -> N x d."""
        self.model(x)
        seen = [tap.seen for tap in self.taps if tap.seen is not None]
        for tap in self.taps:
            tap.seen = None  # a graph must not outlive its step
        return torch.cat(seen, dim=1)


def features(model_name: str, n_channels: int, n_times: int, **options: Any) -> Features:
    """Build the named braindecode model for windows of C x T and expose its features.

    Raises
    ------
    BadUse
        If braindecode cannot be imported, has no such model, or the model has no final layer to take off.
    """
    try:
        from braindecode import models
    except Exception as error:  # its dependencies fail in several ways (a missing library is an OSError)
        raise BadUse(
            f"braindecode:{model_name} needs the extra `pip install '.[braindecode]'` and a torchaudio built for "
            f"your torch; importing braindecode failed with {type(error).__name__}: {error}"
        ) from error
    if not hasattr(models, model_name):
        known = ", ".join(sorted(name for name in dir(models) if name[0].isupper()))
        raise BadUse(f"braindecode has no model {model_name!r}; it has {known}")
    given: dict[str, Any] = {"n_chans": n_channels, "n_times": n_times, "n_outputs": 2, "sfreq": 200.0}
    accepted = inspect.signature(getattr(models, model_name)).parameters
    given = {name: value for name, value in given.items() if name in accepted}
    try:
        model = getattr(models, model_name)(**(given | options))
    except Exception as error:
        raise BadUse(f"braindecode:{model_name} cannot be built for {n_channels} x {n_times}: {error}") from error
    if not isinstance(getattr(model, "final_layer", None), nn.Module):
        raise BadUse(f"braindecode:{model_name} has no final_layer, so its features cannot be told apart")
    return Features(model)
