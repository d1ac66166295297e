"""The items of the checklist as data, and what fills one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from bridgemil.errors import plain
from bridgemil.report.tables import Sheet

State = Literal["filled", "partly", "author"]
STATES: dict[State, str] = {
    "filled": "taken from the records of cohort and runs; check it",
    "partly": "a part is taken from the records; what to add is named",
    "author": "the author's to write",
}


@dataclass(frozen=True)
class Item:
    """One item of TRIPOD+AI.

    Parameters
    ----------
    number
        As the checklist numbers it: ``12a``.
    section
        The part of a paper it belongs to.
    topic
        What it asks for, in few words.
    author
        What only the author can say; empty where the records say all.
    """

    number: str
    section: str
    topic: str
    author: str


@dataclass(frozen=True)
class Answer:
    """What the records say to an item.

    Parameters
    ----------
    lines
        Sentences.
    sheets
        Tables.
    unknown
        What should be in the records and is not, with the reason: the author has to add it.
    """

    lines: tuple[str, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the records say nothing."""
        return not self.lines and not self.sheets


@dataclass(frozen=True)
class Entry:
    """An item with its answer; all words are safe to print."""

    item: Item
    answer: Answer

    @property
    def state(self) -> State:
        """Who has to write it."""
        if self.answer.is_empty:
            return "author"
        return "partly" if self.to_add else "filled"

    @property
    def to_add(self) -> list[str]:
        """What the author has to add."""
        return [*self.answer.unknown, *([self.item.author] if self.item.author else [])]


@cache
def items() -> tuple[Item, ...]:
    """All items, in the checklist's order."""
    return tuple(Item(**content) for content in read_yaml("items.yaml"))


def read_yaml(name: str) -> list[dict[str, Any]]:
    """A list of this package's."""
    import yaml

    text = files("bridgemil.report.checklist").joinpath(name).read_text("utf-8")
    content: list[dict[str, Any]] = yaml.safe_load(text)
    return content


def entry(item: Item, answer: Answer) -> Entry:
    """The item with its answer, control characters shown as codes: names come from files.

    Parameters
    ----------
    item
        Which.
    answer
        What the records say.
    """
    sheets = tuple(
        replace(
            sheet,
            title=safe_text(sheet.title),
            columns=safe(sheet.columns),
            rows=[safe(row) for row in sheet.rows],
            before=safe(sheet.before),
            after=safe(sheet.after),
        )
        for sheet in answer.sheets
    )
    return Entry(item, Answer(safe(answer.lines), sheets, safe(answer.unknown)))


def safe(words: Sequence[str]) -> tuple[str, ...]:
    """Each text as ``safe_text`` gives it."""
    return tuple(map(safe_text, words))


def safe_text(text: str) -> str:
    """The text in one line, control characters shown as codes."""
    return " ".join(plain(text).split())
