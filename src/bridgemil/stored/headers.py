"""What the headers of arrays and of weights say, checked against the file before anything is allocated."""

from __future__ import annotations

import ast
import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

MOST_HEADER = 2**16  # bytes of an array's header
MOST_TENSORS = 2**26  # bytes of a header of weights
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


class WrongHeader(Exception):
    """What is wrong with it, in words."""


@dataclass(frozen=True)
class ArrayHeader:
    """What an .npy file holds.

    Parameters
    ----------
    dtype, shape
        Of the array.
    offset
        Bytes before its first number.
    more
        Bytes after its last.
    order
        ``C``, or ``F`` where the first axis runs fastest.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    more: int
    order: Literal["C", "F"] = "C"

    @property
    def n_bytes(self) -> int:
        """Of the numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_array_header(path: Path) -> ArrayHeader:
    """Read the header of an .npy file; its numbers must be there in full."""
    with path.open("rb") as stream:
        start = stream.read(10)
        if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
            raise WrongHeader("is no array of ours, or a damaged one")
        (length,) = struct.unpack("<H", start[8:])
        text = stream.read(length)
        size = os.fstat(stream.fileno()).st_size
    try:
        said = ast.literal_eval(text.decode("latin1"))
        dtype, shape = np.dtype(said["descr"]), said["shape"]
        fortran = said["fortran_order"]
        plain = isinstance(fortran, bool) and isinstance(said["descr"], str) and dtype.kind in "fiub"
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise WrongHeader("is damaged: its header cannot be read") from None
    if not plain or not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise WrongHeader("is no array of ours: plain numbers are expected")
    header = ArrayHeader(dtype, shape, 10 + length, 0)
    more = size - header.offset - header.n_bytes
    if more < 0:
        raise WrongHeader("is cut short, or its header is damaged: it does not hold the array that its header names")
    return ArrayHeader(dtype, shape, header.offset, more, "F" if fortran else "C")


def read_tensor_header(path: Path) -> tuple[dict[str, str], int]:
    """The notes in a safetensors file's header and the header's length in bytes; all tensors must be there in full."""
    with path.open("rb") as stream:
        start = stream.read(8)
        size = os.fstat(stream.fileno()).st_size
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(MOST_TENSORS, size - 8):
            raise WrongHeader("is damaged: it is cut short, or no file of weights")
        text = stream.read(length)
    try:
        content = json.loads(text.decode("utf-8"))
        notes = dict(content.pop("__metadata__", {}))
        ends = [_end(entry) for entry in content.values()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise WrongHeader("is damaged: its header cannot be read") from None
    if max(ends, default=0) != size - 8 - length:
        raise WrongHeader("is damaged: it does not hold the tensors that its header names")
    return {str(key): str(value) for key, value in notes.items()}, length


def _end(entry: dict[str, Any]) -> int:
    """Where a tensor ends, if it is as long as its shape asks for."""
    first, last = entry["data_offsets"]
    if not 0 <= first <= last or last - first != math.prod(entry["shape"]) * SIZES[entry["dtype"]]:
        raise ValueError
    return int(last)
