"""Where recordings come from. A source turns a folder into a ``Listing``; add one by adding a file and a line here."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from bridgemil.cohort.listing import Listing


class SourceOptions(BaseModel):
    """Which recordings and labels to take from a source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str | None = None  # the column of participants.tsv or of the manifest that holds the diagnosis
    unlabelled: bool = False  # every subject has the label ''
    task: str | None = None
    session: str | None = None
    raw: bool = False  # ADFTD: the raw recordings instead of the authors' cleaned ones


class Source(Protocol):
    """The one function a source module offers."""

    def find(self, root: Path, options: SourceOptions) -> Listing:
        """List the recordings below ``root`` without reading a signal."""


SOURCES = ("bids", "manifest", "adftd", "mumtaz2017", "rockhill2021")


def find(source: str, root: Path, options: SourceOptions) -> Listing:
    """List what the named source finds below ``root``.

    Parameters
    ----------
    source
        One of ``SOURCES``.
    root
        The folder, or the manifest's file.
    options
        Which recordings and labels to take.
    """
    module: Source = importlib.import_module(f"{__name__}.{source}")
    return module.find(root, options)
