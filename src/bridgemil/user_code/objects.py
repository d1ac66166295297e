"""What an object of user code is, in plain nested tuples that are the same in every process of one Python version.

Functions and classes of the user are told by their compiled code, which is what runs; their text on disk may have
changed since. Everything installed is told by its name. Nothing here depends on where an object lies in memory.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from bridgemil.errors import BadUse
from bridgemil.user_code.snapshot import Snapshot, is_user_file, is_user_module

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_OF_A_CLASS = (FunctionType, classmethod, staticmethod, property, functools.cached_property)


def describe(thing: object) -> Any:
    """Nested tuples of strings and numbers that tell what ``thing`` is."""
    return _Description().of(thing)


class _Description:
    """One description; what was told before is told by its number, so that cycles end."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.modules: set[tuple[int, tuple[str, ...]]] = set()
        self.kept: list[object] = []  # an object that is freed would give its id to another

    def of(self, thing: object) -> Any:
        """The description of anything."""
        if isinstance(thing, _PLAIN) and type(thing) in _PLAIN:
            return type(thing).__name__, repr(thing)
        if isinstance(thing, tuple):
            return (type(thing).__name__, *map(self.of, thing))
        if isinstance(thing, set | frozenset):
            return (type(thing).__name__, *sorted((self.of(item) for item in thing), key=repr))
        if isinstance(thing, CodeType):
            return self._code(thing)
        if isinstance(thing, ModuleType):
            return "module", thing.__name__
        if id(thing) in self.numbers:
            return "again", self.numbers[id(thing)]
        self.numbers[id(thing)] = len(self.numbers)
        self.kept.append(thing)
        return self._new(thing)

    def _new(self, thing: Any) -> Any:
        if isinstance(thing, FunctionType):
            return self._function(thing)
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, MethodType):
            return "method", self.of(thing.__func__), self.of(thing.__self__)
        if isinstance(thing, functools.partial):
            return "partial", self.of(thing.func), self.of(thing.args), self.of(thing.keywords)
        if isinstance(thing, classmethod | staticmethod):
            return type(thing).__name__, self.of(thing.__func__)
        if isinstance(thing, property):
            return "property", self.of(thing.fget), self.of(thing.fset), self.of(thing.fdel)
        if isinstance(thing, functools.cached_property):
            return "cached property", self.of(thing.func)
        if isinstance(thing, list):
            return ("list", *map(self.of, thing))
        if isinstance(thing, dict):
            return (type(thing).__name__, *((self.of(key), self.of(value)) for key, value in thing.items()))
        if "__wrapped__" in getattr(thing, "__dict__", ()):  # functools.lru_cache and its like
            return "wrapper", self.of(thing.__wrapped__)
        return self._value(thing)

    def _value(self, thing: Any) -> Any:
        kind = self.of(type(thing))
        if callable(getattr(thing, "tobytes", None)) and hasattr(thing, "dtype"):  # numpy
            if thing.dtype.hasobject:
                return kind, self.of(thing.tolist())
            return kind, str(thing.dtype), tuple(thing.shape), hashlib.sha256(thing.tobytes()).hexdigest()
        if callable(getattr(thing, "detach", None)) and hasattr(thing, "dtype"):  # torch
            raw = thing.detach().cpu().contiguous().reshape(-1).view(_bytes_type()).numpy().tobytes()
            return kind, str(thing.dtype), tuple(thing.shape), hashlib.sha256(raw).hexdigest()
        is_module = callable(getattr(thing, "state_dict", None))
        if (
            not isinstance(thing, enum.Enum)
            and (is_user_class(type(thing)) or is_module)
            and hasattr(thing, "__dict__")
        ):
            return kind, tuple((name, self.of(value)) for name, value in sorted(vars(thing).items()))
        return kind, re.sub(r"0x[0-9a-fA-F]+", "", repr(thing))

    def _function(self, function: FunctionType) -> Any:
        code = function.__code__
        if not is_user_code(code):
            return "installed", f"{function.__module__}.{function.__qualname__}"
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.of(cell.cell_contents))
            except ValueError:  # not filled yet
                cells.append("empty")
        used = tuple(self._used(code, function.__globals__))
        defaults = self.of(function.__defaults__), self.of(function.__kwdefaults__)
        return "function", self.of(code), defaults, tuple(cells), used

    def _class(self, kind: type) -> Any:
        if not is_user_class(kind):
            return "installed", f"{kind.__module__}.{kind.__qualname__}"
        members = {
            name: member
            for name, member in sorted(vars(kind).items())
            if isinstance(member, _OF_A_CLASS)
            or name == "__annotations__"
            or not re.fullmatch("__.*__|_abc_impl", name)
        }
        bases = tuple(map(self.of, kind.__bases__))
        return "class", kind.__name__, bases, tuple((name, self.of(member)) for name, member in members.items())

    def _code(self, code: CodeType) -> Any:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        return "code", code.co_code.hex(), counts, names, tuple(map(self.of, code.co_consts))

    def _used(self, code: CodeType, namespace: Mapping[str, Any]) -> Iterator[Any]:
        """The globals that code reads, and the source of the user modules it imports when it runs."""
        names, attributes, imports = set[str](), set[str](), set[tuple[str, ...]]()
        for part in _codes(code):
            attributes |= set(part.co_names)
            instructions = [step for step in dis.get_instructions(part) if step.opname != "EXTENDED_ARG"]
            for place, step in enumerate(instructions):
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    names.add(step.argval)
                elif step.opname == "IMPORT_NAME":
                    level, listed = (before.argval for before in instructions[place - 2 : place])
                    imports.add((_absolute_name(step.argval, level, namespace), *(listed or ())))
        for name in sorted(names & set(namespace)):
            if not re.fullmatch("__.*__", name):
                yield name, self._global(namespace[name], attributes)
        for module, *listed_names in sorted(imports):
            yield "import", module, *_source_of(module, listed_names)

    def _global(self, value: object, attributes: set[str]) -> Any:
        """A global; of a user's module, what the code may reach in it."""
        file = getattr(value, "__file__", None) if isinstance(value, ModuleType) else None
        if file is None or not Path(file).is_absolute() or not is_user_file(Path(file)):
            return self.of(value)
        reached = tuple(sorted(attributes & set(vars(value))))
        if (id(value), reached) in self.modules:
            return "again", reached
        self.modules.add((id(value), reached))
        return "module", tuple((name, self._global(vars(value)[name], attributes)) for name in reached)


def is_user_code(code: CodeType) -> bool:
    """Whether code was written by the user: in a file of theirs, a notebook or a prompt."""
    if code.co_filename.startswith("<"):
        return not code.co_filename.startswith("<frozen")
    return is_user_file(Path(code.co_filename))


def is_user_class(kind: type) -> bool:
    """Whether a class was written by the user."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return module is None or kind.__module__ == "__main__"
    return kind.__module__ == "__main__" or (Path(file).is_absolute() and is_user_file(Path(file)))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _absolute_name(name: str, level: int, namespace: Mapping[str, Any]) -> str:
    if not level:
        return name
    parts = str(namespace.get("__package__") or "").split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def _source_of(module: str, names: list[str]) -> Iterator[str]:
    """Hashes of the source of a user's module and of those below it that are named."""
    for name in (module, *(f"{module}.{listed}" for listed in names)):
        with contextlib.suppress(BadUse):  # not a module, or not there: then it fails when it is run
            if is_user_module(name):
                yield Snapshot.of_module(name, name).fingerprint


def _bytes_type() -> Any:
    import torch

    return torch.uint8
