"""A user's own code: load it by its address, and tell what it is by a fingerprint.

An address is ``path/to/net.py:NAME`` or ``package.module:NAME``. Everything a file imports from the user's side is read
together with it (see ``snapshot``), so an edit is seen in the same process, and what is hashed is what runs. An object
without an address (a class of a notebook, a closure) is told by its compiled code and its values (see ``objects``).
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bridgemil.errors import BadUse
from bridgemil.user_code import objects
from bridgemil.user_code.snapshot import Snapshot, is_user_file, told

__all__ = ["absolute", "did_you_mean", "fingerprint", "is_address", "is_user_file", "load", "told"]

_PACKAGES = ("braindecode", "spd_learn")  # their models have names of the same form


def is_address(name: str) -> bool:
    """Whether a name is ``path/to/file.py:NAME`` or ``package.module:NAME``."""
    target, _, attribute = name.rpartition(":")
    if not attribute.isidentifier() or target in _PACKAGES:
        return False
    return _is_file(target) or all(part.isidentifier() for part in target.split("."))


def absolute(address: str) -> str:
    """The address as a worker in another folder can read it: a file's path made absolute, a module left as it is."""
    target, _, attribute = address.rpartition(":")
    return f"{_path(target)}:{attribute}" if _is_file(target) else address


def load(address: str) -> Callable[..., Any]:
    """The class or function at an address, as its files are now.

    Parameters
    ----------
    address
        ``path/to/file.py:NAME`` or ``package.module:NAME``.

    Raises
    ------
    BadUse
        If the file, the module or the name is missing, the name cannot be called, or the code fails when it is run.
    """
    _, _, attribute = address.rpartition(":")
    module = _snapshot(address).module()
    if not hasattr(module, attribute):
        known = [name for name, value in vars(module).items() if callable(value)]
        raise BadUse(f"{address}: it has no {attribute}{did_you_mean(attribute, known)}")
    thing = getattr(module, attribute)
    if not callable(thing):
        raise BadUse(f"{address}: {attribute} must be a class or a function, it is {type(thing).__name__}")
    return thing  # type: ignore[no-any-return]


def fingerprint(thing: str | object) -> str:
    """What a piece of user code is, as 64 hexadecimal digits; the same in every process of one Python version.

    Parameters
    ----------
    thing
        An address: the source of its module and of the user modules it imports are hashed; where they lie does not
        matter. Or a class, function or other object: its compiled code, default arguments, closure, and the globals
        it uses. What is looked up only while running (a computed module name, a data file) is not seen.
    """
    if isinstance(thing, str):
        if not is_address(thing):
            raise BadUse(f"an address is path/to/file.py:NAME or package.module:NAME, got {thing!r}")
        content = f"{_snapshot(thing).fingerprint}:{thing.rpartition(':')[2]}"
    else:
        content = repr(objects.describe(thing))
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the known word nearest to a wrong one; nothing if none is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def _snapshot(address: str) -> Snapshot:
    target = address.rpartition(":")[0]
    return Snapshot.of_file(_path(target), address) if _is_file(target) else Snapshot.of_module(target, address)


def _is_file(target: str) -> bool:
    return target.endswith(".py")


def _path(target: str) -> Path:
    return Path(os.path.abspath(Path(target).expanduser()))  # noqa: PTH100 (resolve would follow links)
