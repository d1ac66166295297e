"""Results over several splits of one cohort: mean and spread of each method, and differences to the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bridgemil.baselines import defaults
from bridgemil.errors import BadUse
from bridgemil.evaluation.results import compare_splits
from bridgemil.evaluation.statistics import COMPARED, Comparison, corrected, counted
from bridgemil.report.benchmark import Cell, Place, comparison_table, method_order
from bridgemil.report.tables import VERDICT, Sheet, comparisons, facts, score
from bridgemil.runs import merged, warning_names

if TYPE_CHECKING:
    import pandas as pd

Pool = tuple[str, str, str]  # cohort, number of folds as text, how subjects were assigned to them
DIGITS = {"accuracy": 1, "balanced_accuracy": 3, "auroc": 3}  # of scores
SPLITS = (
    "Mean ± standard deviation over splits (ddof 0); for each split, its mean over seeds. All splits hold the same "
    "subjects, assigned to folds with a new seed: ± is not a standard error."
)
UNEVEN = "Not every method was run on every split: compare them by the differences, which are over shared splits."


class SplitRow(NamedTuple):
    """One method on several splits of a cohort: cells of the same settings by split hash, in order of split seeds."""

    place: Place  # its section, for all splits
    cells: Mapping[str, Cell]

    @property
    def first(self) -> Cell:
        """One of the cells, for what they have in common."""
        return next(iter(self.cells.values()))

    @property
    def seeds(self) -> str:
        """Number of seeds on each split: ``2``, or ``1-5`` where splits differ."""
        counts = sorted(cell.row["seeds"] for cell in self.cells.values())
        return "-".join(str(n) for n in dict.fromkeys([counts[0], counts[-1]]))

    def spread(self, score: str) -> tuple[float, float]:
        """Mean and standard deviation (ddof 0) over splits; for each split its mean over seeds."""
        values = [cell.row[score] for cell in self.cells.values()]
        return float(np.mean(values)), float(np.std(values))

    def compare(self, other: SplitRow) -> Comparison | None:
        """This method minus another over the splits that both have; None if they share none or are the same."""
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
    rows: list[SplitRow]  # by section
    n_splits: int

    @property
    def title(self) -> str:
        """``cohort, 4 splits of 3 folds``."""
        return f"{self.pool[0]}, {counted(self.n_splits, 'split')} of {self.pool[1]}"

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Each method minus each default baseline over the splits that both have; Holm-corrected for all of them."""
        baselines = [
            row for row in self.rows
            if row.first.method in defaults() and not row.first.changed and not row.first.averaged
        ]  # fmt: skip
        each = [row.compare(baseline) for row in self.rows for baseline in baselines]
        found = {frozenset((c.one, c.other)): c for c in each if c is not None}  # two baselines are one pair
        return corrected(list(found.values()))

    @property
    def facts(self) -> list[str]:
        """What the means over splits are."""
        uneven = any(len(row.cells) < self.n_splits for row in self.rows)
        return [SPLITS, *([UNEVEN] if uneven else []), facts([row.first for row in self.rows])]

    def sheets(self) -> list[Sheet]:
        """Means and spread over splits, one table per section; then the differences to the baselines."""
        columns = ["method", "accuracy", "balanced", "AUROC", "splits", "seeds"]
        found = []
        for place, rows in groupby(self.rows, key=lambda row: row.place):
            lines = []
            for row in rows:
                scores = [(*row.spread(score), digits) for score, digits in DIGITS.items()]
                spread = len(row.cells) > 1
                texts = [score(m, n) + (f" ± {std:.{n}f}" if spread and m == m else "") for m, std, n in scores]
                lines.append([row.first.row_name, *texts, str(len(row.cells)), row.seeds])
            found.append(Sheet(f"{place.title}, over splits", columns, lines))
        if self.comparisons:
            sheet = comparisons(self.comparisons, "differences to the baselines, over splits")
            found.append(replace(sheet, after=[f"{COMPARED} {VERDICT}"]))
        return found


def over_splits(cells: Sequence[Cell]) -> tuple[list[OverSplits], list[str]]:
    """Results over splits of each cohort that has at least two split seeds; and what cannot be averaged.

    Splits made by hand have no split seed and are not averaged.
    """
    pools: dict[Pool, list[Cell]] = {}
    for cell in cells:
        if (key := pool_of(cell)) is not None:
            pools.setdefault(key, []).append(cell)
    tables, remarks = [], []
    for key, pool in pools.items():
        splits = {cell.split.hash: cell.split.split_seed for cell in pool}
        if len(set(splits.values())) < len(splits):
            remarks.append(f"Not averaged over splits: {key[0]}, {key[1]}: splits of one split seed that differ")
        elif len(splits) > 1:
            rows: dict[tuple[Place, str, bool], dict[str, Cell]] = {}
            for cell in sorted(pool, key=lambda cell: cell.split.split_seed or 0):
                own = cell.place._replace(split=key[1]), cell.results.settings.hash, cell.averaged > 0
                rows.setdefault(own, {})[cell.split.hash] = cell
            made = [SplitRow(place, own) for (place, *_), own in rows.items()]
            made.sort(key=lambda row: (row.place, method_order(row.first)))
            tables.append(OverSplits(key, made, len(splits)))
    return tables, remarks


def pool_of(cell: Cell) -> Pool | None:
    """The splits that differ from this cell's in their split seed only; None without a split seed."""
    seed = cell.split.split_seed
    title = cell.split.title.replace(f", split seed {seed}", "")
    return None if seed is None else (cell.cohort, title, cell.split.kind)


def split_table(tables: Sequence[OverSplits]) -> pd.DataFrame:
    """One row per cohort, backbone, recipe, budget and method: mean and spread over splits; accuracy in percent."""
    import pandas as pd

    names = ["cohort", "folds", "method", "name", "backbone", "recipe", "budget", "seeds_averaged", "seeds", "splits",
             "split_seeds", *(f"{score}{end}" for score in DIGITS for end in ("", "_std")),
             "warnings", "settings_hash", "cohort_hash"]  # fmt: skip
    rows = []
    for over, row in [(one, row) for one in tables for row in one.rows]:
        first, cells = row.first, row.cells.values()
        rows.append([
            *over.pool[:2], first.method, first.label, *(part or None for part in row.place[2:]), first.averaged > 0,
            row.seeds, len(cells), " ".join(str(cell.split.split_seed or 0) for cell in cells),
            *(value for score in DIGITS for value in row.spread(score)),
            warning_names(merged(*(cell.results.warnings for cell in cells))), first.row["settings_hash"],
            first.source["hash"],
        ])  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def split_pairs(tables: Sequence[OverSplits]) -> pd.DataFrame:
    """One row per method and baseline: the comparison over splits; differences in percentage points of accuracy."""
    names = ("cohort", "folds")
    found = ((dict(zip(names, table.pool, strict=False)), c) for table in tables for c in table.comparisons)
    return comparison_table(found, names)
