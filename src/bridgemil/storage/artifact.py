"""An artifact: a folder of this package with one manifest of the checksums of its files.

Cohorts, subjects, runs, encoders, features, bundles, models and records are artifacts. ``manifest.json`` is written
last; it states the kind, format and name of the artifact, the SHA-256 of every file and a checksum of itself. A file is
compared with its checksum before it is used, once per process as long as it is not written again. The checksums find
damage and edits, not fraud: whoever wants to deceive can write a new manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from bridgemil.errors import BadData
from bridgemil.storage.files import new_folder, restore, write_json

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MANIFEST = "manifest.json"
FORMAT = 2  # raised by hand when what is stored changes its form
MAX_MANIFEST = 2**28  # bytes
_verified: dict[str, tuple[int | str, ...]] = {}  # path -> size, time, inode, device and checksum when it was compared


def digest(content: Any) -> str:
    """The SHA-256 of anything JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def array_checksum(array: NDArray[Any]) -> str:
    """The SHA-256 of an array's shape and values; the dtype is not part of it."""
    import numpy as np

    found = hashlib.sha256(f"{array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest. The folder may be a link itself, but nothing in it may be one."""

    root: Path
    kind: str  # ``cohort``, ``run``, ``bundle``, …
    files: Mapping[str, str]  # name below ``root`` (with ``/``) to the SHA-256 of each file
    checksum: str  # of the names and checksums of all files: which content it is, under whatever name
    advice: str  # what to do if a file is damaged: ``prepare the cohort again``

    @classmethod
    def open(cls, root: Path, kind: str, advice: str, *, named: bool = False) -> Artifact:
        """Read and check the manifest; another kind is refused, and with ``named`` a copy under another name."""
        file = root / MANIFEST
        if not is_artifact(root):
            raise BadData(f"{root}: no {kind} there (no {MANIFEST}); {advice}")
        status = regular_file(root, MANIFEST, advice)
        try:
            content: dict[str, Any] = json.loads(file.read_bytes() if status.st_size < MAX_MANIFEST else b"")
            intact = content.pop("checksum") == digest(content)
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
            raise BadData(f"{file}: is damaged; {advice}") from None
        if not intact:
            raise BadData(f"{file}: was changed since it was written; {advice}")
        if content["kind"] != kind or content["format"] != FORMAT:
            found = f"{content['kind']} in format {content['format']}"
            raise BadData(f"{root}: is a {found}, and a {kind} in format {FORMAT} is expected; {advice}")
        if named and content["name"] != root.name:
            raise BadData(f"{root}: is the folder of another {kind} ({content['name']}); {advice}")
        return cls(root, kind, content["files"], digest(content["files"]), advice)

    def bad(self, name: str, problem: str) -> BadData:
        """The error that names one of the files."""
        return BadData(f"{self.root / name}: {problem}; {self.advice}")

    def path(self, name: str) -> Path:
        """The path of a file (its name below ``root``, with ``/``), after it was compared with its checksum."""
        if name not in self.files:
            raise self.bad(name, f"is not part of this {self.kind}")
        path, status = self.root / name, regular_file(self.root, name, self.advice)
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev, self.files[name])
        if _verified.get(str(path)) != stamp:
            try:
                found = file_checksum(path)
            except OSError as error:
                raise self.bad(name, f"cannot be read ({error.strerror})") from None
            if found != self.files[name]:
                raise self.bad(name, "was changed since it was written")
            _verified[str(path)] = stamp
        return path

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        content: dict[str, Any] = json.loads(self.path(name).read_bytes())
        return content

    def table(self, name: str) -> pa.Table:
        """A parquet table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        # In this thread: Arrow's own threads may still hold the file when Python ends, and then abort the process.
        data = pa.BufferReader(self.path(name).read_bytes())
        return pq.ParquetFile(data).read(use_threads=False)

    def array(self, name: str) -> NDArray[Any]:
        """A memory-mapped, read-only array."""
        import numpy as np

        array: NDArray[Any] = np.load(self.path(name), mmap_mode="r", allow_pickle=False)
        return array

    def verify(self) -> list[str]:
        """Compare every file with its checksum; messages that name what is damaged or missing."""
        problems = []
        for name in self.files:
            _verified.pop(str(self.root / name), None)
            try:
                self.path(name)
            except BadData as error:
                problems.append(str(error))
        return problems

    def strangers(self) -> list[str]:
        """Files below ``root`` that neither this manifest nor one below it lists; hidden ones are ignored."""
        own = {MANIFEST, *self.files}
        below = {name.rpartition("/")[0] for name in own if name.endswith(f"/{MANIFEST}")}
        return [name for name in visible_files(self.root) if name not in own and name.rpartition("/")[0] not in below]


@contextmanager
def new_artifact(final: Path, kind: str) -> Iterator[Path]:
    """A folder to fill, as ``new_folder``; its manifest is written and it takes its place when it is complete."""
    with new_folder(final) as folder:
        yield folder
        write_manifest(folder, kind, visible_files(folder), final.name)


def write_manifest(folder: Path, kind: str, names: Iterable[str], name: str | None = None) -> None:
    """Write the manifest of a folder whose files, ``names``, are complete; ``name`` is its later name if it differs."""
    files = {file: file_checksum(folder / file) for file in sorted(names) if file != MANIFEST}
    content = {"kind": kind, "format": FORMAT, "name": name or folder.name, "files": files}
    write_json(folder / MANIFEST, content | {"checksum": digest(content)})


def is_artifact(folder: Path) -> bool:
    """Whether a folder has a manifest, valid or not."""
    restore(folder)
    return os.path.lexists(folder / MANIFEST)


def visible_files(root: Path) -> list[str]:
    """All files below a folder by name, but for hidden ones; links are not followed."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))


def regular_file(root: Path, name: str, advice: str) -> os.stat_result:
    """Refuse anything that is not a regular file within a folder: links, pipes, devices, folders."""
    place = root
    try:
        for part in PurePosixPath(name).parts:
            place = place / part
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                break
    except (FileNotFoundError, NotADirectoryError):
        raise BadData(f"{root / name}: is missing; {advice}") from None
    except OSError as error:
        raise BadData(f"{root / name}: cannot be read ({error.strerror}); {advice}") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadData(f"{place}: is not a regular file but a link, folder, pipe or device; {advice}")
    return status
