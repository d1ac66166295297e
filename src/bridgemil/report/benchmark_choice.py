"""What to show of a folder of runs: some methods, backbones, budgets, recipes or splits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse, did_you_mean
from bridgemil.methods import short_name
from bridgemil.report.benchmark_table import Cell


@dataclass(frozen=True)
class Choice:
    """Names to show; an empty tuple shows all. Baselines have no backbone, budget and recipe: only methods and splits
    leave them out.

    Parameters
    ----------
    methods, backbones, budgets, recipes
        Names; an ensemble is named as it was run, ``tangent+attention``.
    splits
        Each a split file, the beginning of a split's hash, or words of its title: ``split seed 0``.
    """

    methods: Sequence[str] = ()
    backbones: Sequence[str] = ()
    budgets: Sequence[str] = ()
    recipes: Sequence[str] = ()
    splits: Sequence[str] = ()

    def among(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that fit; a name that fits none is refused, and so is a choice that leaves nothing."""
        chosen = list(cells)
        if self.splits:
            hashes = {plan_hash for words in self.splits for plan_hash in _splits(words, cells)}
            chosen = [cell for cell in chosen if cell.split.hash in hashes]
        methods = _present("methods", self.methods, cells, lambda cell: cell.method)
        chosen = [cell for cell in chosen if not methods or cell.method in methods]
        networks = [cell for cell in chosen if not cell.is_baseline]
        for option, wanted, name in self._of_networks():
            names = _present(option, wanted, cells, name)
            networks = [cell for cell in networks if not names or name(cell) in names]
        asked = any(not cell.is_baseline for cell in chosen)
        fitting = {id(cell) for cell in networks}
        chosen = [cell for cell in chosen if cell.is_baseline or id(cell) in fitting]
        if not chosen or (asked and not networks):
            splits = bool(self.splits)
            there = dict.fromkeys(
                f"{cell.method}, {cell.place.title}" + (f", {cell.split.title}" if splits else "") for cell in cells
            )
            raise BadUse(f"nothing here fits {self} together; there are: {'; '.join(there)}")
        return chosen

    def _of_networks(self) -> list[tuple[str, Sequence[str], Callable[[Cell], str]]]:
        return [
            ("backbones", [short_name(name) for name in self.backbones], lambda cell: cell.place.backbone),
            ("budget", self.budgets, lambda cell: cell.place.budget),
            ("recipe", self.recipes, lambda cell: cell.place.recipe),
        ]

    def __str__(self) -> str:
        named = [("methods", self.methods), *((option, wanted) for option, wanted, _ in self._of_networks())]
        words = [f"--{option} {','.join(wanted)}" for option, wanted in named if wanted]
        return " ".join([*words, *(f'--split "{split}"' for split in self.splits)])


def _present(option: str, wanted: Sequence[str], cells: Sequence[Cell], name: Callable[[Cell], str]) -> Sequence[str]:
    """The wanted names, each of which some cell has."""
    there = sorted({name(cell) for cell in cells} - {""})
    for word in wanted:
        if word not in there:
            _refuse(option, word, there)
    return wanted


def _splits(words: str, cells: Sequence[Cell]) -> set[str]:
    """The hashes of the splits that are meant."""
    titles = {cell.split.hash: cell.split.title for cell in cells}
    if Path(words).is_file():
        fitting = {FoldPlan.load(words).hash} & set(titles)
    else:
        begins = re.fullmatch("[0-9a-f]{4,64}", words) is not None
        fitting = {key for key in titles if begins and key.startswith(words)}
        # Whole words: "split seed 1" is not "split seed 10".
        whole = re.compile(rf"(?<!\w){re.escape(words.strip())}(?!\w)", re.IGNORECASE)
        fitting = fitting or {key for key, title in titles.items() if words.strip() and whole.search(title)}
    if not fitting:
        _refuse("split", words, sorted(f"{title} ({key[:12]})" for key, title in titles.items()))
    return fitting


def _refuse(option: str, word: str, there: Sequence[str]) -> None:
    hint = did_you_mean(word, there)
    raise BadUse(f"--{option}: nothing complete here is {word!r}; there are: {'; '.join(there) or 'none'}{hint}")
