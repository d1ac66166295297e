"""The models that come with the package, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bridgemil.errors import NotFound

NAMES = ("alzheimer",)  # folders of src/bridgemil/bundles; a test compares


def locate(model: str | Path) -> Path:
    """The folder of a model: a folder, or the name of a model that comes with the package.

    Parameters
    ----------
    model
        As the user named it. A folder of that name comes first.
    """
    path = Path(model)
    if path.exists():
        return path
    if str(model) in NAMES:
        return Path(str(files("bridgemil").joinpath("bundles", str(model))))
    raise NotFound(
        f"{model}: no such folder, and no model of the package ({', '.join(NAMES)}); make one with "
        "`bridgemil train COHORT --out MODEL`"
    )
