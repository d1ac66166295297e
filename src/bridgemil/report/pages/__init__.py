"""HTML pages that are one file each: they open from disk, load nothing and send nothing. One look for all of them.

The templates, the style sheet and the scripts are files of this package. A page forbids itself every request
(Content-Security-Policy), so that what is in it is all there is.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil import methods
from bridgemil.errors import BridgeMILError
from bridgemil.registry import class_colour
from bridgemil.runs import TITLE, warning_text
from bridgemil.storage.files import write_text

if TYPE_CHECKING:
    from jinja2 import Environment

RESEARCH = "Research use only. Not a medical device; not for diagnosis or treatment decisions."


def asset(name: str) -> str:
    """A file of this folder."""
    return files("bridgemil.report.pages").joinpath(name).read_text("utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(autoescape=True, loader=FunctionLoader(asset), undefined=StrictUndefined)
    environment.globals |= {"warnings_title": TITLE, "warning_text": warning_text}
    environment.globals |= {"colour_of": methods.entry, "class_colour": class_colour}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    return environment


def render(template: str, *, scripts: tuple[str, ...] = ("page.js",), **values: Any) -> str:
    """A page as text.

    Parameters
    ----------
    template
        A file of this folder that extends ``base.html``; it needs ``title``, ``heading`` and ``sections``.
    scripts
        Files of this folder to put into it.
    values
        What the template names; ``audit_warnings``, where there are any, stand in a box above its content.
    """
    from markupsafe import Markup

    from bridgemil import __version__

    shared: dict[str, Any] = {
        "audit_warnings": (),
        "css": Markup(asset("page.css")),
        "js": Markup("\n".join(map(asset, scripts))),
        "research": RESEARCH,
        "version": __version__,
    }
    return _environment().get_template(template).render(shared | values)


def write(path: str | Path, text: str) -> None:
    """Write a page, whole or not at all; its folder is made if it is not there."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise BridgeMILError(f"{path}: the page cannot be written ({error.strerror}); choose another file") from None
