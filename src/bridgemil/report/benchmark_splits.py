"""Several splits of one cohort: the mean of each method over them, and against the baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.baselines import defaults
from bridgemil.errors import BadUse
from bridgemil.evaluation.results import compare_splits
from bridgemil.evaluation.statistics import Comparison, corrected
from bridgemil.report.benchmark_table import COMPARISON, Cell, Place, comparison_row, method_order
from bridgemil.runs import merged, warning_names

if TYPE_CHECKING:
    import pandas as pd

Pool = tuple[str, str, str]  # cohort, how many folds in words, how they were dealt
SCORES = ("accuracy", "balanced_accuracy", "auroc")


@dataclass(frozen=True)
class SplitRow:
    """One method on several splits of a cohort, dealt in one manner.

    Parameters
    ----------
    cells
        Of one cohort and one settings, by split hash; in the order of split seeds.
    """

    cells: Mapping[str, Cell]

    @property
    def first(self) -> Cell:
        """One of the cells: what they have in common can be asked of it."""
        return next(iter(self.cells.values()))

    @property
    def split_seeds(self) -> list[int]:
        """What dealt the splits."""
        return [int(cell.split.split_seed or 0) for cell in self.cells.values()]

    @property
    def seeds(self) -> str:
        """Seeds of the weights on each split: ``2``, or ``1-5`` where splits differ."""
        counts = [cell.row["seeds"] for cell in self.cells.values()]
        return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"

    def mean(self, score: str) -> float:
        """Over splits; of each split its mean over seeds."""
        return float(np.mean([cell.row[score] for cell in self.cells.values()]))

    def std(self, score: str) -> float:
        """Over splits (ddof 0)."""
        return float(np.std([cell.row[score] for cell in self.cells.values()]))

    def compare(self, other: SplitRow) -> Comparison | None:
        """This method minus another over the splits that both have; None where they share none or are one."""
        shared = [key for key in self.cells if key in other.cells]
        if not shared or other is self:
            return None
        try:
            found = compare_splits(*([row.cells[key].results for key in shared] for row in (self, other)))
        except BadUse:  # no seed in common
            return None
        return replace(found, one=self.first.label, other=other.first.label)


@dataclass(frozen=True)
class OverSplits:
    """All methods of a cohort on splits that differ in their split seed only."""

    pool: Pool
    rows: Mapping[Place, list[SplitRow]]  # by section; its split is ``dealt``
    n_splits: int

    @property
    def cohort(self) -> str:
        """The cohort's name."""
        return self.pool[0]

    @property
    def dealt(self) -> str:
        """How its subjects were dealt: ``10 folds``."""
        return self.pool[1]

    @property
    def cells(self) -> list[Cell]:
        """All of them."""
        return [cell for rows in self.rows.values() for row in rows for cell in row.cells.values()]

    @property
    def baselines(self) -> dict[str, SplitRow]:
        """The simple baselines as they are by default."""
        known = defaults()
        return {
            row.first.method: row
            for rows in self.rows.values()
            for row in rows
            if row.first.method in known and not row.first.changed and not row.first.averaged
        }

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Each method minus each baseline over the splits that both have; Holm-corrected for all of them."""
        baselines = self.baselines.values()
        each = [row.compare(baseline) for rows in self.rows.values() for row in rows for baseline in baselines]
        found = {frozenset((c.one, c.other)): c for c in each if c is not None}  # two baselines are one pair
        return corrected(list(found.values()))

    @property
    def is_even(self) -> bool:
        """Whether every method was run on every split."""
        return all(len(row.cells) == self.n_splits for rows in self.rows.values() for row in rows)


def over_splits(cells: Sequence[Cell]) -> tuple[list[OverSplits], list[str]]:
    """A table for each cohort and manner of dealing with two split seeds or more; and what cannot be averaged.

    Splits made by hand have no split seed: each stays by itself.
    """
    pools: dict[Pool, list[Cell]] = {}
    for cell in cells:
        if (key := pool_of(cell)) is not None:
            pools.setdefault(key, []).append(cell)
    tables, remarks = [], []
    for key, pool in pools.items():
        cohort, dealt, _ = key
        splits = {cell.split.hash: cell.split.split_seed for cell in pool}
        if len(splits) < 2:
            continue
        if max(Counter(splits.values()).values()) > 1:
            remarks.append(f"Not averaged over splits: {cohort}, {dealt}: splits of one split seed that differ")
            continue
        tables.append(OverSplits(key, _rows(pool, dealt), len(splits)))
    return tables, remarks


def pool_of(cell: Cell) -> Pool | None:
    """The splits among which a cell's differs in its split seed only; None where it has none."""
    seed = cell.split.split_seed
    return (
        None if seed is None else (cell.cohort, cell.split.title.replace(f", split seed {seed}", ""), cell.split.kind)
    )


def _rows(pool: Sequence[Cell], dealt: str) -> dict[Place, list[SplitRow]]:
    by_settings: dict[Place, dict[tuple[str, bool], dict[str, Cell]]] = {}
    for cell in sorted(pool, key=lambda cell: cell.split.split_seed or 0):
        place, key = cell.place._replace(split=dealt), (cell.results.settings.hash, cell.averaged > 0)
        by_settings.setdefault(place, {}).setdefault(key, {})[cell.split.hash] = cell
    return {
        place: sorted(map(SplitRow, rows.values()), key=lambda row: method_order(row.first))
        for place, rows in sorted(by_settings.items())
    }


def as_table(tables: Sequence[OverSplits]) -> pd.DataFrame:
    """A row a cohort, backbone, recipe, budget and method; accuracy in percent and points."""
    import pandas as pd

    names = ["cohort", "folds", "method", "name", "backbone", "recipe", "budget", "seeds_averaged", "seeds", "splits"]
    names += ["split_seeds", *(f"{score}{end}" for score in SCORES for end in ("", "_std"))]
    rows = []
    for cohort in tables:
        for place, methods in cohort.rows.items():
            rows += [_csv_row(cohort, place, row) for row in methods]
    if not rows:
        return pd.DataFrame(columns=names)
    return pd.DataFrame(rows)


def split_pairs(tables: Sequence[OverSplits]) -> pd.DataFrame:
    """One row per method and baseline: the comparison over splits; differences in points of accuracy."""
    import pandas as pd

    rows = [
        {"cohort": table.cohort, "folds": table.dealt} | comparison_row(comparison)
        for table in tables
        for comparison in table.comparisons
    ]
    return pd.DataFrame(rows, columns=["cohort", "folds", *COMPARISON])


def _csv_row(table: OverSplits, place: Place, row: SplitRow) -> dict[str, Any]:
    content: dict[str, Any] = {
        "cohort": table.cohort, "folds": table.dealt, "method": row.first.method, "name": row.first.label,
        "backbone": place.backbone or None, "recipe": place.recipe or None, "budget": place.budget or None,
        "seeds_averaged": row.first.averaged > 0, "seeds": row.seeds, "splits": len(row.cells),
        "split_seeds": " ".join(map(str, row.split_seeds)),
    }  # fmt: skip
    for score in SCORES:
        content |= {score: row.mean(score), f"{score}_std": row.std(score)}
    found = merged(*(cell.results.warnings for cell in row.cells.values()))
    hashes = {"settings_hash": row.first.row["settings_hash"], "cohort_hash": row.first.source["hash"]}
    return content | {"warnings": warning_names(found)} | hashes
