"""User code: import it by its address and fingerprint its source.

An address is ``path/to/net.py:NAME`` or ``package.module:NAME``. The folder of a file is put on ``sys.path``, as
``python path/to/net.py`` does, so that the file can import other modules of its folder. The fingerprint is a hash of
the file and of every user module that it imports, found in the import statements of their source; of a package, all
modules count. It is part of a run's identity: an edit names another run. Not seen are edits in installed packages, in
data files and in modules whose names are computed at run time.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import secrets
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bridgemil.errors import BadUse, BridgeMILWarning, did_you_mean

PACKAGES = ("braindecode", "spd_learn")  # their models have names of the same form
_IMPORTED: dict[str, dict[Path, bytes]] = {}  # by module: the sources with which it was imported
_TOKENS: dict[int, tuple[object, str]] = {}  # by id: objects without source, and their fingerprint in this process


def is_address(name: str) -> bool:
    """Whether a name is ``path/to/file.py:NAME`` or ``package.module:NAME``."""
    target, _, attribute = name.rpartition(":")
    if not attribute.isidentifier() or target in PACKAGES:
        return False
    return target.endswith(".py") or all(part.isidentifier() for part in target.split("."))


def absolute(address: str) -> str:
    """The address with the absolute path of its file, for a worker in another folder; a module's is unchanged."""
    target, _, attribute = address.rpartition(":")
    path = os.path.abspath(Path(target).expanduser())  # noqa: PTH100 (resolve would follow links)
    return f"{path}:{attribute}" if target.endswith(".py") else address


def short_name(name: str) -> str:
    """A name for display: of an address in a file its last part, ``net.py:Tiny``."""
    return name.replace("\\", "/").rpartition("/")[2]


def find(address: str, *, anew: bool = False) -> Any:
    """The object at an address, from its source as it is now; imported again, even if unchanged, with ``anew``."""
    attribute, module = address.rpartition(":")[2], _import(address, anew)
    if not hasattr(module, attribute):
        known = [name for name, value in vars(module).items() if callable(value)]
        raise BadUse(f"{address}: it has no {attribute}{did_you_mean(attribute, known)}")
    return getattr(module, attribute)


def load(address: str, *, anew: bool = False) -> Callable[..., Any]:
    """The class or function at an address, as ``find``; what cannot be called is refused."""
    thing: Callable[..., Any] = find(address, anew=anew)
    if not callable(thing):
        raise BadUse(f"{address}: must be a class or a function, it is {type(thing).__name__}")
    return thing


def fingerprint(thing: str | object) -> str:
    """The identity of user code, an address or a class or function, as 64 hexadecimal digits.

    What is not at the top level of a file (a closure, a ``partial``, an object of a notebook) may depend on values that
    are not in any source: its fingerprint holds in this process only, with a warning.
    """
    if not isinstance(thing, str):
        module, name = inspect.getmodule(thing), getattr(thing, "__qualname__", "<object>")
        address = f"{getattr(module, '__file__', None)}:{name}"
        if not is_address(address) or getattr(module, name, None) is not thing:
            return _of_this_process(thing, name)
        thing = address
    if not is_address(thing):
        raise BadUse(f"an address is path/to/file.py:NAME or package.module:NAME, got {thing!r}")
    (sources, _), file = _sources(thing), _file(thing)
    parts = sorted(("" if path == file else os.path.relpath(path, _folder(file)), sources[path]) for path in sources)
    return hashlib.sha256(repr((parts, thing.rpartition(":")[2])).encode()).hexdigest()


def _of_this_process(thing: object, name: str) -> str:
    if id(thing) in _TOKENS:
        return _TOKENS[id(thing)][1]
    message = (
        f"{name} is not at the top level of a file, so an edit of it cannot be recognised: its results are not "
        "reused by other processes. Define it in a file and name it by its address, path/to/file.py:NAME"
    )
    warnings.warn(message, BridgeMILWarning, stacklevel=3)
    _TOKENS[id(thing)] = thing, secrets.token_hex(32)  # the object is kept, so that no other one gets its id
    return _TOKENS[id(thing)][1]


def packages(address: str) -> dict[str, str]:
    """The versions of the installed packages that user code names in its import statements."""
    names = {address.partition(":")[0].partition(".")[0]} if ".py:" not in address else set[str]()
    owners = importlib.metadata.packages_distributions()
    found = sorted({owner for name in names | _sources(address)[1] for owner in owners.get(name, ())})
    return {name: importlib.metadata.version(name) for name in found if name != "bridgemil"}


def describe_error(error: BaseException) -> str:
    """An error of user code in one line: its type, its message, and the last line of the user's files."""
    lines = (error.msg if isinstance(error, SyntaxError) else str(error)).strip().splitlines()
    message = " … ".join(dict.fromkeys(line.strip() for line in (*lines[:1], *lines[-1:])))  # the last has the cause
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    where = [f" ({name}, line {line})" for name, line in frames if name[:1] != "<" and is_user_file(Path(name))]
    return f"{type(error).__name__}{f': {message}' if message else ''}{where[-1] if where else ''}"


def is_user_file(file: Path) -> bool:
    """Whether a file is the user's: not Python's own, not installed, not of this package."""
    ours = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")] + [Path(__file__).parent]
    inside = any(path.is_relative_to(folder) for path in (file, file.resolve()) for folder in ours)
    return not inside and not {"site-packages", "dist-packages"} & set(file.parts)


def _import(address: str, anew: bool) -> ModuleType:
    """Import a module, again if ``anew``, or if its source or that of a user module it imports has changed."""
    file = _file(address)
    if not is_user_file(file):
        return importlib.import_module(address.rpartition(":")[0])
    folder, (sources, _) = _folder(file), _sources(address)
    name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    if alone := file.parent == folder:  # a name of its own: two folders may each have a net.py
        name = f"bridgemil_user_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    if not anew and name in sys.modules and _IMPORTED.get(name) == sources:
        return sys.modules[name]
    _forget({name, *(path.relative_to(folder).parts[0].removesuffix(".py") for path in sources)}, sources)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # its time stamps miss edits within a second
    try:
        if alone:
            module = sys.modules[name] = ModuleType(name)
            module.__file__ = str(file)
            exec(compile(sources[file], str(file), "exec"), vars(module))
        else:
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise BadUse(f"{address} cannot be loaded: {describe_error(error)}") from error
    finally:
        sys.dont_write_bytecode = keep
    _IMPORTED[name] = sources
    return module


def _forget(tops: set[str], sources: dict[Path, bytes]) -> None:
    """Remove the user's modules of these top-level names from ``sys.modules``, so that they are imported again."""
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if name.partition(".")[0] not in tops or (file.name and not is_user_file(file)):
            continue  # what is installed stays what every other import of that name gives
        if name in tops and file.is_file() and file.read_bytes() not in sources.values():
            message = f"module {name} was imported from {file} before; imports inside functions use the new one"
            warnings.warn(message, BridgeMILWarning, stacklevel=5)
        del sys.modules[name]


def _file(address: str) -> Path:
    """The file that an address names."""
    target, _, attribute = absolute(address).rpartition(":")
    if target.endswith(".py"):
        if not Path(target).is_file():
            raise BadUse(f"{address}: there is no file {target}")
        return Path(target)
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(target)
    except (ImportError, AttributeError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise BadUse(
            f"{address}: Python finds no module {target!r} with source; check the name, or give the file: "
            f"path/to/{target.replace('.', '/')}.py:{attribute}"
        )
    return Path(spec.origin)


def _folder(file: Path) -> Path:
    """The folder from which a file's module is imported: that of the file, or the one around its package."""
    return next(folder for folder in file.parents if not (folder / "__init__.py").is_file())


def _sources(address: str) -> tuple[dict[Path, bytes], set[str]]:
    """The file and the user modules it imports, anywhere in its source; and the top-level names of all its imports."""
    file = _file(address)
    folder, found, names = _folder(file), dict[Path, bytes](), set[str]()
    waiting = {file, *_modules(folder / file.relative_to(folder).parts[0])}
    while waiting:
        path = waiting.pop()
        found[path] = path.read_bytes()
        if not is_user_file(path):
            continue
        try:
            nodes = list(ast.walk(ast.parse(found[path], str(path))))
        except (SyntaxError, ValueError) as error:
            raise BadUse(f"{address} cannot be loaded: {describe_error(error)}") from error
        named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        own = {name.partition(".")[0] for name in named}  # relative imports stay within the package
        names |= own
        waiting |= {other for name in own for other in _modules(folder / name) if is_user_file(other)} - set(found)
    return found, names


def _modules(place: Path) -> list[Path]:
    """The file of a top-level module; or, as Python prefers it, all files of a package."""
    file = place.with_suffix(".py")
    return [file] if file.is_file() and not (place / "__init__.py").is_file() else sorted(place.rglob("*.py"))
