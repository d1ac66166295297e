"""Writing files and folders in one step, and locks that a dead process does not hold.

Whatever is written appears whole or not at all: to a name aside, to the disk, then renamed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filelock import BaseFileLock


def aside(path: Path) -> Path:
    """Where to write what will be renamed to ``path``; another process writes elsewhere."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def flush(stream: IO[Any]) -> None:
    """To the disk, not only to the operating system."""
    stream.flush()
    os.fsync(stream.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to fill; it takes its place when it is whole."""
    partial = aside(path)
    try:
        with partial.open("wb") as stream:
            yield stream
            flush(stream)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step."""
    with new_file(path) as stream:
        stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode())


@contextmanager
def new_folder(final: Path, partial: Path | None = None) -> Iterator[Path]:
    """A folder to fill; it takes its place when it is whole, in the place of what was there."""
    partial = partial or aside(final)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    for file in partial.rglob("*"):
        if file.is_file():
            with file.open("r+b") as stream:
                os.fsync(stream.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.rmtree(final)
    partial.replace(final)


class Taken(Exception):
    """Another living process holds the lock."""


@contextmanager
def lock(path: Path, *, wait: bool = True, told: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock named by a file, which is gone again afterwards.

    Parameters
    ----------
    path
        The lock's file; its folder must be there.
    wait
        Wait until it is free; otherwise raise ``Taken``.
    told
        Called once if one has to wait.
    """
    from filelock import FileLock, Timeout

    while True:
        held = FileLock(path)
        try:
            held.acquire(timeout=1 if wait else 0)
        except Timeout:
            if not wait:
                raise Taken(path) from None
            if told is not None:
                told()
                told = None
            held.acquire()
        if _is_ours(held, path):
            break
        held.release()  # its last holder removed the file while we waited for it: another one counts now
    try:
        yield
    finally:
        if sys.platform != "win32":  # there the library removes it
            path.unlink(missing_ok=True)
        held.release()


def _is_ours(held: BaseFileLock, path: Path) -> bool:
    """Whether the file we hold is still the one that others see by its name."""
    handle = getattr(getattr(held, "_context", None), "lock_file_fd", None)
    if handle is None or sys.platform == "win32":
        return True
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
