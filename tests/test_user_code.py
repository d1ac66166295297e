"""A user's code by address: what is on disk is what runs, and what is hashed."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgemil import user_code
from bridgemil.errors import BadUse, BridgeMILWarning

NET = """
import math
from layers import width

def make():
    import late
    return width(), late.DEPTH, math.floor(2.5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "project")


def project(folder: Path) -> Path:
    """A file, a helper beside it, and one that is imported only when it is needed."""
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(NET)
    (folder / "layers.py").write_text("from deeper.sizes import SIZE\ndef width():\n    return SIZE\n")
    (folder / "late.py").write_text("DEPTH = 3\n")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "__init__.py").write_text("")
    (folder / "deeper" / "sizes.py").write_text("SIZE = 16\n")
    (folder / "unrelated.py").write_text("X = 1\n")
    return folder


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("net.py:Net", True),
        ("../nets/my net.py:Net", True),
        ("~/net.py:make", True),
        ("nets:Net", True),
        ("lab.nets.deep:Net", True),
        ("braindecode:EEGNet", False),
        ("spd_learn:Green", False),
        ("eegnet", False),
        ("net.py", False),
        ("net.py:", False),
        ("net.py:no-name", False),
        (":Net", False),
        ("lab..nets:Net", False),
        ("net.txt/x:Net", False),
    ],
)
def test_what_is_an_address(name: str, answer: bool) -> None:
    assert user_code.is_address(name) is answer


def test_a_files_address_holds_in_every_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert user_code.absolute("net.py:make") == f"{folder / 'net.py'}:make"
    assert user_code.absolute("../project/net.py:make") == f"{folder / 'net.py'}:make"
    assert user_code.absolute("lab.nets:Net") == "lab.nets:Net"
    assert user_code.load("net.py:make")() == (16, 3, 2)


EDITS = {
    "net.py": ("2.5", "3.5", (16, 3, 3)),
    "layers.py": ("return SIZE", "return SIZE + 1", (17, 3, 2)),
    "deeper/sizes.py": ("16", "32", (32, 3, 2)),  # as many bytes, within the clock's tick
    "late.py": ("3", "4", (16, 4, 2)),
}


@pytest.mark.parametrize("file", EDITS)
def test_an_edit_is_seen_in_the_same_process(folder: Path, file: str) -> None:
    address = f"{folder / 'net.py'}:make"
    old, before = user_code.load(address), user_code.fingerprint(address)
    assert user_code.load(address) is old  # nothing has changed: nothing runs again
    text, edited, expected = EDITS[file]
    stamp = (folder / file).stat()
    (folder / file).write_text((folder / file).read_text().replace(text, edited))
    os.utime(folder / file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert user_code.fingerprint(address) != before
    assert user_code.load(address)() == expected
    assert old()[::2] == (16, 2)  # what was imported at the top stays what it was


def test_what_is_not_imported_does_not_count(folder: Path) -> None:
    address = f"{folder / 'net.py'}:make"
    before = user_code.fingerprint(address)
    (folder / "unrelated.py").write_text("X = 2\n")
    assert user_code.fingerprint(address) == before


def test_the_place_does_not_count_and_the_name_does(folder: Path, tmp_path: Path) -> None:
    moved = project(tmp_path / "elsewhere" / "again")
    assert user_code.fingerprint(f"{folder / 'net.py'}:make") == user_code.fingerprint(f"{moved / 'net.py'}:make")
    assert user_code.fingerprint(f"{folder / 'net.py'}:make") != user_code.fingerprint(f"{moved / 'net.py'}:width")
    (moved / "late.py").write_text("DEPTH = 9\n")


def test_a_module_of_the_same_name_is_replaced_with_a_warning(folder: Path, tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    (other / "layers.py").write_text("def width():\n    return 99\n")
    mine = user_code.load(f"{folder / 'net.py'}:make")
    with pytest.warns(BridgeMILWarning, match=r"module layers was imported from .*project/layers.py before"):
        assert user_code.load(f"{other / 'net.py'}:make")() == (99, 3, 2)
    assert mine()[0] == 16  # what was imported at the top stays what it was


def test_a_module_beside_the_file_does_not_replace_an_installed_one(folder: Path) -> None:
    import yaml

    (folder / "yaml.py").write_text("WRONG = 1\n")
    (folder / "net.py").write_text("import yaml\ndef make():\n    return yaml\n")
    assert user_code.load(f"{folder / 'net.py'}:make")() is yaml


PACKAGE = {
    "__init__.py": "",
    "nets.py": """
        import lab.parts.blocks
        import lab.parts.blocks as same
        from . import heads
        from lab import heads as heads_again
        import importlib
        def make():
            named = importlib.import_module("lab.parts.named")
            return lab.parts.blocks.N, same.N, heads.N, heads_again is heads, named.N
    """,
    "heads.py": "from .parts import blocks\nN = 10 * blocks.N\n",
    "parts/blocks.py": "N = 1\n",  # a folder without __init__.py
    "parts/named.py": "N = 5\n",
}


def package(folder: Path) -> Path:
    import textwrap

    for name, text in PACKAGE.items():
        (folder / "lab" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "lab" / name).write_text(textwrap.dedent(text))
    return folder


@pytest.mark.parametrize("by", ["file", "module"])
def test_packages_by_file_and_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    package(tmp_path)
    if by == "module":
        monkeypatch.syspath_prepend(tmp_path)
    address = "lab.nets:make" if by == "module" else f"{tmp_path}/lab/nets.py:make"
    assert user_code.load(address)() == (1, 1, 10, True, 5)
    before = user_code.fingerprint(address)
    (tmp_path / "lab" / "parts" / "blocks.py").write_text("N = 2\n")
    assert user_code.load(address)() == (2, 2, 20, True, 5)
    assert user_code.fingerprint(address) != before


def test_installed_code_is_imported_plainly() -> None:
    import json.decoder

    assert user_code.load("json.decoder:JSONDecoder") is json.decoder.JSONDecoder
    assert len(user_code.fingerprint("json.decoder:JSONDecoder")) == 64


def test_installed_code_beside_a_file_is_not_taken_for_the_users(tmp_path: Path) -> None:
    import bridgemil

    (tmp_path / "src").symlink_to(Path(bridgemil.__file__).parents[1])  # a file beside a checkout of ours
    (tmp_path / "site-packages" / "there").mkdir(parents=True)
    (tmp_path / "site-packages" / "there" / "__init__.py").write_text("")
    (tmp_path / "site-packages" / "net.py").write_text("import there\n")
    assert not user_code.is_user_file(tmp_path / "src" / "bridgemil" / "errors.py")


def test_users_mistakes_are_sentences(folder: Path) -> None:
    def refused(address: str) -> str:
        with pytest.raises(BadUse) as caught:
            user_code.load(address)
        assert address in str(caught.value)
        return str(caught.value)

    net = folder / "net.py"
    assert f"there is no file {folder / 'nets.py'}" in refused(f"{folder / 'nets.py'}:make")
    assert "did you mean make?" in refused(f"{net}:maker")
    assert "Python finds no module 'nowhere_at_all.nets'" in refused("nowhere_at_all.nets:Net")
    assert "Python finds no module 'json.nets'" in refused("json.nets:Net")
    (folder / "late.py").write_text("x = 1\ndef f(:\n")
    assert f"SyntaxError: invalid syntax ({folder / 'late.py'}, line 2)" in refused(f"{net}:make")
    (folder / "late.py").write_text("DEPTH = 3\n")
    (folder / "layers.py").write_text("\n\nwidth = 1 / 0\n")
    assert f"ZeroDivisionError: division by zero ({folder / 'layers.py'}, line 3)" in refused(f"{net}:make")
    (folder / "layers.py").write_text("depth = 1\n")
    assert f"cannot import name 'width' from 'layers' ({folder / 'layers.py'})" in refused(f"{net}:make")
    (folder / "layers.py").write_text("import sys\nwidth = 3\nsys.exit(2)\n")
    assert f"SystemExit: 2 ({folder / 'layers.py'}, line 3)" in refused(f"{net}:make")
    (folder / "layers.py").write_text("width = 3\n")  # the mistake is mended: the next load sees it
    assert "must be a class or a function, it is int" in refused(f"{net}:width")
    with pytest.raises(BadUse, match="an address is"):
        user_code.fingerprint("eegnet")


# What a notebook would register: functions, closures, classes.


class Net:
    """At the top level of a file: its source says what it is."""


def with_width(width: int) -> Callable[[int, int], Any]:
    return lambda c, t: (c, t, width)


def test_a_class_of_a_file_has_the_fingerprint_of_its_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_code.fingerprint(Net) == user_code.fingerprint(f"{__file__}:Net")
    assert user_code.fingerprint(Net) != user_code.fingerprint(with_width)
    make = user_code.load(f"{folder / 'net.py'}:make")
    assert user_code.fingerprint(make) == user_code.fingerprint(f"{folder / 'net.py'}:make")


@pytest.mark.parametrize("thing", [with_width(3), functools.partial(with_width, 3), type("Made", (), {})])
def test_what_no_source_describes_is_never_taken_for_something_stored(thing: Any) -> None:
    with pytest.warns(BridgeMILWarning, match="its results are not reused by other processes. Define it in a file"):
        first = user_code.fingerprint(thing)
    assert user_code.fingerprint(thing) == first  # the same object: no second warning
    with pytest.warns(BridgeMILWarning):
        assert user_code.fingerprint(with_width(3)) != first


def test_two_processes_agree(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from bridgemil import user_code\n"
        "NAMES = {'delta', 'theta', 'alpha', 'beta'}\n"
        "class Base: kinds = frozenset(['x', 'y', 'z', 'w'])\n"
        "class Net(Base):\n"
        "    def __init__(self, c, t, *, bands=NAMES):\n"
        "        super().__init__()\n"
        "        self.known = c in {'a', 'b', 'c'} or NAMES\n"
        f"print(user_code.fingerprint({str(folder / 'net.py') + ':make'!r}))\n"
        "print(user_code.fingerprint(Net))\n"
    )
    answers = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
        )
        answers.add(run.stdout)
    assert len(answers) == 1
    assert answers.pop().splitlines()[0] == user_code.fingerprint(f"{folder / 'net.py'}:make")
