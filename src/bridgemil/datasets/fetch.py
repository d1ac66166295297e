"""Fetch a public data set over HTTPS: list its files at the host, then fetch and compare each with its checksum.

A site is its address in ``SITES`` and one function from an identifier to its files. An interrupted transfer leaves a
hidden ``.NAME.part``, which the next call continues with an HTTP Range request.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from bridgemil import datasets
from bridgemil.errors import BadData, BadUse
from bridgemil.storage.files import new_file

ATTEMPTS, PAUSE, TIMEOUT = 3, 2.0, 60.0  # the last two in seconds
BLOCK = 1 << 20
BROKEN = (URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError)  # a full disk is none of them
AGENT = {"User-Agent": "bridgemil"}


@dataclass(frozen=True)
class RemoteFile:
    """A file at a host; ``checksum`` is ``md5:…`` or ``sha256:…``, None where the host publishes none."""

    path: str
    url: str
    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True)
class Download:
    """What ``download`` did: files fetched, complete before, and left out because ``prepare`` does not need them."""

    name: str
    folder: str
    fetched: list[str]
    present: list[str]
    left_out: list[str]


def download(name: str, folder: str | Path, *, everything: bool = False, progress: bool = False) -> Download:
    """Fetch a public data set into a folder, or resume an interrupted download.

    Parameters
    ----------
    name : str
        One of ``bridgemil.datasets.names()``.
    folder : str or Path
        Where its files go; created if absent. Other files in it are not touched.
    everything : bool, default False
        Also fetch the files that ``prepare`` does not need.
    progress : bool, default False
        Show progress on standard error.

    Returns
    -------
    Download
        The files fetched, present already and left out.

    Raises
    ------
    BadData
        If the data set needs a login, a host cannot be reached, or a file differs from its checksum.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    card, folder = datasets.card(name), Path(folder)
    if card.host is None:
        raise BadData(f"{name} cannot be fetched without a login. {card.access} Its page: {card.url}")
    if folder.exists() and not folder.is_dir():
        raise BadUse(f"{folder}: is not a folder; name the folder to download to")
    site, identifier = card.host.site, card.host.id
    address, listed = SITES[site]
    try:
        found = listed(address, identifier)
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise BadData(f"{address}: unexpected answer ({error!r}); the interface may have changed") from error
    if not found:
        raise BadData(f"{name}: {site} lists no file of {identifier}; see {card.url}")
    wanted = [f for f in found if everything or not card.files or any(fnmatch(f.path, part) for part in card.files)]
    done = Download(name, str(folder), [], [], sorted({f.path for f in found} - {f.path for f in wanted}))
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task(name, total=sum(file.size or 0 for file in wanted) or None)
        advance = partial(bar.advance, task)
        for file in wanted:
            target = folder / _safe(file.path)
            if target.is_file() and _difference(file, target) is None:
                done.present.append(file.path)
                advance(file.size or 0)
            else:
                _fetch(file, target, advance)
                done.fetched.append(file.path)
    return done


def _fetch(file: RemoteFile, target: Path, advance: Callable[[int], None]) -> None:
    """Start or continue a transfer; a broken connection is tried again from where it broke."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target, resume=True) as stream:
        advance(stream.tell())
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _transfer(file, stream, advance)
                break
            except BROKEN as error:
                refused = isinstance(error, HTTPError) and error.code < 500
                if refused or attempt == ATTEMPTS:
                    raise _unreachable(file.url, error, f"{stream.tell():,} bytes are kept") from error
                time.sleep(PAUSE * attempt)
        stream.flush()
        difference = _difference(file, Path(stream.name))
        if difference is not None:
            stream.truncate(0)  # nothing to resume from
            raise BadData(f"{target}: {difference}; it was removed: run the same command again, or see {file.url}")


def _transfer(file: RemoteFile, stream: IO[bytes], advance: Callable[[int], None]) -> None:
    start = stream.tell()
    if start and start == file.size:
        return
    request = Request(file.url, headers=AGENT | ({"Range": f"bytes={start}-"} if start else {}))
    try:
        answer = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and start:  # nothing follows; the checksum decides
            return
        raise
    with answer:
        if start and answer.status != 206:  # the host ignores Range
            stream.truncate(0)
            advance(-start)
        missing = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(BLOCK):
            stream.write(block)
            advance(len(block))
            missing -= len(block)
    if missing > 0:
        raise ConnectionError(f"the connection was closed with {missing:,} bytes missing")


def _difference(file: RemoteFile, path: Path) -> str | None:
    """How a file on disk differs from the host's record; None if it does not."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"has {size:,} bytes, expected {file.size:,}"
    if file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        with path.open("rb") as stream:
            actual = hashlib.file_digest(stream, kind).hexdigest()
        if actual != expected:
            return f"{kind} is {actual}, expected {expected}"
    return None


def _safe(path: str) -> PurePosixPath:
    """A name that the host gives, if it stays inside the folder."""
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or "\\" in path or not place.parts:
        raise BadData(f"the host lists a file named {path!r}, which is outside the folder; nothing was written there")
    return place


def _read(url: str) -> bytes:
    try:
        with urlopen(Request(url, headers=AGENT), timeout=TIMEOUT) as answer:
            content: bytes = answer.read()
            return content
    except BROKEN as error:
        raise _unreachable(url, error, "nothing was changed") from error


def _unreachable(url: str, error: Exception, kept: str) -> BadData:
    reason = str(error.reason if isinstance(error, URLError) else error) or type(error).__name__
    if isinstance(error, HTTPError):
        reason = f"the host answered {error.code} {error.reason}"
    return BadData(f"{url}: {reason}; {kept}, and the same command resumes")


def _openneuro(base: str, identifier: str) -> list[RemoteFile]:
    """The public S3 bucket; the ETag of an object uploaded in one part is its MD5."""
    from xml.etree import ElementTree

    files: list[RemoteFile] = []
    query = {"list-type": "2", "prefix": f"{identifier}/"}
    while True:
        root = ElementTree.fromstring(_read(f"{base}/?{urlencode(query)}"))
        for entry in root.findall("{*}Contents"):
            key, tag = entry.findtext("{*}Key", ""), entry.findtext("{*}ETag", "").strip('"')
            checksum = f"md5:{tag}" if re.fullmatch("[0-9a-f]{32}", tag) else None
            path, size = key.removeprefix(f"{identifier}/"), int(entry.findtext("{*}Size", "0"))
            if path and not path.endswith("/"):
                files.append(RemoteFile(path, f"{base}/{quote(key)}", size, checksum))
        token = root.findtext("{*}NextContinuationToken")
        if token is None:
            return files
        query["continuation-token"] = token


def _figshare(base: str, identifier: str) -> list[RemoteFile]:
    """Two files may have one name; then the id of the file stands before it, as in figshare's own archives."""
    entries: list[dict[str, Any]] = []
    while page := json.loads(_read(f"{base}/articles/{identifier}/files?page_size=100&page={len(entries) // 100 + 1}")):
        entries += page
        if len(page) < 100:
            break
    names = Counter(entry["name"] for entry in entries)
    return [
        RemoteFile(f"{e['id']}_{e['name']}" if names[e["name"]] > 1 else e["name"], e["download_url"], e["size"],
                   f"md5:{e['computed_md5']}" if e.get("computed_md5") else None)
        for e in entries
    ]  # fmt: skip


def _zenodo(base: str, identifier: str) -> list[RemoteFile]:
    entries = json.loads(_read(f"{base}/records/{identifier}"))["files"]
    return [RemoteFile(e["key"], e["links"]["self"], e["size"], e.get("checksum")) for e in entries]


def _dataverse(base: str, identifier: str) -> list[RemoteFile]:
    answer = json.loads(_read(f"{base}/datasets/:persistentId/?{urlencode({'persistentId': identifier})}"))
    files = []
    for entry in answer["data"]["latestVersion"]["files"]:
        data = entry["dataFile"]
        path = "/".join(part for part in (entry.get("directoryLabel"), entry["label"]) if part)
        checksum = f"md5:{data['md5']}" if data.get("md5") else None
        files.append(RemoteFile(path, f"{base}/access/datafile/{data['id']}", data.get("filesize"), checksum))
    return files


def _osf(base: str, identifier: str) -> list[RemoteFile]:
    """The files at the top level of a project's storage."""
    entries = json.loads(_read(f"{base}/nodes/{identifier}/files/osfstorage/"))["data"]
    return [
        RemoteFile(e["attributes"]["name"], e["links"]["download"], e["attributes"]["size"],
                   f"sha256:{e['attributes']['extra']['hashes']['sha256']}")
        for e in entries if e["attributes"]["kind"] == "file"
    ]  # fmt: skip


def _physionet(base: str, identifier: str) -> list[RemoteFile]:
    lines = _read(f"{base}/{identifier}/SHA256SUMS.txt").decode().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    return [RemoteFile(p, f"{base}/{identifier}/{quote(p)}", checksum=f"sha256:{digest}") for digest, p in pairs]


SITES: dict[str, tuple[str, Callable[[str, str], list[RemoteFile]]]] = {
    "openneuro": ("https://s3.amazonaws.com/openneuro.org", _openneuro),
    "figshare": ("https://api.figshare.com/v2", _figshare),
    "zenodo": ("https://zenodo.org/api", _zenodo),
    "repod": ("https://repod.icm.edu.pl/api", _dataverse),
    "osf": ("https://api.osf.io/v2", _osf),
    "physionet": ("https://physionet.org/files", _physionet),
}
