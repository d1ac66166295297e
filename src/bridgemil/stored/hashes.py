"""Hashes that tell whether a file is still what was written.

They show damage and edits, not deceit: who wants to deceive can write a new hash as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bridgemil.disk import new_file, write_json

SEAL = "seal"  # the key of a JSON file that holds the hash of all others
KIND = "sha256:"
BLOCK = 2**20  # bytes read at once: a file may be larger than memory


def content_hash(content: Mapping[str, Any]) -> str:
    """Of what a JSON file says, not of how it is laid out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its seal, as JSON holds it."""
    plain: dict[str, Any] = json.loads(json.dumps({key: value for key, value in content.items() if key != SEAL}))
    return plain | {SEAL: KIND + content_hash(plain)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether there is a seal, be its name damaged or its value."""
    return SEAL in content or any(isinstance(value, str) and value.startswith(KIND) for value in content.values())


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its seal, in one step."""
    write_json(path, seal(content))


def file_hash(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stretch_hash(stream: IO[bytes], n_bytes: int, before: str) -> str:
    """Of some words and the next ``n_bytes`` of a stream, read a block at a time."""
    digest = hashlib.sha256(before.encode())
    for block in _blocks(stream, n_bytes):
        digest.update(block)
    return digest.hexdigest()


def _blocks(stream: IO[bytes], n_bytes: int) -> Iterator[memoryview]:
    room = memoryview(bytearray(min(BLOCK, max(n_bytes, 1))))
    while n_bytes > 0:
        n = stream.readinto(room[: min(len(room), n_bytes)])  # type: ignore[attr-defined]
        if not n:
            return
        n_bytes -= n
        yield room[:n]


def write_hashed_array(path: Path, array: Any, words: str) -> None:
    """Write an array, in one step, as an .npy file that ends in its hash.

    One file, so that processes that compute the same array can never mix one's numbers with the other's hash. The hash
    covers what the array is of (``words``) too: a file that was renamed is noticed.
    """
    import numpy as np

    plain = np.ascontiguousarray(array)
    digest = hashlib.sha256(f"{words}{plain.shape}".encode())
    digest.update(plain.data)
    with new_file(path) as stream:
        np.save(stream, plain, allow_pickle=False)
        stream.write(digest.hexdigest().encode())
