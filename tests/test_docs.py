"""What README and docs show exists: commands and their options, imports of examples, pages and headings of links."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), flags=re.S | re.M)
    return [re.sub(rf"^{indent}", "", code, flags=re.M) for indent, code in found]


def _commands(page: Path) -> list[list[str]]:
    """Every `bridgemil VERB …` of a page, in console blocks and in backticks."""
    shown = [line for block in _blocks(page, "console") for line in block.replace("\\\n", " ").splitlines()]
    shown = [line.partition("$ ")[2] for line in shown if "$ " in line[:6]]
    shown += re.findall(r"`(bridgemil [a-z]+ [^`]*)`", page.read_text())
    parts = [part for line in shown for part in re.split(r"&&|;|\|(?= )", re.sub(r"\s#.*", "", line))]
    words = [shlex.split(part.strip().removeprefix("do ")) for part in parts if "'" not in part]
    return [command for command in words if command and command[0] == "bridgemil" and len(command) > 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    from bridgemil.cli import app

    verbs = typer.main.get_command(app).commands
    for command in _commands(page):
        if not command[1].isupper():
            assert command[1] in verbs, command
            known = {name for option in verbs[command[1]].params for name in [*option.opts, *option.secondary_opts]}
            given = {re.sub(r"[\]=].*", "", word).lstrip("[") for word in command if word.lstrip("[").startswith("--")}
            assert given <= known, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_imports_of_examples_work(page: Path) -> None:
    for code in _blocks(page, "python"):
        if not re.search(r"^(?:import|from) ", code, flags=re.M):
            continue  # a piece of a file
        imports = [node for node in ast.parse(code).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        exec(compile(ast.Module(imports, []), str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            other = page.parent / name if name else page
            assert other.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)", other.read_text(), flags=re.M)
                slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in slugs, target
