"""Cards of public data sets (cards.yaml): size, licence, how to get and prepare each, and its known defects."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from bridgemil.datasets.fetch import download
from bridgemil.errors import one_of


class Host(BaseModel):
    """Where a data set can be fetched without a login: a site of ``fetch.SITES``, and its identifier there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    site: str
    id: str


class DatasetCard(BaseModel):
    """What is known of a public data set; None where it could not be verified."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str  # for the command line
    title: str
    condition: str  # what the classes differ in
    classes: dict[str, int] | None = None  # subjects of each
    subjects: int | None = None  # their sum, where classes are known
    recording: str | None = None  # task
    electrodes: int | None = None  # on the scalp
    sfreq: float | None = None  # Hz
    length: str | None = None
    format: str | None = None
    licence: str | None = None
    url: str  # its page
    host: Host | None = None  # where ``bridgemil download`` gets it
    access: str | None = None  # how to get it where a login, a form or an agreement is needed
    files: tuple[str, ...] = ()  # patterns of the files that ``prepare`` needs; all files if empty
    prepare: tuple[str, ...] = ()  # commands from the downloaded folder to a cohort
    note: str | None = None  # what to know before preparing it
    citation: str
    defects: tuple[str, ...] = ()  # what is wrong with it, or has to be known before results are interpreted

    @model_validator(mode="before")
    @classmethod
    def _count(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("classes") and "subjects" not in values:
            return values | {"subjects": sum(values["classes"].values())}
        return values

    def rows(self) -> dict[str, str]:
        """The facts as text by heading, "unknown" where there is none."""
        classes = self.classes and ", ".join(f"{count:,} {name}" for name, count in self.classes.items())
        facts = {
            "Subjects": classes or (self.subjects and f"{self.subjects:,}"),
            "Recording": self.recording,
            "Electrodes": self.electrodes and str(self.electrodes),
            "Rate": self.sfreq and f"{self.sfreq:g} Hz",
            "Length": self.length,
            "Format": self.format,
            "Licence": self.licence,
            "Page": self.url,
            "Cite": self.citation,
        }
        return {heading: text or "unknown" for heading, text in facts.items()}

    def commands(self) -> list[str]:
        """From the host to a cohort."""
        return [*([f"bridgemil download {self.name} {self.name}"] if self.host else []), *self.prepare]


@cache
def _cards() -> dict[str, DatasetCard]:
    import yaml

    content = yaml.safe_load((Path(__file__).parent / "cards.yaml").read_text(encoding="utf-8"))
    return {name: DatasetCard(name=name, **card) for name, card in content.items()}


def names() -> list[str]:
    """Names of the data sets.

    Returns
    -------
    list of str
    """
    return list(_cards())


def card(name: str) -> DatasetCard:
    """The card of a data set.

    Parameters
    ----------
    name : str
        One of ``names()``.

    Returns
    -------
    DatasetCard
    """
    one_of("data set", name, _cards())
    return _cards()[name]


__all__ = ["DatasetCard", "Host", "card", "download", "names"]
