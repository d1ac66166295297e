"""SHA-256 checksums of files, arrays and JSON content: what is stored is compared, and runs are named, by these."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def digest(content: Any) -> str:
    """The checksum of anything JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def array_checksum(array: NDArray[Any]) -> str:
    """The checksum of an array's shape and values (any shape; the dtype is not part of it)."""
    import numpy as np

    found = hashlib.sha256(f"{array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def file_checksum(path: Path) -> str:
    """The checksum of a file, read one block at a time."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
