"""What to show of a folder of runs: experiments chosen by method, backbone, budget, recipe and split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse, did_you_mean
from bridgemil.methods import short_name
from bridgemil.report.benchmark import Cell

NAMED: dict[str, Callable[[Cell], str]] = {  # option -> what it names
    "methods": lambda cell: cell.method, "backbones": lambda cell: cell.place.backbone,
    "budget": lambda cell: cell.place.budget, "recipe": lambda cell: cell.place.recipe,
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Names to show; an empty tuple shows all. Baselines have no backbone, budget and recipe: only methods and splits
    exclude them.
    """

    methods: Sequence[str] = ()  # an ensemble is named as it was run, ``tangent+attention``
    backbones: Sequence[str] = ()
    budgets: Sequence[str] = ()
    recipes: Sequence[str] = ()
    splits: Sequence[str] = ()  # a split file, the beginning of a split's hash, or words of its title: ``split seed 0``

    def among(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that match; ``BadUse`` if a name matches none, or if no cell is left."""
        hashes = {plan_hash for words in self.splits for plan_hash in _splits(words, cells)}
        for option, wanted in self._wanted.items():
            there = sorted({NAMED[option](cell) for cell in cells} - {""})
            for word in wanted:
                if word not in there:
                    _refuse(option, word, there)
        chosen = [c for c in cells if (not hashes or c.split.hash in hashes) and self._fits(c, ["methods"])]
        matching = [c for c in chosen if c.is_baseline or self._fits(c, NAMED)]
        if not matching or all(c.is_baseline for c in matching) != all(c.is_baseline for c in chosen):
            titles = [f"{c.method}, {c.place.title}" + (f", {c.split.title}" if self.splits else "") for c in cells]
            raise BadUse(f"nothing here fits {self} together; there are: {'; '.join(dict.fromkeys(titles))}")
        return matching

    @property
    def _wanted(self) -> dict[str, Sequence[str]]:
        backbones = [short_name(name) for name in self.backbones]
        return dict(zip(NAMED, (self.methods, backbones, self.budgets, self.recipes), strict=True))

    def _fits(self, cell: Cell, options: Iterable[str]) -> bool:
        return all(not self._wanted[option] or NAMED[option](cell) in self._wanted[option] for option in options)

    def __str__(self) -> str:
        named = [f"--{option} {','.join(wanted)}" for option, wanted in self._wanted.items() if wanted]
        return " ".join([*named, *(f'--split "{split}"' for split in self.splits)])


def _splits(words: str, cells: Sequence[Cell]) -> set[str]:
    """Hashes of the splits that a file, the beginning of a hash or a title names."""
    titles = {cell.split.hash: cell.split.title for cell in cells}
    if Path(words).is_file():
        found = {FoldPlan.load(words).hash} & set(titles)
    else:
        begins = re.fullmatch("[0-9a-f]{4,64}", words) is not None
        found = {key for key in titles if begins and key.startswith(words)}
        # Whole words: "split seed 1" is not "split seed 10".
        whole = re.compile(rf"(?<!\w){re.escape(words.strip())}(?!\w)", re.IGNORECASE)
        found = found or {key for key, title in titles.items() if words.strip() and whole.search(title)}
    if not found:
        _refuse("split", words, sorted(f"{title} ({key[:12]})" for key, title in titles.items()))
    return found


def _refuse(option: str, word: str, there: Sequence[str]) -> None:
    hint = did_you_mean(word, there)
    raise BadUse(f"--{option}: nothing complete here is {word!r}; there are: {'; '.join(there) or 'none'}{hint}")
