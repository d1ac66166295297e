"""Tensors on disk: the weights in an artifact, and the checkpoint of an unfinished loop.

A checkpoint is one safetensors file, because it must be replaced in one step after every epoch; its metadata hold a
checksum of its content.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from bridgemil.errors import BadData
from bridgemil.storage.artifact import regular_file
from bridgemil.storage.files import new_file

ADVICE = "delete it and run the same command again"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors of any shape to a safetensors file, in one step."""
    # Copies: safetensors refuses shared memory.
    copies = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    content = save(copies, metadata=None if metadata is None else dict(metadata))
    with new_file(path) as stream:  # a full disk is an OSError this way
        stream.write(content)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    return load_file(path)


def write(path: Path, parts: Mapping[str, Mapping[str, Tensor]], metadata: Mapping[str, Any]) -> None:
    """Replace the checkpoint at ``path``: parts of named tensors, and ``metadata``, anything JSON can hold."""
    tensors = {f"{part}.{name}": tensor for part, own in parts.items() for name, tensor in own.items()}
    text = json.dumps(dict(metadata))
    # In one entry: safetensors writes several in any order, and the same state must give the same bytes.
    write_tensors(path, tensors, {"checkpoint": json.dumps([text, checksum(tensors, text)])})


def read(path: Path) -> tuple[defaultdict[str, dict[str, Tensor]], dict[str, Any]]:
    """The parts of a checkpoint, on the CPU, and its metadata; a damaged file is refused."""
    regular_file(path.parent, path.name, ADVICE)
    try:
        tensors = read_tensors(path)
        with safe_open(path, framework="pt") as file:
            text, stored = json.loads((file.metadata() or {})["checkpoint"])
        if stored != checksum(tensors, text):
            raise ValueError
    except (SafetensorError, OSError, ValueError, KeyError):
        raise BadData(f"{path}: is damaged; {ADVICE}") from None
    return by_part(tensors), json.loads(text)


def by_part(tensors: Mapping[str, Tensor]) -> defaultdict[str, dict[str, Tensor]]:
    """Tensors named ``part.name``, by part and name."""
    parts: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for place, tensor in tensors.items():
        part, _, name = place.partition(".")
        parts[part][name] = tensor
    return parts


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Of names, types, shapes and values, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and counts as named tensors; the rates are not state, they follow from the step."""
    state = optimiser.state_dict()["state"]
    return {f"{index}.{name}": value for index, moments in state.items() for name, value in moments.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo ``optimiser_state``."""
    state = {int(index): moments for index, moments in by_part(tensors).items()}
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
