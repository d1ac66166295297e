"""The templates of the package (``report/templates``): HTML pages that are one file each, and plain text.

A page opens from disk, loads nothing and sends nothing: it forbids itself every request (Content-Security-Policy).
Templates ending in ``.html.j2`` are HTML and escape what is filled in; all others are plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil import methods
from bridgemil.errors import BridgeMILError, plain
from bridgemil.evaluation.statistics import counted, p_text, points
from bridgemil.registry import class_colour
from bridgemil.runs import TITLE, warning_text
from bridgemil.storage.files import write_text

if TYPE_CHECKING:
    from jinja2 import Environment

RESEARCH = "Research use only. Not a medical device; not for diagnosis or treatment decisions."


def asset(name: str) -> str:
    """A file of the templates' folder."""
    return files("bridgemil.report").joinpath("templates", name).read_text("utf-8")


def md_text(text: str) -> str:
    """Plain text with Markdown's characters escaped, on one line; an underscore within a word means nothing there."""
    indent = "&emsp;" if text.startswith("  ") else ""
    return indent + re.sub(r"[\\`*\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", " ".join(text.split()))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
    from rich.markup import escape

    environment = Environment(
        autoescape=select_autoescape(["html.j2"], default=False, default_for_string=False),
        loader=FunctionLoader(asset), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
        finalize=lambda value: plain(value) if type(value) is str else value,  # names come from files
    )  # fmt: skip
    environment.globals |= {
        "warnings_title": TITLE, "warning_text": warning_text, "points": points, "p_text": p_text, "counted": counted,
        "colour_of": methods.entry, "class_colour": class_colour,
    }  # fmt: skip
    environment.filters |= {"md": md_text, "markup": escape}
    environment.filters["sentence"] = lambda words: f"{words[:1].upper()}{words[1:]}."
    environment.filters |= {name: macro("parts.md.j2", name) for name in ("table", "sheet", "warnings")}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    return environment


def page(template: str, *, scripts: tuple[str, ...] = ("page.js",), **values: Any) -> str:
    """An HTML page as text, of a template that extends ``base.html.j2`` and of JavaScript files.

    ``values`` are what the template names: ``heading``; ``audit_warnings``, where there are any, stand in a box above
    its content.
    """
    from markupsafe import Markup

    from bridgemil import __version__

    shared: dict[str, Any] = {
        "audit_warnings": (), "css": Markup(asset("page.css")), "js": Markup("\n".join(map(asset, scripts))),
        "research": RESEARCH, "version": __version__,
    }  # fmt: skip
    return _environment().get_template(template).render(shared | values)


def text(template: str, **values: Any) -> str:
    """A plain-text template, filled in; several blank lines become one."""
    return re.sub(r"\n{3,}", "\n\n", _environment().get_template(template).render(values)).strip()


def string(source: str, /, **values: Any) -> str:
    """A template given as text (of a YAML file), filled in."""
    return _environment().from_string(source).render(values)


def macro(template: str, name: str) -> Callable[..., str]:
    """A macro of a template as a function that returns text."""

    def filled(*values: Any, **more: Any) -> str:
        return str(getattr(_environment().get_template(template).module, name)(*values, **more)).strip()

    return filled


def write(path: str | Path, content: str) -> None:
    """Write a page, complete or not at all; its folder is created if it does not exist."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content)
    except OSError as error:
        raise BridgeMILError(f"{path}: the page cannot be written ({error.strerror}); choose another file") from None
