"""Downloads, from a local server that imitates the interfaces of the hosts. The real hosts are never contacted."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from bridgemil.datasets import download
from bridgemil.datasets import fetch as module
from bridgemil.errors import BadData, BadUse
from command import bridgemil

CONTENT = bytes(range(256)) * 4000  # 1 MB
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
DEEP = "derivatives/sub-001/eeg/sub-001_task-eyesclosed_eeg.set"


class Hosts(ThreadingHTTPServer):
    """Answers listings by path, and every other path with CONTENT; ``cut`` closes connections after some bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.at = f"http://127.0.0.1:{self.server_address[1]}"
        self.listings: dict[str, Any] = {}
        self.cut: list[int] = []  # bytes after which the next connections break
        self.ranges = True
        self.status = 200
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Hosts

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        page = (parse_qs(parts.query).get("page") or parse_qs(parts.query).get("continuation-token") or [""])[0]
        listing = self.server.listings.get(unquote(parts.path) + page)
        if listing is not None:
            body = listing if isinstance(listing, bytes) else json.dumps(listing).encode()
            self._answer(200, body, {})
            return
        asked = self.headers.get("Range")
        self.server.asked.append((unquote(parts.path), asked))
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
        else:
            self._answer(
                206 if start else 200, CONTENT[start:], {}, self.server.cut.pop(0) if self.server.cut else None
            )

    def _answer(self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])
        self.close_connection = True


def _s3(base: str, keys: list[str], following: str = "", tag: str = MD5) -> bytes:
    rows = "".join(
        f'<Contents><Key>{key}</Key><ETag>"{tag}"</ETag><Size>{len(CONTENT)}</Size></Contents>' for key in keys
    )
    more = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListBucketResult xmlns="{space}">{rows}{more}</ListBucketResult>'.encode()


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    with Hosts() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        sites = {site: (f"{server.at}/{site}", listing) for site, (_, listing) in module.SITES.items()}
        monkeypatch.setattr(module, "SITES", sites)
        monkeypatch.setattr(module, "PAUSE", 0)
        at, size = server.at, len(CONTENT)
        names = ["H S1 EC.edf", "H S15 EO.edf", "H S15 EO.edf", "H S1 TASK.edf", *(f"x{i}" for i in range(97))]
        files = [
            {"id": 7 + i, "name": name, "size": size, "download_url": f"{at}/f/{i}", "computed_md5": MD5}
            for i, name in enumerate(names)
        ]
        repod = [{"label": f"{kind}01.edf", "dataFile": {"id": kind, "filesize": size, "md5": MD5}} for kind in "hs"]
        facts = {"name": "EEG_data.zip", "kind": "file", "size": size, "extra": {"hashes": {"sha256": SHA256}}}
        osf = {"attributes": facts, "links": {"download": f"{at}/osf-file"}}
        zenodo = {
            "key": "EEGs.zip",
            "size": size,
            "checksum": f"md5:{MD5}",
            "links": {"self": f"{at}/z/EEGs.zip/content"},
        }
        first = [f"ds004504/{name}" for name in ("participants.tsv", "sub-001/eeg/sub-001_task-eyesclosed_eeg.set")]
        server.listings = {
            "/openneuro/": _s3(at, first, "more"),
            "/openneuro/more": _s3(at, [f"ds004504/{DEEP}"], tag="0123-2"),  # uploaded in two parts: no MD5
            "/figshare/articles/4244171/files1": files[:100],
            "/figshare/articles/4244171/files2": files[100:],
            "/zenodo/records/1252141": {"files": [zenodo]},
            "/repod/datasets/:persistentId/": {"data": {"latestVersion": {"files": repod}}},
            "/osf/nodes/2v5md/files/osfstorage/": {"data": [osf]},
            "/physionet/eegmat/1.0.0/SHA256SUMS.txt": f"{SHA256} Subject00_1.edf\n{SHA256} Subject00_2.edf\n".encode(),
        }  # fmt: skip
        yield server
        server.shutdown()


FETCHED = {
    "adftd": ["participants.tsv", DEEP],
    "mumtaz2017": ["H S1 EC.edf", "8_H S15 EO.edf", "9_H S15 EO.edf"],  # two files of one name, as figshare's ZIP
    "vanhees2018": ["EEGs.zip"],
    "olejarczyk2017": ["h01.edf", "s01.edf"],
    "florida": ["EEG_data.zip"],
    "eegmat": ["Subject00_1.edf"],
}


@pytest.mark.parametrize("name", FETCHED)
def test_each_host_is_listed_fetched_and_compared(name: str, hosts: Hosts, tmp_path: Path) -> None:
    done = download(name, tmp_path / "data")
    assert done.fetched == FETCHED[name]
    assert all((tmp_path / "data" / path).read_bytes() == CONTENT for path in done.fetched)
    assert {p.relative_to(tmp_path / "data").as_posix() for p in (tmp_path / "data").rglob("*.*")} == set(done.fetched)
    hosts.asked.clear()
    again = download(name, tmp_path / "data")
    assert (again.fetched, again.present, hosts.asked) == ([], FETCHED[name], [])


def test_what_prepare_does_not_need_is_listed_and_all_fetches_it(hosts: Hosts, tmp_path: Path) -> None:
    assert download("mumtaz2017", tmp_path).left_out[:2] == ["H S1 TASK.edf", "x0"]
    assert "Subject00_2.edf" in download("eegmat", tmp_path, everything=True).fetched


def test_an_interrupted_transfer_resumes_where_it_broke(hosts: Hosts, tmp_path: Path) -> None:
    hosts.cut = [300_000, 200_000]
    assert download("vanhees2018", tmp_path).fetched == ["EEGs.zip"]
    assert [asked for _, asked in hosts.asked] == [None, "bytes=300000-", "bytes=500000-"]
    assert (tmp_path / "EEGs.zip").read_bytes() == CONTENT


def test_after_three_breaks_the_next_call_resumes(hosts: Hosts, tmp_path: Path) -> None:
    hosts.cut = [100, 100, 100]
    with pytest.raises(BadData, match=r"bytes missing; 300 bytes are kept, and the same command resumes"):
        download("eegmat", tmp_path)
    assert not (tmp_path / "Subject00_1.edf").exists()
    hosts.asked.clear()
    download("eegmat", tmp_path)
    assert hosts.asked == [("/physionet/eegmat/1.0.0/Subject00_1.edf", "bytes=300-")]


def test_a_transfer_that_was_complete_is_only_compared(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / ".Subject00_1.edf.part").write_bytes(CONTENT)  # killed before its name was given
    download("eegmat", tmp_path)
    assert (tmp_path / "Subject00_1.edf").read_bytes() == CONTENT


def test_a_host_that_ignores_ranges_is_read_from_the_start(hosts: Hosts, tmp_path: Path) -> None:
    hosts.cut, hosts.ranges = [1000], False
    download("vanhees2018", tmp_path)
    assert (tmp_path / "EEGs.zip").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("record", "message"),
    [({"checksum": "md5:" + "0" * 32}, f"md5 is {MD5}, expected 00000"), ({"size": 999}, "bytes, expected 999")],
)
def test_a_file_that_differs_from_the_record_is_not_kept(
    record: dict[str, Any], message: str, hosts: Hosts, tmp_path: Path
) -> None:
    hosts.listings["/zenodo/records/1252141"]["files"][0] |= record
    with pytest.raises(BadData, match=re.escape(message)):
        download("vanhees2018", tmp_path)
    assert not (tmp_path / "EEGs.zip").exists()
    assert (tmp_path / ".EEGs.zip.part").stat().st_size == 0, "a wrong file is not resumed"


def test_a_damaged_file_is_fetched_again(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "EEGs.zip").write_bytes(CONTENT[:-1] + b"x")
    assert download("vanhees2018", tmp_path).fetched == ["EEGs.zip"]
    assert (tmp_path / "EEGs.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("key", ["../outside.zip", "/etc/outside.zip", "a/../../outside.zip"])
def test_a_name_outside_the_folder_is_refused(key: str, hosts: Hosts, tmp_path: Path) -> None:
    hosts.listings["/zenodo/records/1252141"]["files"][0]["key"] = key
    with pytest.raises(BadData, match="outside the folder"):
        download("vanhees2018", tmp_path / "in")
    assert not list(tmp_path.rglob("*outside*"))


def test_what_a_host_answers_is_named(hosts: Hosts, tmp_path: Path) -> None:
    hosts.status = 403
    with pytest.raises(BadData, match="the host answered 403 Forbidden; 0 bytes are kept"):
        download("vanhees2018", tmp_path)
    assert len(hosts.asked) == 1, "a refusal is not repeated"
    hosts.listings["/zenodo/records/1252141"] = {"hits": []}
    with pytest.raises(BadData, match=r"unexpected answer \(KeyError\('files'\)\)"):
        download("vanhees2018", tmp_path)
    hosts.listings["/zenodo/records/1252141"] = {"files": []}
    with pytest.raises(BadData, match="zenodo lists no file of 1252141"):
        download("vanhees2018", tmp_path)


def test_the_command(hosts: Hosts, tmp_path: Path) -> None:
    done = bridgemil("download", "eegmat", tmp_path / "e", "--json")
    assert json.loads(done.stdout)["fetched"] == ["Subject00_1.edf"]
    shown = bridgemil("download", "eegmat", tmp_path / "e")
    assert "0 files fetched, 1 were complete" in shown.stdout
    assert f"Next: bridgemil manifest {tmp_path / 'e'}" in shown.stdout
    login = bridgemil("download", "tdbrain", tmp_path / "t")
    assert (login.returncode, (tmp_path / "t").exists()) == (1, False)
    assert "needs a login" not in login.stdout
    assert "Sign in with ORCID" in login.stderr
    assert bridgemil("download", "nothing", tmp_path / "n").returncode == 2
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadUse, match="is not a folder"):
        download("eegmat", tmp_path / "file")
