"""Backbones map a window (C x T) to an embedding. Create them by name; add one with a file and a line, or ``register``.

A name is that of a built-in or registered backbone, ``braindecode:MODEL`` or ``spd_learn:MODEL`` (optional extras), or
the address of a user's class or function: ``path/to/net.py:NAME``, ``package.module:NAME``.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from bridgemil import user_code
from bridgemil.cohort.signal import Signal, require_rate
from bridgemil.errors import BadUse, BridgeMILError, did_you_mean
from bridgemil.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

# A function ``head`` of the file is the backbone's own window classifier (else a linear layer); a ``FrontEnd`` is the
# fixed part whose features can be stored.
BACKBONES = Registry("backbone", __name__, {
    "eegnet": Entry("temporal and spatial filters (Lawhern et al. 2018)", "eegnet:EEGNet"),
    "conformer": Entry("convolution, then a transformer (Song et al. 2023)", "conformer:Conformer"),
    "lcadnet": Entry("two 3 x 3 convolutions over electrodes x time", "lcadnet:LCADNet"),
    "dsainet": Entry("a coarse and a fine temporal branch with cross-attention", "dsainet:DSAINet"),
    "mtdnet": Entry("three temporal scales, then an LSTM", "mtdnet:MTDNet"),
    "covariance": Entry("log-covariances of frequency bands, then a linear layer", "covariance:Covariance"),
})  # fmt: skip
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    BACKBONES[name] = Entry("registered by the user", factory)


def check(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Refuse a name, or options for it, that ``create`` does not know, before any work; a user's file is loaded."""
    if name in BACKBONES.built_in and not options:
        return  # nothing heavy is imported for a name
    signature, given = _signature(name)
    parameters = signature.parameters
    known = [key for key, value in parameters.items() if value.kind not in _STARRED and key not in given]
    unknown = [option for option in options or () if option not in known]
    takes_any = any(value.kind is inspect.Parameter.VAR_KEYWORD for value in parameters.values())
    takes_any &= name.partition(":")[0] not in user_code.PACKAGES
    if unknown and (not takes_any or set(unknown) & set(given)):
        hint = did_you_mean(unknown[0], known)
        if "weights" in unknown:
            hint = "; weights that are not trained further are given with --frozen"
        raise BadUse(f"{name} has no option {', '.join(unknown)}; it has: {', '.join(known) or 'none'}{hint}")


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
        Options of the backbone (see its class); ``channels``, electrode names, for a user's that requires them.

    Returns
    -------
    torch.nn.Module
    """
    given = _signature(name)[1]
    context = {key: options.pop(key) for key in ("channels",) if key in given and key in options}
    check(name, options)
    if "channels" in given and not context:
        raise BadUse(f"backbone {name!r} needs the electrode names: channels=[…]")
    if "sfreq" in given:
        require_rate(f"backbone {name!r}", sfreq)
        context["sfreq"] = sfreq
    try:
        backbone = _factory(name)(n_channels, n_times, **context, **options)
    except BridgeMILError:
        raise
    except Exception as error:
        size, message = f"{n_channels} x {n_times}", user_code.describe_error(error)
        raise BadUse(f"backbone {name!r} cannot be built for windows of {size}: {message}") from error
    if name not in BACKBONES.built_in:
        from bridgemil.backbones import custom

        custom.try_on_windows(name, backbone, n_channels, n_times)
        custom.refuse_reuse(name, backbone)
    return backbone


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
    from torch import nn

    check(name)
    make = getattr(_module(name), "head", nn.Linear) if name in BACKBONES.built_in else nn.Linear
    return make(embedding_dim, n_classes)


def for_signal(name: str, signal: Signal, options: Mapping[str, Any]) -> nn.Module:
    """A new encoder for windows of this signal; its size, rate, electrodes and filters are given to those that ask."""
    return create(name, signal.n_channels, signal.n_times, sfreq=signal.sfreq, **_with_context(name, signal, options))


def try_out(name: str, signal: Signal, options: Mapping[str, Any]) -> str | None:
    """Build one and throw it away, so that what cannot be is refused before any work; returns its ``fingerprint``."""
    options = _with_context(name, signal, options)
    return fingerprint(name, signal.n_channels, signal.n_times, sfreq=signal.sfreq, options=options)


def _with_context(name: str, signal: Signal, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, and what the backbone asks for of the electrodes and filters of a signal."""
    signature, given = _signature(name)
    asked: Collection[str] = signature.parameters if name in BACKBONES.built_in else given
    context = {key: getattr(signal, key) for key in ("native_sfreq", "low", "high", "notch") if key in asked}
    if "channels" in asked:
        context["channels"] = list(signal.channels)
    return context | dict(options)


def fingerprint(
    name: str, n_channels: int, n_times: int, *, sfreq: float = 200.0, options: Mapping[str, Any] | None = None
) -> str | None:
    """What a backbone is, beyond its name and options; none for a built-in, whose name says it.

    For a user's code a hash of that code, for a package's model the package's version; with the names, shapes and
    kinds of the numbers that one holds. Parameters are those of ``create``. The caller's random state is left as it is.
    """
    from bridgemil.backbones.custom import random_state_kept

    with random_state_kept():
        backbone = create(name, n_channels, n_times, sfreq=sfreq, **(options or {}))
    if name in BACKBONES.built_in:
        return None
    if (package := name.partition(":")[0]) in user_code.PACKAGES:
        import importlib.metadata  # slow to import, seldom needed

        code = f"{package} {importlib.metadata.version(package)}"
    else:
        code = user_code.fingerprint(BACKBONES.load(name) if name in BACKBONES else name)
    numbers = [
        (key, tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", "")))
        for key, value in backbone.state_dict().items()
    ]
    return hashlib.sha256(repr((code, numbers)).encode()).hexdigest()


def has_front_end(name: str) -> bool:
    """Whether a built-in has a fixed front end, whose features stand for the windows."""
    return name in BACKBONES.built_in and hasattr(_module(name), "FrontEnd")


def embedding_dim(encoder: nn.Module) -> int:
    """The d of an encoder's embeddings."""
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def _module(name: str) -> Any:
    return importlib.import_module(BACKBONES.load(name).__module__)


def _factory(name: str) -> Callable[..., nn.Module]:
    """The class or function that makes a backbone; refuses a name that is none."""
    if name not in BACKBONES:
        from bridgemil.backbones import custom

        return custom.factory(name, names())
    return BACKBONES.load(name)


def _signature(name: str) -> tuple[inspect.Signature, list[str]]:
    """The signature of a backbone, and those of its parameters that are no options, as they follow from the windows."""
    factory: Any = _factory(name)
    if name.partition(":")[0] in user_code.PACKAGES:
        from bridgemil.backbones.custom import GIVEN

        return inspect.signature(factory.kind), GIVEN
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError) as error:
        raise BadUse(f"backbone {name!r}: Python cannot tell its arguments ({error}); wrap it in a function") from error
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    size = [key for key, value in signature.parameters.items() if value.kind in by_place][:2]
    told = [
        key for key, value in signature.parameters.items()
        if key == "sfreq" or (key == "channels" and value.default is inspect.Parameter.empty)
    ]  # fmt: skip
    return signature, size + [key for key in told if key not in size]
