"""Registries: what can be named by a user, each name with its description, colour and options.

A method, backbone, aggregator, Stage 1 objective, baseline or study is one file and one line in the registry of its
package. Help texts, figures and documentation read the registry; The line holds what help
texts need, so that the file (and torch) is imported only when the entry is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bridgemil.errors import one_of

# The hues follow Okabe and Ito (2008), who can be told apart by colour-blind readers, shifted so that each stands out
# from a light and a dark page. There are more methods than such hues, so markers differ too.
OTHER_COLOURS = ("#5b7fa6", "#a6785b", "#5ba68c", "#a65b8f", "#8fa65b")
CLASS_COLOURS = ("#0f7ab8", "#c98a00", "#0a9b74", "#c2478b", "#7d6bb8", "#8a6d5a")


@dataclass(frozen=True)
class Entry:
    """One name of a registry."""

    description: str  # one line for help texts, tables and documentation
    target: Any = ""  # ``"file:NAME"`` or ``"file"`` below the registry's package, or the object itself
    colour: str | None = None  # hexadecimal, in figures; None gives one that depends on the name
    marker: str = "diamond"  # of its points in figures: also ``circle``, ``square``, ``triangle``
    options: tuple[str, ...] = ()  # names of its own options, where no signature or ``Settings`` states them


AnyEntry = TypeVar("AnyEntry", bound=Entry)


class Registry(dict[str, AnyEntry]):
    """The entries of one kind (``backbone``), by name and in the order of tables; targets are found below a package.

    For an unknown name ``BadUse`` lists the names. An entry that is added later is there in this process only.
    """

    def __init__(self, kind: str, package: str, entries: Mapping[str, AnyEntry]) -> None:
        super().__init__(entries)
        self.kind, self.package, self.built_in = kind, package, tuple(entries)

    def __missing__(self, name: str) -> AnyEntry:
        one_of(self.kind, name, self)
        raise KeyError(name)

    def copy(self) -> Registry[AnyEntry]:
        """A registry of the built-in entries alone; tests use it in place of the original."""
        return Registry(self.kind, self.package, {name: self[name] for name in self.built_in})

    def load(self, name: str) -> Any:
        """The target of an entry: a class, a function or a module, imported now."""
        target = self[name].target
        if not isinstance(target, str):
            return target
        file, _, attribute = target.partition(":")
        module = importlib.import_module(f"{self.package}.{file}")
        return getattr(module, attribute) if attribute else module

    def describe(self) -> str:
        """``name (description), …`` for help texts."""
        return ", ".join(f"{name} ({entry.description})" for name, entry in self.items())


def class_colour(number: int) -> str:
    """The colour of a class by its number."""
    return CLASS_COLOURS[number % len(CLASS_COLOURS)]
