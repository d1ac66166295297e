"""Atomic files and folders, and locks that a dead process does not hold.

A file or folder is written under a temporary name, flushed to the disk and renamed, so that it is complete or absent.
Nothing is written or removed through a symbolic link. All files of this package are written by this module (a test
finds exceptions). An error of the disk names the final file, not the temporary one.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bridgemil.errors import BadData, BadUse, BridgeMILWarning


def aside(path: Path) -> Path:
    """A unique temporary name beside ``path`` (process numbers may be equal in two containers)."""
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
    """Remove a file, or a folder with its content; a link is refused, and links in it are not followed."""
    refuse_link(path)
    if path.is_dir():
        going = path if path.suffix == ".part" else aside(path)
        with _blaming(path):
            path.replace(going)  # killed meanwhile, no incomplete folder has the name
            shutil.rmtree(going)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _blaming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Let an error of the disk name ``path``; if ``partial`` is given, only one that is about ``partial``."""
    try:
        yield
    except OSError as error:
        where, number, message = error.filename, error.errno, error.strerror
        if number is None and re.search(r"requested and \d+ written", str(error)):  # numpy's message for a full disk
            number, message = errno.ENOSPC, "not everything could be written; is the disk full?"
        foreign = partial is not None and where is not None and not Path(os.fsdecode(where)).is_relative_to(partial)
        if number is None or foreign:
            raise
        raise OSError(number, message, str(path)) from error


@contextmanager
def new_file(path: Path, *, resume: bool = False) -> Iterator[IO[bytes]]:
    """A file to fill, in an existing folder; it takes its place when it is complete.

    With ``resume`` it starts with what an interrupted call left, and what is written now stays for the next.
    Anything but a regular file (a pipe, ``/dev/stdout``) is refused: it would be replaced.
    """
    if path.exists() and not path.is_file():
        raise BadUse(f"{path}: is no regular file, and only files are written; name another")
    partial = path.with_name(f".{path.name}.part") if resume else aside(path)
    refuse_link(partial, *([path] if resume else []))
    with _blaming(path, partial):
        try:
            with partial.open("ab" if resume else "xb") as stream:  # never through a link that was put there
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        finally:
            if not resume:
                partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text (UTF-8) in one step; its folder must be there."""
    with new_file(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))


def link_or_copy(source: Path, target: Path) -> None:
    """Hard link a file, or copy it where the file system allows no hard link."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder to fill under a temporary name; when it is complete it replaces ``final``.

    A process that is killed while it replaces a folder may leave the old one under a temporary name: ``restore`` puts
    it back, here and wherever a folder is opened.
    """
    filled = aside(final)
    refuse_link(final)
    with _blaming(final, filled):
        restore(final)
        filled.mkdir(parents=True)
        try:
            yield filled
            for file in filled.rglob("*"):
                if file.is_file():
                    with file.open("r+b") as stream:
                        os.fsync(stream.fileno())
            _put_in_place(filled, final)
        except BaseException:
            shutil.rmtree(filled, ignore_errors=True)
            raise


def _put_in_place(filled: Path, final: Path) -> None:
    refuse_link(final)
    old = aside(final.with_name(f"{final.name}.old"))
    if final.exists():
        final.replace(old)
    try:
        filled.replace(final)
    except OSError:
        if old.exists():
            old.replace(final)
        raise
    for replaced in _replaced(final):
        with suppress(OSError):  # the new folder is in place; what cannot be removed now goes with the next
            remove(replaced)


def _replaced(final: Path) -> list[Path]:
    found = sorted(final.parent.glob(f".{glob.escape(final.name)}.old.*.part"))
    return [path for path in found if not path.is_symlink()]


def restore(final: Path) -> None:
    """Put a folder back whose replacement was interrupted between its two renames."""
    if not os.path.lexists(final) and (replaced := _replaced(final)):
        replaced[-1].replace(final)


class Taken(Exception):
    """Another living process holds the lock."""


@contextmanager
def lock(path: Path, *, wait: bool = True, told: str = "") -> Iterator[None]:
    """Hold a lock named by a file in an existing folder. The system releases it when its holder ends; the file stays.

    Waits until it is free (with the warning ``told``, if any) or, without ``wait``, raises ``Taken``.
    """
    from filelock import FileLock, Timeout

    refuse_link(path)
    held = FileLock(path)
    try:
        acquired = held.acquire(timeout=1 if wait else 0)
    except Timeout:
        if not wait:
            raise Taken(path) from None
        if told:
            warnings.warn(told, BridgeMILWarning, stacklevel=4)
        acquired = held.acquire()
    with acquired:
        yield
