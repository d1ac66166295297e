"""Writing files and folders in one step, and locks that a dead process does not hold.

Whatever is written appears whole or not at all: to a name aside, to the disk, then renamed. Nothing is written or
removed through a link: what lies behind it is not ours.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bridgemil.errors import BadData

if TYPE_CHECKING:
    from filelock import BaseFileLock


def aside(path: Path) -> Path:
    """Where to write what will be renamed to ``path``; nobody else writes there.

    The process's number alone would not do: in another container that shares the folder it may be the same.
    """
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def refuse_link(*paths: Path) -> None:
    """Refuse a place in a folder of ours that is a link: what is written or removed there would be elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise BadData(
                f"{path}: is a link, and nothing is written or removed through links; put the folder or file itself "
                "there, or choose another place"
            )


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; a link is refused, and links in it are not followed."""
    refuse_link(path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def flush(stream: IO[Any]) -> None:
    """To the disk, not only to the operating system."""
    stream.flush()
    os.fsync(stream.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to fill; it takes its place when it is whole."""
    partial = aside(path)
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as stream:  # never through a link that was put there
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
    place = partial or final
    partial = partial or aside(final)
    refuse_link(final, partial)
    if partial.exists():
        remove(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        if place is final:  # nobody will come back to that name
            shutil.rmtree(partial, ignore_errors=True)
        raise
    for file in partial.rglob("*"):
        if file.is_file():
            with file.open("r+b") as stream:
                os.fsync(stream.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    _put_in_place(partial, final, place)


def _put_in_place(partial: Path, final: Path, place: Path) -> None:
    """Rename a whole folder to ``final``; what was there goes aside (beside ``place``) first and is removed last.

    Whoever is killed on the way leaves at least one of the two whole; the next call, or ``clean``, removes the rest.
    """
    old = aside(place.with_name(f"{place.name}.old"))
    refuse_link(final)
    was_there = os.path.lexists(final)
    if was_there:
        final.replace(old)
    try:
        partial.replace(final)
    except OSError:
        if was_there:
            old.replace(final)
        raise
    for replaced in place.parent.glob(f".{glob.escape(place.name)}.old.*.part"):
        if not replaced.is_symlink():
            remove(replaced)


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

    refuse_link(path)
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
