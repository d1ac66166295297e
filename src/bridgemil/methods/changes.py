"""What a user sets, ``{"stage1.epochs": 5}``, and what follows from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgemil.errors import BadUse
from bridgemil.methods.registry import ABLATIONS, METHODS

STEADY_EPOCHS = 5  # warm-up and freezing, or a tenth of the epochs if that is fewer


def flat(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1": {"epochs": 5}}`` as ``{"stage1.epochs": 5}``."""
    pairs: dict[str, Any] = {}
    for part, value in nested(changes).items():
        pairs |= {f"{part}.{name}": inner for name, inner in value.items()} if isinstance(value, Mapping) else {
            part: value
        }  # fmt: skip
    return pairs


def nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1.epochs": 5}`` as ``{"stage1": {"epochs": 5}}``."""
    found: dict[str, Any] = {}
    for key, value in changes.items():
        first, _, rest = key.partition(".")
        if rest or isinstance(value, Mapping):
            inner = found.setdefault(first, {})
            if not isinstance(inner, dict):
                raise BadUse(f"{first} is set twice")
            inner |= nested({rest: value}) if rest else dict(value)
        else:
            found[key] = value
    return found


def refuse_fixed(user: Mapping[str, Any]) -> None:
    """Refuse what is no setting, and what makes the method."""
    for name in ("method", "backbone", "budget", "recipe"):
        if name in user:
            raise BadUse(f"{name} is not a setting of a method; use --{name}")
    if wrong := {"members", "tune", "candidates"} & set(user):
        raise BadUse(f"{min(wrong)} is no setting; values to choose from are given with --tune")
    if "address" in user:
        raise BadUse("address is not a setting; name your pipeline with --method")
    if "code" in user:
        raise BadUse("code is not a setting: it is the fingerprint of your own backbone")
    if "weights" in user:
        raise BadUse("set backbone_options.weights=FILE, the weights of an encoder that is --frozen")
    if "burn_in" in user:
        raise BadUse("set stage2.burn_in, not burn_in")
    for part, name in (("stage1", "objective"), ("stage2", "kind")):
        values = user.get(part)
        if isinstance(values, Mapping) and name in values:
            raise BadUse(f"{part}.{name} is what makes the method; choose another method instead")


def part_of(user: dict[str, Any], name: str) -> dict[str, Any]:
    """Take out the settings of one part: ``stage1``, ``stage2``, ``baseline``."""
    value = user.pop(name, {})
    if not isinstance(value, Mapping):
        raise BadUse(f"{name} holds several settings: set {name}.epochs and so on, not {name} itself")
    return dict(value)


def frozen_changes(method: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """Changes for an encoder that is never trained, the file of its weights by an absolute path."""
    known = METHODS | ABLATIONS
    if known[method].stage1 is not None:
        possible = [name for name in METHODS if METHODS[name].stage1 is None]
        raise BadUse(
            f"{method} trains the encoder in Stage 1, and a frozen encoder is never trained: with --frozen use "
            f"--method attention ({', '.join(possible)})"
        )
    options = part_of(dict(user), "backbone_options")
    if options.get("weights") is not None:
        options["weights"] = os.path.abspath(Path(str(options["weights"])).expanduser())  # noqa: PTH100 (links stay)
    return {**user, "backbone_options": options}


def without_minimum(mine: dict[str, Any]) -> dict[str, Any]:
    """Setting ``epochs`` disables the minimum number of steps, unless that is set too."""
    return {"min_steps": 0} | mine if "epochs" in mine else mine


def steady_epochs(values: Mapping[str, Any], part: str) -> int:
    """Epochs of warm-up and of freezing."""
    return min(STEADY_EPOCHS, epochs_of(values, part) // 10)


def epochs_of(values: Mapping[str, Any], part: str) -> int:
    """The number of epochs, checked before pydantic sees it: others follow from it."""
    value = values["epochs"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadUse(f"{part}.epochs must be a whole number, got {value!r}")
    return value
