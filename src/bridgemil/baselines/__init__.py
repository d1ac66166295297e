"""Baselines without a network: features of one subject at a time, and a classifier on them. Created by name.

Add one with a file, a class (``bridgemil.baselines.baseline.Baseline``) and a line below, or with ``register``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from bridgemil import user_code
from bridgemil.baselines.baseline import Baseline
from bridgemil.cohort.signal import Signal, require_rate
from bridgemil.errors import BadUse
from bridgemil.registry import Entry, Registry

__all__ = ["Baseline", "create", "defaults", "fingerprint", "get", "names", "register"]

BASELINES = Registry("baseline", __name__, {
    "bandpower": Entry("logistic regression on band power", "bandpower:BandPower", "#7d8287", "square"),
    "tangent": Entry("logistic regression on log-covariances and band power", "tangent:Tangent", "#009e73", "square"),
})  # fmt: skip
_Kind = TypeVar("_Kind", bound=type[Baseline])


def names() -> list[str]:
    """Names of the built-in and registered baselines.

    Returns
    -------
    list of str
    """
    return list(BASELINES)


def defaults() -> list[str]:
    """The baselines that every method is compared with by default."""
    return ["bandpower", "tangent"]


def get(name: str) -> type[Baseline]:
    """The class of a baseline, by one of ``names()`` or the address of a scikit-learn pipeline."""
    if user_code.is_address(name):
        from bridgemil.baselines.pipeline import load

        return load(name)
    baseline: type[Baseline] = BASELINES.load(name)
    return baseline


def create(name: str, settings: Mapping[str, Any], signal: Signal) -> Baseline:
    """A baseline for windows of this signal; signals that it cannot use are refused.

    Parameters
    ----------
    name : str
        One of ``names()``, or the address of your own scikit-learn pipeline, ``path/to/file.py:NAME``.
    settings : dict
        Settings of the baseline by name; others have their defaults.
    signal : Signal
        Channels, sampling rate and length that all windows share.

    Returns
    -------
    Baseline
    """
    kind = get(name)
    if kind.needs_rate:
        require_rate(f"baseline {name!r}", signal.sfreq)
    return kind(kind.Settings(**settings), signal)


def fingerprint(name: str) -> str | None:
    """The hash of the code of a pipeline or a registered baseline; None for those of the package."""
    if user_code.is_address(name):
        return user_code.fingerprint(name)
    return user_code.fingerprint(get(name)) if name not in BASELINES.built_in else None


def register(cls: _Kind) -> _Kind:
    """Make a baseline available by its name, in this process; also a decorator. A registered name is replaced.

    Parameters
    ----------
    cls : type
        The class, a ``Baseline`` with a ``name``, a docstring and ``Settings`` whose fields all have defaults.

    Returns
    -------
    type
        The class itself.
    """
    name = getattr(cls, "name", None)
    if not isinstance(cls, type) or not issubclass(cls, Baseline):
        raise BadUse(f"a baseline is a class made from bridgemil.baselines.Baseline, got {cls!r}")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadUse(f"{cls.__name__}.name must be small letters, digits and _, got {name!r}")
    needed = [field for field, info in cls.Settings.model_fields.items() if info.is_required()]
    if needed:
        raise BadUse(f"baseline {name!r}: its settings need defaults, {', '.join(needed)} has none")
    if name in BASELINES.built_in:
        raise BadUse(f"baseline {name!r} comes with the package and cannot be replaced; choose another name")
    BASELINES[name] = Entry((cls.__doc__ or name).strip().splitlines()[0].rstrip("."), cls)
    return cls
