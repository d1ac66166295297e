"""Backbones that are not ours: a user's class or function, and the models of braindecode and spd_learn.

What enters the final layer of a package's model is the embedding. Every such network is tried on two windows first.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from bridgemil import user_code
from bridgemil.errors import BadUse, did_you_mean

PACKAGES = {"braindecode": " and a torchaudio built for your torch", "spd_learn": ""}  # what they need besides
GIVEN = ["n_chans", "n_times", "n_outputs", "sfreq"]  # what a package's model is told about the windows; no options
_IN_USE: dict[str, WeakValueDictionary[int, Any]] = {}  # networks that users' factories returned, while they live


class Tap(nn.Module):
    """Stands in for a model's final layer and keeps its input, N x d."""

    seen: Tensor | None = None

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        """Keep the input and pass it on."""
        self.seen = x.flatten(1)
        return self.seen


class Features(nn.Module):
    """A model on windows N x C x T whose final layers are taps; the inputs of several are concatenated."""

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


@dataclass(frozen=True)
class PackageModel:
    """A model of braindecode or spd_learn, called like any other backbone; the package is imported when it is used."""

    name: str

    @property
    def kind(self) -> type[nn.Module]:
        """The class of the model."""
        package, _, model = self.name.partition(":")
        try:
            models = importlib.import_module(f"{package}.models")
        except Exception as error:  # dependencies fail in several ways (a missing library is an OSError)
            raise BadUse(
                f"{self.name} needs the extra `pip install '.[{package}]'`{PACKAGES[package]}; importing {package} "
                f"failed with {type(error).__name__}: {error}"
            ) from error
        classes = inspect.getmembers(models, inspect.isclass)
        known = {key: value for key, value in classes if issubclass(value, nn.Module)}
        if model not in known:
            raise BadUse(f"{package} has no model {model!r}; it has {', '.join(known)}{did_you_mean(model, known)}")
        return known[model]

    def __call__(self, n_channels: int, n_times: int, *, sfreq: float, **options: Any) -> nn.Module:
        """A network N x C x T -> N x d for windows of C x T at a rate in Hz."""
        kind, values = self.kind, (n_channels, n_times, 2, sfreq)
        accepted = inspect.signature(kind).parameters
        given = {key: value for key, value in zip(GIVEN, values, strict=True) if key in accepted}
        built = kind(**given, **options)
        linear = [place for place, layer in built.named_modules() if isinstance(layer, nn.Linear)]
        place = "final_layer" if self.name.startswith("braindecode") else linear[-1] if linear else ""
        parent, _, last = place.rpartition(".")
        final = getattr(built.get_submodule(parent), last, None)
        if not isinstance(final, nn.Module):
            raise BadUse(f"{self.name} has no final layer that could be replaced, so that it has no embedding")
        taps = [Tap() for _ in (final if isinstance(final, nn.ModuleList) else [final])]
        setattr(built.get_submodule(parent), last, nn.ModuleList(taps) if isinstance(final, nn.ModuleList) else taps[0])
        return Features(built, taps)


def factory(name: str, known: Sequence[str]) -> Callable[..., nn.Module]:
    """The class or function at an address, or a package's model; refuses others and lists the ``known`` plain names."""
    target, _, attribute = name.rpartition(":")
    if target in PACKAGES:
        return PackageModel(name)
    if user_code.is_address(name):
        try:
            return user_code.load(name)
        except BadUse as error:
            hint = did_you_mean(target, PACKAGES).replace("?", f":{attribute}?")
            raise BadUse(f"{error}{hint}") from error.__cause__
    hint = did_you_mean(name, known)
    if name.endswith(".py"):
        hint = f"; name the class or function in it too: {name}:NAME"
    others = ", ".join([*(f"{package}:MODEL" for package in PACKAGES), "path/to/file.py:NAME"])
    raise BadUse(f"backbone must be one of {', '.join(known)}, {others} or package.module:NAME, got {name!r}{hint}")


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Leave no trace in the random numbers of torch, numpy and Python."""
    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 (users may use it)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numbers)  # noqa: NPY002


def refuse_reuse(name: str, backbone: nn.Module) -> None:
    """Refuse a network that was returned before, or one that shares weights with it."""
    in_use = _IN_USE.setdefault(name, WeakValueDictionary())
    parts = [backbone, *(parameter for parameter in backbone.parameters() if parameter.requires_grad)]
    if any(in_use.get(id(part)) is part for part in parts):
        raise BadUse(
            f"backbone {name!r} gave a network, or weights, that it gave before: what was learnt from some subjects "
            "would leak into other folds. Make a new network in each call"
        )
    in_use.update({id(part): part for part in parts})


def try_on_windows(name: str, backbone: nn.Module, n_channels: int, n_times: int) -> None:
    """Apply a network to two windows, in evaluation mode; sets its embedding size if it has none."""
    if not isinstance(backbone, nn.Module):
        raise BadUse(f"backbone {name!r} must give a torch.nn.Module, it gave {type(backbone).__name__}")
    training = {part: part.training for part in backbone.modules()}
    parameter = next(backbone.parameters(), None)
    noise = torch.randn(2, n_channels, n_times, generator=torch.Generator().manual_seed(0))  # zeros have no covariance
    try:
        with torch.no_grad():
            out = backbone.eval()(noise if parameter is None else noise.to(parameter.device))
    except Exception as error:
        message = user_code.describe_error(error)
        raise BadUse(f"backbone {name!r} cannot embed windows of {n_channels} x {n_times}: {message}") from error
    for part, mode in training.items():
        part.training = mode
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 2:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise BadUse(f"backbone {name!r} must map 2 x {n_channels} x {n_times} to 2 x d, it gave {got}")
    claimed = getattr(backbone, "embedding_dim", out.shape[1])
    if claimed != out.shape[1]:
        raise BadUse(f"backbone {name!r} has embedding_dim = {claimed} but gives {out.shape[1]}")
    if not hasattr(backbone, "embedding_dim"):
        backbone.embedding_dim = int(out.shape[1])  # type: ignore[assignment]
