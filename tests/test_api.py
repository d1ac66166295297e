"""docs/api.md documents the public names: it lists them, their signatures hold, and its examples run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bridgemil

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
CALLS = dict(re.findall(r"`([\w.]+)\(([^`]*)\)`", "\n".join(re.findall(r"^\|.*", PAGE, flags=re.M))))


def _resolve(name: str) -> Any:
    found: Any = bridgemil
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _parameters(thing: Any) -> list[str]:
    return [name for name in inspect.signature(thing).parameters if name != "self"]


def test_every_public_name_is_on_the_page() -> None:
    documented = {part for name in CALLS for part in name.split(".")[:1]}
    assert set(bridgemil.__all__) - {"__version__"} == documented


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_documented_name_has_its_signature_and_a_numpydoc_docstring(name: str) -> None:
    thing = _resolve(name)
    assert not isinstance(thing, ModuleType)
    stated = [part.strip() for part in CALLS[name].split(",") if part.strip() not in ("", "*", "…")]
    actual = _parameters(thing)
    assert stated == [parameter for parameter in actual if parameter in stated], actual
    assert "…" in CALLS[name] or stated == actual
    text = inspect.getdoc(thing) or ""
    sections = re.split(r"^(\w[\w ]+)\n-{3,}\n", text, flags=re.M)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    typed = re.findall(r"^(\*{0,2}\w[\w, *]*) : \S", found.get("Parameters", ""), flags=re.M)
    described = {part.strip(" *") for entry in typed for part in entry.split(",")}
    assert set(actual) <= described, f"{name}: no type in the docstring of {sorted(set(actual) - described)}"
    if not inspect.isclass(thing) and inspect.signature(thing).return_annotation not in (None, "None"):
        assert {"Returns", "Yields"} & set(found), f"{name}: what does it return?"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
    exec(compile(code, "docs/api.md", "exec"), {})
