"""What to show of a folder of runs: experiments chosen by method, backbone, budget, recipe and split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse, one_of
from bridgemil.methods import short_name
from bridgemil.report.benchmark import Cell

COMPLETE = " (what is complete here)"


class Choice(NamedTuple):
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
        wanted: dict[str, Sequence[str]] = {
            "methods": self.methods, "backbones": [short_name(name) for name in self.backbones],
            "budget": self.budgets, "recipe": self.recipes,
        }  # fmt: skip
        wanted = {option: names for option, names in wanted.items() if names}
        for option, names in wanted.items():
            there = sorted({_names(cell)[option] for cell in cells} - {""})
            for name in names:
                one_of(f"--{option}", name, there, COMPLETE)
        hashes = {key for words in self.splits for key in _splits(words, cells)} or {c.split.hash for c in cells}
        chosen = [c for c in cells if c.split.hash in hashes and c.method in (self.methods or [c.method])]
        matching = [c for c in chosen if all(_names(c)[option] in ("", *names) for option, names in wanted.items())]
        if all(c.is_baseline for c in matching) and not (matching and all(c.is_baseline for c in chosen)):
            given = [f"--{option} {','.join(names)}" for option, names in wanted.items()]
            given += [f'--split "{split}"' for split in self.splits]
            titles = [f"{c.method}, {c.place.title}" + (f", {c.split.title}" if self.splits else "") for c in cells]
            raise BadUse(f"nothing here fits {' '.join(given)} together; there are: {'; '.join(dict.fromkeys(titles))}")
        return matching


def _names(cell: Cell) -> dict[str, str]:
    """What each option names."""
    place = cell.place
    return {"methods": cell.method, "backbones": place.backbone, "budget": place.budget, "recipe": place.recipe}


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
        one_of("--split", words, sorted(f"{title} ({key[:12]})" for key, title in titles.items()), COMPLETE)
    return found
