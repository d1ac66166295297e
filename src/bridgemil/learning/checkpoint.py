"""A training loop's state in one safetensors file: written to one side, then renamed, so it is whole or absent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bridgemil.errors import BadData


def write(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace the file at ``path``.

    Parameters
    ----------
    path
        A safetensors file, there or not.
    tensors
        Of any shape, by name.
    about
        What else to keep; anything JSON can hold.
    """
    aside = path.with_name(path.name + ".part")
    whole: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().contiguous()
        place = plain.untyped_storage().data_ptr()
        whole[name] = plain.clone() if place in seen else plain  # safetensors refuses shared memory
        seen.add(place)
    aside.write_bytes(save(whole, metadata={"about": json.dumps(about)}))  # a full disk is an OSError this way
    aside.replace(path)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and what was written about them."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
    except (SafetensorError, ValueError) as error:
        raise BadData(f"{path}: is damaged ({error}); delete it and run the same command again") from None
    return tensors, about


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, their names under a prefix."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names were put under a prefix."""
    return {name[len(prefix) + 1 :]: value for name, value in tensors.items() if name.startswith(prefix + ".")}


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and counts as named tensors; the rates are not state, they follow from the step."""
    state = optimiser.state_dict()["state"]
    return {f"{index}.{name}": value for index, moments in state.items() for name, value in moments.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo ``optimiser_state``."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
