"""A folder that this package wrote, and how its files are read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData
from bridgemil.stored.hashes import KIND, SEAL, content_hash, is_sealed, stretch_hash
from bridgemil.stored.headers import ArrayHeader, WrongHeader, read_array_header

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pydantic import BaseModel

MOST_JSON = 2**28  # bytes; what a hundred thousand recordings need is a tenth of it
MOST_TABLE = 2**32
MOST_CELLS = 2**30  # rows times columns: a few bytes can claim any number
HASH_LENGTH = 64  # characters
ROWS = 64  # copied at once
KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link",
}  # fmt: skip

# What was checked in this process: path to (size, time, inode, device, stated hash) and the header.
_checked: dict[str, tuple[tuple[int | str | None, ...], ArrayHeader]] = {}


@dataclass(frozen=True)
class StoredFolder:
    """A folder of ours.

    Parameters
    ----------
    root
        Where it is; it may be a link itself, but nothing in it may lead out of it.
    advice
        What to do when something in it is damaged: ``prepare the cohort again``.
    """

    root: Path
    advice: str

    def bad(self, name: str, what: str) -> BadData:
        """The error that says what is wrong with one of the files."""
        return BadData(f"{self.root / name}: {what}; {self.advice}")

    def file(self, name: str) -> os.stat_result:
        """Refuse whatever is not a regular file within the folder.

        Parameters
        ----------
        name
            Path below ``root``, with ``/``.
        """
        place, status = self.root, None
        try:
            for part in PurePosixPath(name).parts:
                place = place / part
                status = os.lstat(place)
                if stat.S_ISLNK(status.st_mode):
                    real = Path(os.path.realpath(place, strict=True))
                    if not real.is_relative_to(os.path.realpath(self.root)):
                        raise self.bad(name, f"a link leads out of the folder{self._where(place, name)}")
                    status = os.stat(place)  # noqa: PTH116 (beside lstat)
        except (FileNotFoundError, NotADirectoryError):
            raise self.bad(name, "is not there") from None
        except OSError as error:
            raise self.bad(name, f"cannot be read ({error.strerror})") from None
        assert status is not None
        if not stat.S_ISREG(status.st_mode):
            kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            raise self.bad(name, f"is no regular file but {kind}")
        return status

    def _where(self, place: Path, name: str) -> str:
        return "" if place == self.root / name else f" ({place})"

    def has(self, name: str) -> bool:
        """Whether something of this name is there, be it good or bad."""
        return os.path.lexists(self.root / name)

    def bytes(self, name: str, most: int = MOST_JSON, sha256: str | None = None) -> bytes:
        """A file's content.

        Parameters
        ----------
        name
            Path below ``root``.
        most
            Bytes; what is larger is not read.
        sha256
            What its hash must be.
        """
        size = self.file(name).st_size
        if size > most:
            raise self.bad(name, f"has {size:,} bytes, more than it can need")
        try:
            content = (self.root / name).read_bytes()
        except OSError as error:
            raise self.bad(name, f"cannot be read ({error.strerror})") from None
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise self.bad(name, "was changed or cut short since it was written")
        return content

    def json(
        self,
        name: str,
        schema: type[BaseModel] | None = None,
        sha256: str | None = None,
        *,
        must_be_sealed: bool = False,
    ) -> dict[str, Any]:
        """A JSON object without its seal, which is checked if there is one (earlier versions wrote none).

        Parameters
        ----------
        name
            Path below ``root``.
        schema
            What it must fit.
        sha256
            What the file's hash must be.
        must_be_sealed
            Whether every version sealed it, so that a seal that is missing was taken away.
        """
        data = self.bytes(name, sha256=sha256)
        try:
            content = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise self.bad(name, "is damaged: it is no JSON") from None
        if not isinstance(content, dict):
            raise self.bad(name, "is damaged: a JSON object is expected")
        if (must_be_sealed or is_sealed(content)) and content.pop(SEAL, None) != KIND + content_hash(content):
            raise self.bad(name, "was changed since it was written")
        if schema is not None:
            self.fit(name, content, schema)
        return content

    def fit(self, name: str, content: Mapping[str, Any], schema: type[BaseModel]) -> None:
        """Refuse content of a file that does not fit a schema."""
        from pydantic import ValidationError

        try:
            schema.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if isinstance(part, str)) or "it"
            words = first["msg"].replace("Input should", "should").replace("Field required", "is missing")
            raise self.bad(name, f"does not read as one of ours: {place}: {words}") from None

    def table(self, name: str, columns: Mapping[str, str], sha256: str | None = None) -> pa.Table:
        """A parquet table.

        Parameters
        ----------
        name
            Path below ``root``.
        columns
            Those it must have, without gaps, and what is in them: ``text``, ``whole``, ``number``, or lists of these
            (``texts`` and so on).
        sha256
            What the file's hash must be; None where an earlier version wrote none.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = self.bytes(name, MOST_TABLE, sha256)
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            cells = file.metadata.num_rows * max(file.metadata.num_columns, 1)
            if cells > MOST_CELLS:
                raise self.bad(name, f"claims {file.metadata.num_rows:,} rows, more than it can need")
            # In this thread: Arrow's own threads may still hold ``data`` when Python ends, and then abort the process.
            table = file.read(use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError):
            raise self.bad(name, "is damaged: it is no whole parquet table") from None
        for column, kind in columns.items():
            if column not in table.column_names:
                raise self.bad(name, f"has no column {column!r}")
            values = table.column(column)
            if values.null_count or not _is_kind(values.type, kind):
                raise self.bad(name, f"column {column!r} has gaps, or is not what it should be ({kind})")
        return table

    def frame(self, name: str, columns: Mapping[str, str], sha256: str | None = None) -> pd.DataFrame:
        """A parquet table as a DataFrame; parameters as of ``table``."""
        import pyarrow as pa

        table = self.table(name, columns, sha256)
        try:
            frame: pd.DataFrame = table.to_pandas(use_threads=False)
        except (pa.ArrowException, ValueError, TypeError, KeyError):
            raise self.bad(name, "is damaged: it is no table of ours") from None
        if not set(columns) <= set(frame.columns) or not frame.columns.is_unique:  # its notes on the index are damaged
            raise self.bad(name, "is damaged: it is no table of ours")
        return frame

    def array(
        self,
        name: str,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
        stated: str | None = None,
        *,
        words: str = "",
        trailing: bool = False,
        any_order: bool = False,
    ) -> NDArray[Any]:
        """A memory-mapped array, read-only; its numbers are hashed the first time a process asks for it.

        Parameters
        ----------
        name
            Path below ``root``, an .npy file.
        dtype, shape
            What it must be; any if left out.
        stated
            The hash of ``words``, its shape and its numbers; None where an earlier version wrote none.
        words
            What else the hash is of.
        trailing
            Whether the hash stands at the file's end, as ``write_hashed_array`` puts it.
        any_order
            Whether the first axis may run fastest, as in what earlier versions saved of such arrays.
        """
        status, path = self.file(name), self.root / name
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev, stated, words, dtype, str(shape),
                 any_order)  # fmt: skip
        known = _checked.get(str(path))
        try:
            if known is None or known[0] != stamp:
                header = read_array_header(path)
                if header.order == "F" and (trailing or not any_order):
                    raise WrongHeader("is no array of ours: numbers in C order are expected")
                self._check_array(name, header, dtype, shape, stated, words, trailing)
                known = _checked[str(path)] = (stamp, header)
            header = known[1]
            return np.memmap(path, header.dtype, "r", header.offset, header.shape, header.order)
        except WrongHeader as error:
            raise self.bad(name, str(error)) from None
        except (OSError, ValueError, OverflowError) as error:
            raise self.bad(name, f"cannot be read ({getattr(error, 'strerror', None) or 'too large'})") from None

    def _check_array(
        self,
        name: str,
        header: ArrayHeader,
        dtype: str | None,
        shape: tuple[int, ...] | None,
        stated: str | None,
        words: str,
        trailing: bool,
    ) -> None:
        is_right = dtype is None or header.dtype == np.dtype(dtype)
        if not is_right or (shape is not None and header.shape != shape) or not header.n_bytes:
            expected = f"; expected {dtype} of {shape}" if dtype and shape else ""
            raise self.bad(name, f"holds {header.dtype} of {header.shape}{expected}")
        if header.more != (HASH_LENGTH if trailing else 0):
            raise self.bad(name, "is damaged: it is longer or shorter than its array")
        if header.order == "F":
            if stated is not None and _hash_in_c_order(self.root / name, header, words) != stated:
                raise self.bad(name, "was changed since it was written")
            return
        with (self.root / name).open("rb", buffering=0) as stream:
            stream.seek(header.offset)
            if stated is not None or trailing:
                digest = stretch_hash(stream, header.n_bytes, f"{words}{header.shape}")
                if digest != (stream.read(HASH_LENGTH).decode("latin1") if trailing else stated):
                    raise self.bad(name, "was changed since it was written")


def _hash_in_c_order(path: Path, header: ArrayHeader, words: str) -> str:
    """The hash that the array has in C order, a few rows at a time."""
    array = np.memmap(path, header.dtype, "r", header.offset, header.shape, header.order)
    digest = hashlib.sha256(f"{words}{header.shape}".encode())
    for first in range(0, len(array), ROWS):
        digest.update(np.ascontiguousarray(array[first : first + ROWS]).data)
    return digest.hexdigest()


def _is_kind(arrow_type: pa.DataType, kind: str) -> bool:
    import pyarrow as pa

    if kind.endswith("s"):
        if not pa.types.is_list(arrow_type):
            return False
        return bool(pa.types.is_null(arrow_type.value_type)) or _is_kind(arrow_type.value_type, kind[:-1])
    checks = {
        "text": (pa.types.is_string, pa.types.is_large_string),
        "whole": (pa.types.is_integer,),
        "number": (pa.types.is_floating, pa.types.is_integer),
    }
    return any(check(arrow_type) for check in checks[kind])


def forget_checks() -> None:
    """Hash every array again when it is asked for next."""
    _checked.clear()
