"""Backbones map a window (C x T) to an embedding. Create them by name; add one with a file and a line, or ``register``.

A name is a built-in's, a registered one, ``braindecode:MODEL`` or ``spd_learn:MODEL`` (optional extras), or the address
of a user's class or factory: ``path/to/net.py:NAME``, ``package.module:NAME``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bridgemil import user_code
from bridgemil.cohort.signal import Signal, require_rate
from bridgemil.errors import BadUse, did_you_mean
from bridgemil.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

# The module's ``head`` is the backbone's own window classifier, its ``FrontEnd`` (if it has one) the fixed part whose
# features can be stored.
BACKBONES = Registry("backbone", __name__, {
    "eegnet": Entry("temporal and spatial filters (Lawhern et al. 2018)", "eegnet:EEGNet"),
    "conformer": Entry("convolution, then a transformer (Song et al. 2023)", "conformer:Conformer"),
    "lcadnet": Entry("two 3 x 3 convolutions over electrodes x time", "lcadnet:LCADNet"),
    "dsainet": Entry("a coarse and a fine temporal branch with cross-attention", "dsainet:DSAINet"),
    "mtdnet": Entry("three temporal scales, then an LSTM", "mtdnet:MTDNet"),
    "covariance": Entry("log-covariances of frequency bands, then a linear layer", "covariance:Covariance"),
})  # fmt: skip
_PACKAGES = ("braindecode", "spd_learn")  # each has an adapter of its name here
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_IN_USE: dict[str, WeakValueDictionary[int, Any]] = {}  # what users' factories gave, as long as it lives


def names() -> list[str]:
    """Names of the built-in and registered backbones.

    Returns
    -------
    list of str
    """
    return list(BACKBONES)


def register(name: str, factory: Callable[..., nn.Module]) -> None:
    """Register a class or factory by name in this process; an existing registration is replaced.

    Parameters
    ----------
    name : str
        A plain name: no colon, not a built-in's.
    factory : callable
        Called as ``factory(n_channels, n_times, **options)``, and with ``sfreq`` (Hz) if it accepts it; returns a new
        module N x C x T -> N x d on each call.
    """
    if name in BACKBONES.built_in or ":" in name:
        raise BadUse(f"backbone {name!r}: the name is taken or has a colon; choose another")
    if not callable(factory):
        raise BadUse(f"backbone {name!r}: the factory must be a class or a function, got {type(factory).__name__}")
    BACKBONES.add(name, Entry("registered by the user", factory))


def check(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Refuse a name or an option that ``create`` does not know, before any work.

    Parameters
    ----------
    name
        A backbone's name or address (a user's file is loaded).
    options
        The options that will be given to it.
    """
    if name in BACKBONES.built_in and not options:
        return  # nothing heavy is imported for a name
    signature, given = _signature(name)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds and not _adapter(name)  # packages swallow what they do not know
    known = [key for key, value in signature.parameters.items() if value.kind not in _STARRED and key not in given]
    unknown = [option for option in options or () if option not in known]
    if unknown and (not takes_any or set(unknown) & set(given)):
        hint = did_you_mean(unknown[0], known)
        raise BadUse(f"{name} has no option {', '.join(unknown)}; it has: {', '.join(known) or 'none'}{hint}")
    if user_code.is_address(name) or name in BACKBONES:
        try:
            signature.bind(1, 1, **(dict.fromkeys(given[2:]) | dict(options or {})))
        except TypeError as error:
            raise BadUse(f"backbone {name!r} is called with n_channels, n_times and its options: {error}") from error


def absolute(name: str) -> str:
    """The name as a worker in another folder understands it: a file's address with its absolute path."""
    return user_code.absolute(name) if user_code.is_address(name) else name


def create(name: str, n_channels: int, n_times: int, *, sfreq: float = 200.0, **options: Any) -> nn.Module:
    """An encoder: a module N x C x T -> N x d, with ``.embedding_dim`` = d.

    Parameters
    ----------
    name : str
        Name or address of a backbone.
    n_channels, n_times : int
        Size C x T of a window.
    sfreq : float, default 200.0
        Sampling rate of the windows in Hz, for backbones that use it.
    **options : Any
        Options of the backbone (see its class).

    Returns
    -------
    torch.nn.Module
    """
    check(name, options)
    if "sfreq" in _signature(name)[1]:
        require_rate(f"backbone {name!r}", sfreq)
    if adapter := _adapter(name):
        features: nn.Module = adapter.features(name.partition(":")[2], n_channels, n_times, sfreq, **options)
        return _checked(name, features, n_channels, n_times)
    factory, (_, given) = _factory(name), _signature(name)
    filled = options | ({"sfreq": sfreq} if "sfreq" in given else {})
    if name in BACKBONES.built_in:
        return factory(n_channels, n_times, **filled)
    try:
        backbone = factory(n_channels, n_times, **filled)
    except Exception as error:
        message = user_code.describe_error(error)
        raise BadUse(f"backbone {name!r} cannot be built for windows of {n_channels} x {n_times}: {message}") from error
    return _new(name, _checked(name, backbone, n_channels, n_times))


def create_head(name: str, embedding_dim: int, n_classes: int) -> nn.Module:
    """The window classifier of a backbone, N x d -> N x K; a linear layer if it has none.

    Parameters
    ----------
    name : str
        Name or address of a backbone.
    embedding_dim : int
        d.
    n_classes : int
        K.

    Returns
    -------
    torch.nn.Module
    """
    check(name)
    if name in BACKBONES.built_in:
        head: nn.Module = _module(name).head(embedding_dim, n_classes)
        return head
    from torch import nn

    return nn.Linear(embedding_dim, n_classes)


def front_end(name: str, n_channels: int, n_times: int, *, sfreq: float = 200.0, **options: Any) -> nn.Module | None:
    """The fixed part of a backbone, its ``.front_end``, whose features can be stored; none if it has none.

    Parameters
    ----------
    name, n_channels, n_times, sfreq, **options
        As for ``create``. The caller's random state is left as it is.
    """
    if name in BACKBONES.built_in and not hasattr(_module(name), "FrontEnd"):
        check(name, options)
        return None
    with _random_state_kept():
        return getattr(create(name, n_channels, n_times, sfreq=sfreq, **options), "front_end", None)


def fingerprint(
    name: str, n_channels: int, n_times: int, *, sfreq: float = 200.0, options: Mapping[str, Any] | None = None
) -> str | None:
    """What a backbone is, beyond its name and options; none for a built-in, whose name says it.

    For a user's code a hash of that code, for a package's model the package's version; with the names, shapes and
    kinds of the numbers that one holds.

    Parameters
    ----------
    name, n_channels, n_times, sfreq, options
        As for ``create``. The caller's random state is left as it is.
    """
    if name in BACKBONES.built_in:
        check(name, options)
        return None
    with _random_state_kept():
        state = create(name, n_channels, n_times, sfreq=sfreq, **(options or {})).state_dict()
    if _adapter(name):
        import importlib.metadata  # slow to import, seldom needed

        package = name.partition(":")[0]
        code = f"{package} {importlib.metadata.version(package)}"
    else:
        code = user_code.fingerprint(BACKBONES.load(name) if name in BACKBONES else name)
    numbers = [
        (key, tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", ""))) for key, value in state.items()
    ]
    return hashlib.sha256(repr((code, numbers)).encode()).hexdigest()


def for_signal(name: str, signal: Signal, options: Mapping[str, Any]) -> nn.Module:
    """A new encoder for windows of this signal: size, rate, electrodes, filters are given to those that ask.

    Parameters
    ----------
    name
        A backbone's name or address.
    signal
        What every window has in common.
    options
        The backbone's own.
    """
    context: dict[str, Any] = {}
    if name in BACKBONES.built_in:
        asked = _signature(name)[0].parameters
        offered = ("channels", "native_sfreq", "low", "high", "notch")
        context = {key: getattr(signal, key) for key in offered if key in asked}
    try:
        return create(name, signal.n_channels, signal.n_times, sfreq=signal.sfreq, **(context | dict(options)))
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, BadUse):
            raise
        size = f"{signal.n_channels} x {signal.n_times}"
        raise BadUse(f"backbone {name!r} cannot be built for windows of {size}: {error}") from error


def try_out(name: str, signal: Signal, options: Mapping[str, Any]) -> str | None:
    """Build one and throw it away, so that what cannot be is refused before any work; returns its ``fingerprint``."""
    if name in BACKBONES.built_in:
        _built(name, signal, json.dumps(dict(options), sort_keys=True))
        return None
    return fingerprint(name, signal.n_channels, signal.n_times, sfreq=signal.sfreq, options=options)


@functools.cache
def _built(name: str, signal: Signal, options: str) -> None:
    with _random_state_kept():
        for_signal(name, signal, json.loads(options))


def has_front_end(name: str) -> bool:
    """Whether a built-in has a fixed front end, whose features stand for the windows."""
    return name in BACKBONES.built_in and hasattr(_module(name), "FrontEnd")


def embedding_dim(encoder: nn.Module) -> int:
    """The d of an encoder's embeddings."""
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def _module(name: str) -> Any:
    return importlib.import_module(BACKBONES.load(name).__module__)


def _adapter(name: str) -> Any:
    """The adapter of a package's model; none for other names."""
    package, colon, _ = name.partition(":")
    return importlib.import_module(f"{__name__}.{package}") if colon and package in _PACKAGES else None


def _factory(name: str) -> Callable[..., nn.Module]:
    """What is called to make a backbone; refuses a name that is none."""
    if name in BACKBONES:
        factory: Callable[..., nn.Module] = BACKBONES.load(name)
        return factory
    target, _, attribute = name.rpartition(":")
    if user_code.is_address(name):
        try:
            return user_code.load(name)
        except BadUse as error:
            hint = did_you_mean(target, _PACKAGES).replace("?", f":{attribute}?")
            raise BadUse(f"{error}{hint}") from error.__cause__
    hint = did_you_mean(name, names())
    if name.endswith(".py"):
        hint = f"; name the class or function in it too: {name}:NAME"
    others = ", ".join([*(f"{package}:MODEL" for package in _PACKAGES), "path/to/file.py:NAME"])
    raise BadUse(f"backbone must be one of {', '.join(names())}, {others} or package.module:NAME, got {name!r}{hint}")


def _signature(name: str) -> tuple[inspect.Signature, list[str]]:
    """How a backbone is called, and which of its parameters are no options, as they follow from the windows."""
    if adapter := _adapter(name):
        return inspect.signature(adapter.model(name.partition(":")[2])), adapter.GIVEN
    factory = _factory(name)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError) as error:
        raise BadUse(f"backbone {name!r}: Python cannot tell its arguments ({error}); wrap it in a function") from error
    size = [key for key, value in signature.parameters.items() if value.kind in _BY_PLACE][:2]
    return signature, size + [key for key in signature.parameters if key == "sfreq" and key not in size]


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leave no trace in the random numbers of torch, numpy and Python."""
    import random

    import numpy as np
    import torch

    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 (users may use it)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numbers)  # noqa: NPY002


def _new(name: str, backbone: nn.Module) -> nn.Module:
    """Refuse a network that was given before, or one that shares weights with it."""
    in_use = _IN_USE.setdefault(name, WeakValueDictionary())
    parts = [backbone, *(parameter for parameter in backbone.parameters() if parameter.requires_grad)]
    if any(in_use.get(id(part)) is part for part in parts):
        raise BadUse(
            f"backbone {name!r} gave a network, or weights, that it gave before: what was learnt from some subjects "
            "would leak into other folds. Make a new network in each call"
        )
    in_use.update({id(part): part for part in parts})
    return backbone


def _checked(name: str, backbone: nn.Module, n_channels: int, n_times: int) -> nn.Module:
    """Try a foreign module on two windows, in evaluation mode; note its embedding size."""
    import torch

    if not isinstance(backbone, torch.nn.Module):
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
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != 2:
        got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise BadUse(f"backbone {name!r} must map 2 x {n_channels} x {n_times} to 2 x d, it gave {got}")
    claimed = getattr(backbone, "embedding_dim", out.shape[1])
    if claimed != out.shape[1]:
        raise BadUse(f"backbone {name!r} says embedding_dim = {claimed} but gives {out.shape[1]}")
    if not hasattr(backbone, "embedding_dim"):
        backbone.embedding_dim = int(out.shape[1])  # type: ignore[assignment]
    return backbone
