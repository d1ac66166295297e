"""The source of a user's module and of all user modules that it imports, read at one moment; hashed, and run.

What was read runs under private names, so a user's session is left as it is: nothing is added to ``sys.path``, and
modules that were imported before keep their place. In the private copy ``import layers`` means the ``layers`` of the
snapshot, also when it is reached late, inside a function. An edit gives another snapshot, with other names.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TypeGuard, cast

from bridgemil.errors import BadUse

_PREFIX = "bridgemil_user_"
_LOCK = threading.RLock()
_RUNNING: dict[str, Snapshot] = {}  # by the name of its private package


@dataclass(frozen=True)
class Source:
    """One module: where it lies, and its bytes as they were read (none for a folder without ``__init__.py``)."""

    file: Path
    content: bytes
    is_package: bool


@dataclass
class Snapshot:
    """The modules of one address.

    Parameters
    ----------
    address
        What the user wrote; errors begin with it.
    beside
        Folders whose modules the code may import before all others: the file's own, and its package's.
    only
        If given, the only package that is followed (for installed code, which is run by a plain import).
    """

    address: str
    beside: list[Path] = field(default_factory=list)
    only: str | None = None
    folders: list[Path] = field(default_factory=list)
    sources: dict[tuple[int, str], Source] = field(default_factory=dict)
    target: tuple[int, str] = (0, "")
    _tops: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of_file(cls, file: Path, address: str) -> Snapshot:
        """Read a file and what it imports."""
        if not file.is_file():
            raise BadUse(f"{address}: there is no file {file}")
        folder, parents = file.parent, list[str]()
        while (folder / "__init__.py").is_file():
            parents.insert(0, folder.name)
            folder = folder.parent
        snapshot = cls(address, beside=list(dict.fromkeys([file.parent, folder])))
        number = snapshot._number(folder)
        if parents:
            snapshot._add(number, ".".join(parents))
        is_package = file.name == "__init__.py"
        name = ".".join(parents if is_package else [*parents, file.stem.replace(".", "_")])
        if not is_package:
            snapshot._read(number, name, file, is_package=False)
        snapshot.target = (number, name)
        return snapshot

    @classmethod
    def of_module(cls, module: str, address: str) -> Snapshot:
        """Read an importable module and what it imports."""
        importlib.invalidate_caches()
        top = module.partition(".")[0]
        folder = _folder_of(top)
        if folder is None:
            raise BadUse(
                f"{address}: Python finds no module {top!r} with source; check the name, or give the file: "
                f"path/to/{module.replace('.', '/')}.py:{address.rpartition(':')[2]}"
            )
        snapshot = cls(address, only=None if is_user_file(folder / top) else top)
        snapshot.target = (snapshot._number(folder), module)
        if not snapshot._add(*snapshot.target):
            raise BadUse(f"{address}: there is no module {module} in {folder}")
        return snapshot

    @property
    def fingerprint(self) -> str:
        """A hash of all source; neither the folders nor the file's own name are in it."""
        modules = sorted(
            ("" if key == self.target else key[1], source.is_package, source.content)
            for key, source in self.sources.items()
        )
        return hashlib.sha256(repr(modules).encode()).hexdigest()

    def module(self) -> ModuleType:
        """The module itself: run now, unless the very same source is already running."""
        with _LOCK:
            if self.only is not None:
                return self._run(self.target[1])
            private = f"{self.package}.{_label(self.target[0])}.{self.target[1]}"
            if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
            _RUNNING.setdefault(self.package, self)
            try:
                return self._run(private)
            except BadUse:
                for name in [name for name in sys.modules if f"{name}.".startswith(f"{self.package}.")]:
                    del sys.modules[name]  # half of it may have run
                raise

    @functools.cached_property
    def package(self) -> str:
        """The private package that holds the modules: one for each content at each place."""
        places = [self.fingerprint, *map(str, self.folders), str(self.sources[self.target].file)]
        return _PREFIX + hashlib.sha256(repr(places).encode()).hexdigest()[:16]

    def number_of(self, top: str) -> int | None:
        """Which folder a top-level module comes from, as a number; none if it is not the user's."""
        if top not in self._tops:
            self._tops[top] = self._look_for(top)
        return self._tops[top]

    def _look_for(self, top: str) -> int | None:
        if self.only is not None:
            return 0 if top == self.only else None
        beside = [folder for folder in self.beside if is_user_file(folder / top)]
        for folder in beside:
            if (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file():
                return self._number(folder)
        plain = _folder_of(top)
        if plain is not None:
            return self._number(plain) if is_user_file(plain / top) else None
        return next((self._number(folder) for folder in beside if _is_folder_of_code(folder / top)), None)

    def _run(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise BadUse(f"{self.address} cannot be loaded: {told(error)}") from error

    def _number(self, folder: Path) -> int:
        if folder not in self.folders:
            self.folders.append(folder)
        return self.folders.index(folder)

    def _add(self, number: int, name: str) -> bool:
        """Read a module, the packages around it, and what they import; False if there is no such module."""
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            place, prefix = self.folders[number].joinpath(*parts[:depth]), ".".join(parts[:depth])
            if (number, prefix) in self.sources:
                continue
            if (place / "__init__.py").is_file():
                self._read(number, prefix, place / "__init__.py", is_package=True)
            elif (file := place.with_name(f"{place.name}.py")).is_file():
                self._read(number, prefix, file, is_package=False)
            elif _is_folder_of_code(place):
                self.sources[number, prefix] = Source(place, b"", is_package=True)
            else:
                return False
        return True

    def _read(self, number: int, name: str, file: Path, is_package: bool) -> None:
        try:
            content = file.read_bytes()
            self.sources[number, name] = Source(file, content, is_package)
            imports = _imports(content, str(file))
        except (OSError, SyntaxError, ValueError) as error:
            raise BadUse(f"{self.address} cannot be loaded: {told(error, file)}") from error
        package = name if is_package else name.rpartition(".")[0]
        for level, module, names in imports:
            if level:
                around = package.split(".")[: len(package.split(".")) - level + 1]
                base, home = ".".join([*around, module] if module else around), number
            else:
                top = self.number_of(module.partition(".")[0])
                if top is None:
                    continue
                base, home = module, top
            if base and self._add(home, base):
                for imported in names:
                    self._add(home, f"{base}.{imported}")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the private modules of the snapshots that run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        snapshot = _RUNNING.get(package)
        if snapshot is None:
            return None
        label, _, name = rest.partition(".")
        if not name:
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        source = snapshot.sources.get((int(label[1:]), name))
        if source is None:
            return None
        if source.is_package and source.file.is_dir():
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        return importlib.util.spec_from_file_location(
            fullname,
            source.file,
            loader=_Loader(source, snapshot),
            submodule_search_locations=[str(source.file.parent)] if source.is_package else None,
        )


class _Loader(importlib.abc.Loader):
    """Runs what was read, with the user's imports pointed to the snapshot."""

    def __init__(self, source: Source, snapshot: Snapshot) -> None:
        self.source, self.snapshot = source, snapshot

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.source.content, str(self.source.file))
        tree = ast.fix_missing_locations(_Redirect(self.snapshot).visit(tree))
        exec(compile(tree, str(self.source.file), "exec", dont_inherit=True), module.__dict__)


class _Redirect(ast.NodeTransformer):
    """``import layers`` becomes ``import <private>.layers as layers`` where layers is in the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def private(self, name: str) -> str | None:
        number = self.snapshot.number_of(name.partition(".")[0])
        known = number is not None and (number, name.partition(".")[0]) in self.snapshot.sources
        return f"{self.snapshot.package}.{_label(cast(int, number))}" if known else None

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for alias in node.names:
            private, top = self.private(alias.name), alias.name.partition(".")[0]
            if private is None:
                statements.append(ast.Import([alias]))
            elif alias.asname or alias.name == top:
                statements.append(ast.Import([ast.alias(f"{private}.{alias.name}", alias.asname or top)]))
            else:  # import a.b loads b and binds a
                statements.append(ast.Import([ast.alias(f"{private}.{alias.name}")]))
                statements.append(ast.Import([ast.alias(f"{private}.{top}", top)]))
        return [ast.copy_location(statement, node) for statement in statements]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        private = None if node.level or not node.module else self.private(node.module)
        if private is not None:
            node.module = f"{private}.{node.module}"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _imported_by_call(node)
        private = None if name is None else self.private(name)
        if private is not None:
            node.args[0] = ast.copy_location(ast.Constant(f"{private}.{name}"), node.args[0])
        return self.generic_visit(node)


def is_user_file(file: Path) -> bool:
    """Whether a file is the user's: not Python's own, not installed, not ours."""
    if {"site-packages", "dist-packages"} & set(file.parts):
        return False
    resolved = file.resolve()
    return not any(file.is_relative_to(folder) or resolved.is_relative_to(folder) for folder in _not_the_users())


def is_user_module(name: str) -> bool:
    """Whether a plain import takes a module from the user's files."""
    top = name.partition(".")[0]
    folder = _folder_of(top)
    return folder is not None and is_user_file(folder / top)


def told(error: BaseException, file: Path | None = None) -> str:
    """An error of user code in a line: its kind, its words, the user's file and line."""
    words = re.sub(rf"{_PREFIX}[0-9a-f]+\.f\d+\.", "", str(error.msg if isinstance(error, SyntaxError) else error))
    where = f"{file}" if file is not None else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}, line {error.lineno}"
    else:
        for name, line in _frames(error.__traceback__):
            if not name.startswith("<") and is_user_file(Path(name)):
                where = f"{name}, line {line}"
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"{text} ({where})" if where else text


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


@functools.cache
def _not_the_users() -> list[Path]:
    folders = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders.append(Path(__file__).parents[1])
    return [*folders, *(folder.resolve() for folder in folders)]


def _folder_of(top: str) -> Path | None:
    """The folder from which a plain import takes a top-level module; none if it has no source."""
    if top in sys.stdlib_module_names or top == "__main__":
        return None if top == "__main__" else _not_the_users()[0]
    spec = getattr(sys.modules.get(top), "__spec__", None)
    for finder in [] if spec else sys.meta_path:
        spec = spec or finder.find_spec(top, None)
    if spec is None:
        return None
    if spec.origin and Path(spec.origin).suffix:
        file = Path(spec.origin)
        return file.parents[1] if file.stem == "__init__" else file.parent
    return next((Path(folder).parent for folder in spec.submodule_search_locations or ()), None)


def _is_folder_of_code(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.py"))


def _label(number: int) -> str:
    return f"f{number}"


@functools.lru_cache(maxsize=512)
def _imports(content: bytes, filename: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """All imports of a module, wherever they stand: level, module, names."""
    imports = list[tuple[int, str, tuple[str, ...]]]()
    waiting: list[ast.AST] = [ast.parse(content, filename)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
            imports.append((0, name, ()))
        waiting += node.orelse if _is_for_types(node) else list(ast.iter_child_nodes(node))
    return imports


def _is_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    """``if TYPE_CHECKING:``, whose imports never run."""
    test = node.test if isinstance(node, ast.If) else None
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def _imported_by_call(node: ast.Call) -> str | None:
    """The module of ``importlib.import_module("layers")``."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0] if function == "import_module" and len(node.args) == 1 else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
