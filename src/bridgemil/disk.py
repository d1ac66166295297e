"""Writing files and folders in one step, and locks that a dead process does not hold.

Whatever is written appears whole or not at all: to a name aside, to the disk, then renamed. Nothing is written or
removed through a link: what lies behind it is not ours. Every file of this package is written here: a test finds what
is written past it. An error of the disk names the file that was to be, not the name aside.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bridgemil.errors import BadData, BadUse

if TYPE_CHECKING:
    from filelock import BaseFileLock

_CUT_SHORT = re.compile(r"requested and \d+ written")  # what numpy says of a full disk
_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)


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
    """Remove a file, or a folder with all that is in it; a link is refused, and links in it are not followed.

    A folder leaves its name first: who is killed meanwhile leaves no half folder that is taken for a whole one.
    """
    refuse_link(path)
    if path.is_dir():
        going = path if path.suffix == ".part" else aside(path)
        with _blaming(path):
            path.replace(going)
            shutil.rmtree(going)
    else:
        path.unlink(missing_ok=True)


def flush(stream: IO[Any]) -> None:
    """To the disk, not only to the operating system."""
    stream.flush()
    os.fsync(stream.fileno())


@contextmanager
def _blaming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Let an error of the disk name ``path``; if ``partial`` is given, only one that is about ``partial``."""
    try:
        yield
    except OSError as error:
        where, number, words = error.filename, error.errno, error.strerror
        if number is None and _CUT_SHORT.search(str(error)):  # numpy keeps the reason to itself
            number, words = errno.ENOSPC, "not everything could be written; is the disk full?"
        foreign = partial is not None and where is not None and not Path(os.fsdecode(where)).is_relative_to(partial)
        if number is None or foreign:
            raise
        raise OSError(number, words, str(path)) from error


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to fill; it takes its place when it is whole.

    Parameters
    ----------
    path
        The file; its folder must be there. What is no file (a pipe, ``/dev/stdout``) is refused: it would be replaced.
    """
    if path.exists() and not path.is_file():
        raise BadUse(f"{path}: is no regular file, and only files are written; name another")
    partial = aside(path)
    with _blaming(path, partial):
        try:
            with partial.open("xb") as stream:  # never through a link that was put there
                yield stream
                flush(stream)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text (UTF-8) in one step; its folder must be there."""
    with new_file(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))


@contextmanager
def new_folder(final: Path, partial: Path | None = None) -> Iterator[Path]:
    """A folder to fill; it takes its place when it is whole, in the place of what was there.

    Parameters
    ----------
    final
        The folder.
    partial
        Where it is filled; a name beside ``final`` by default.
    """
    place = partial or final
    partial = partial or aside(final)
    refuse_link(final, partial)
    with _blaming(final, partial):
        _put_back(final, place)
        if partial.exists():
            remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            for file in partial.rglob("*"):
                if file.is_file():
                    with file.open("r+b") as stream:
                        os.fsync(stream.fileno())
            final.parent.mkdir(parents=True, exist_ok=True)
            _put_in_place(partial, final, place)
        except BaseException:
            if place is final:  # nobody will come back to that name
                shutil.rmtree(partial, ignore_errors=True)
            raise


def _put_in_place(partial: Path, final: Path, place: Path) -> None:
    """Give a whole folder the name ``final``; what was there goes aside (beside ``place``) and is removed last."""
    old = aside(place.with_name(f"{place.name}.old"))
    refuse_link(final)
    if not os.path.lexists(final):
        partial.replace(final)
    elif _exchange(partial, final):
        partial.replace(old)
    else:
        # Whoever is killed between the two renames leaves the name empty; ``_put_back`` is for the next call.
        final.replace(old)
        try:
            partial.replace(final)
        except OSError:
            old.replace(final)
            raise
    for replaced in _replaced(place):
        with suppress(OSError):  # the new folder is in its place; what cannot be removed now goes with the next
            remove(replaced)


def _replaced(place: Path) -> list[Path]:
    """What was replaced by a folder that is filled at ``place``, and not removed yet."""
    found = sorted(place.parent.glob(f".{glob.escape(place.name)}.old.*.part"))
    return [path for path in found if not path.is_symlink()]


def _put_back(final: Path, place: Path) -> None:
    """Undo the first of two renames, if a process was killed before the second."""
    if not os.path.lexists(final) and (replaced := _replaced(place)):
        final.parent.mkdir(parents=True, exist_ok=True)
        replaced[-1].replace(final)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot (only Linux can be asked)."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _SWAP) == 0)


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
