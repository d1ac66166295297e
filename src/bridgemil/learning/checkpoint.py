"""Tensors and what is known of them in one safetensors file: a loop's state, an encoder, a model's weights.

It is written to one side, then renamed, so it is whole or absent; and it holds the hash of its own bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bridgemil.disk import new_file
from bridgemil.stored import SEAL, StoredFolder
from bridgemil.stored.hashes import BLOCK, KIND, is_sealed
from bridgemil.stored.headers import WrongHeader, read_tensor_header

ADVICE = "delete it and run the same command again"
EMPTY = KIND + "0" * 64  # stands for the hash while it is computed


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
    whole: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().contiguous()
        place = plain.untyped_storage().data_ptr()
        whole[name] = plain.clone() if place in seen else plain  # safetensors refuses shared memory
        seen.add(place)
    content = save(whole, metadata={"about": json.dumps({SEAL: EMPTY} | dict(about))})
    start = content.index(EMPTY.encode())  # the seal is the first thing in the header
    digest = KIND + hashlib.sha256(content).hexdigest()
    with new_file(path) as stream:  # a full disk is an OSError this way
        for part in (content[:start], digest.encode(), content[start + len(EMPTY) :]):
            stream.write(part)


def read(path: Path, advice: str = ADVICE) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and what was written about them; the file's hash is checked if it holds one.

    Parameters
    ----------
    path
        What ``write`` wrote; earlier versions wrote no hash.
    advice
        What to do if it is damaged.
    """
    about = check(path, advice)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError):
        raise StoredFolder(path.parent, advice).bad(path.name, "is damaged: its tensors cannot be read") from None
    about.pop(SEAL, None)
    return tensors, about


def check(path: Path, advice: str = ADVICE) -> dict[str, Any]:
    """Refuse a file that is not whole, or not as it was written; what was written about its tensors.

    Parameters
    ----------
    path, advice
        As of ``read``.
    """
    folder = StoredFolder(path.parent, advice)
    folder.file(path.name)
    try:
        notes, length = read_tensor_header(path)
        about = json.loads(notes.get("about", "{}"))
        if not isinstance(about, dict) or not set(notes) <= {"about"}:
            raise WrongHeader("is damaged: it was changed since it was written")
        if is_sealed(about) and about.get(SEAL) != _file_hash(path, length, str(about.get(SEAL))):
            raise WrongHeader("is damaged: it was changed since it was written")
    except WrongHeader as error:
        raise folder.bad(path.name, str(error)) from None
    except OSError as error:
        raise folder.bad(path.name, f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise folder.bad(path.name, "is damaged: what is written about its tensors is no JSON") from None
    return about


def _file_hash(path: Path, length: int, stated: str) -> str:
    """Of the file as it was before the hash was put in."""
    with path.open("rb") as stream:
        digest = hashlib.sha256(stream.read(8 + length).replace(stated.encode(), EMPTY.encode(), 1))
        while block := stream.read(BLOCK):
            digest.update(block)
    return KIND + digest.hexdigest()


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
