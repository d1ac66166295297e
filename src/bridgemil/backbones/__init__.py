"""Backbones map a window (C x T) to an embedding. Create them by name; add one with a file and a line, or ``register``.

``create("braindecode:<ModelName>", ...)`` takes any model of braindecode (an optional extra).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bridgemil.errors import BadUse

if TYPE_CHECKING:
    from torch import nn

# name -> module and class; the module's ``head`` is the backbone's own window classifier
_BUILT_IN = {
    "eegnet": ("eegnet", "EEGNet"),
    "conformer": ("conformer", "Conformer"),
    "lcadnet": ("lcadnet", "LCADNet"),
    "dsainet": ("dsainet", "DSAINet"),
    "mtdnet": ("mtdnet", "MTDNet"),
    "covariance": ("covariance", "Covariance"),
}
_REGISTERED: dict[str, Callable[[int, int], nn.Module]] = {}


def names() -> list[str]:
    """The backbones that ``create`` knows by name."""
    return [*_BUILT_IN, *_REGISTERED]


def register(name: str, factory: Callable[[int, int], nn.Module]) -> None:
    """Make ``factory(n_channels, n_times)``, a module N x C x T -> N x d, available by name.

    Its shapes are checked when one is created.
    """
    if name in _BUILT_IN or ":" in name:
        raise BadUse(f"backbone {name!r}: the name is taken or has a colon; choose another")
    _REGISTERED[name] = factory


def check(name: str) -> None:
    """Refuse a name that ``create`` does not know."""
    if name not in names() and not name.startswith("braindecode:"):
        raise BadUse(f"backbone must be one of {', '.join(names())} or braindecode:<ModelName>, got {name!r}")


def create(name: str, n_channels: int, n_times: int, **options: Any) -> nn.Module:
    """The encoder alone: a module N x C x T -> N x d, with ``.embedding_dim`` = d.

    ``options`` are the backbone's own (see its class).
    """
    check(name)
    if name in _BUILT_IN:
        made = getattr(_module(name), _BUILT_IN[name][1])
        known = [option for option in inspect.signature(made).parameters if option not in ("n_channels", "n_times")]
        unknown = [option for option in options if option not in known]
        if unknown:
            raise BadUse(f"{name} has no option {', '.join(unknown)}; it has: {', '.join(known) or 'none'}")
        backbone: nn.Module = made(n_channels, n_times, **options)
        return backbone
    if name in _REGISTERED:
        return _checked(name, _REGISTERED[name](n_channels, n_times, **options), n_channels, n_times)
    from bridgemil.backbones.braindecode import features

    return _checked(name, features(name.partition(":")[2], n_channels, n_times, **options), n_channels, n_times)


def create_head(name: str, embedding_dim: int, n_classes: int) -> nn.Module:
    """The backbone's own window classifier, N x d -> N x K; a linear layer for those that bring none."""
    check(name)
    if name in _BUILT_IN:
        head: nn.Module = _module(name).head(embedding_dim, n_classes)
        return head
    from torch import nn

    return nn.Linear(embedding_dim, n_classes)


def embedding_dim(encoder: nn.Module) -> int:
    """The d of an encoder's embeddings."""
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{_BUILT_IN[name][0]}")


def _checked(name: str, backbone: nn.Module, n_channels: int, n_times: int) -> nn.Module:
    """Try a foreign module on two windows, in evaluation mode; note its embedding size."""
    import torch

    training = backbone.training
    parameter = next(backbone.parameters(), None)
    device = None if parameter is None else parameter.device
    try:
        with torch.no_grad():
            out = backbone.eval()(torch.zeros(2, n_channels, n_times, device=device))
    except Exception as error:
        raise BadUse(f"backbone {name!r} cannot embed windows of {n_channels} x {n_times}: {error}") from error
    backbone.train(training)
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != 2:
        got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise BadUse(f"backbone {name!r} must map 2 x {n_channels} x {n_times} to 2 x d, it gave {got}")
    claimed = getattr(backbone, "embedding_dim", out.shape[1])
    if claimed != out.shape[1]:
        raise BadUse(f"backbone {name!r} says embedding_dim = {claimed} but gives {out.shape[1]}")
    if not hasattr(backbone, "embedding_dim"):
        backbone.embedding_dim = int(out.shape[1])  # type: ignore[assignment]
    return backbone
