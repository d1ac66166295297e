"""Results over several splits of one cohort: mean and spread of each method, and differences to the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class OverSplits:
    """All methods of a cohort on splits that differ in their split seed only."""

    pool: Pool
    rows: list[dict[str, Cell]]  # of each method: its cells of the same settings by split hash, in order of split seeds
    n_splits: int

    @property
    def title(self) -> str:
        """``cohort, 4 splits of 3 folds``."""
        return f"{self.pool[0]}, {counted(self.n_splits, 'split')} of {self.pool[1]}"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One per method: mean and SD (ddof 0) over splits of its mean over seeds; accuracy in percent."""
        found = []
        for row in self.rows:
            first, cells = _first(row), row.values()
            seeds = [cell.row["seeds"] for cell in cells]  # 2, or 1-5 where splits differ
            record = {
                "cohort": self.pool[0], "folds": self.pool[1], "method": first.method, "name": first.label,
                **{part: getattr(first.place, part) or None for part in ("backbone", "recipe", "budget")},
                "seeds_averaged": first.averaged > 0, "seeds": "-".join(map(str, sorted({min(seeds), max(seeds)}))),
                "splits": len(cells), "split_seeds": " ".join(str(cell.split.split_seed or 0) for cell in cells),
                "warnings": warning_names(merged(*(cell.results.warnings for cell in cells))),
                "settings_hash": first.row["settings_hash"], "cohort_hash": first.source["hash"],
            }  # fmt: skip
            for name in DIGITS:
                values = [cell.row[name] for cell in cells]
                record |= {name: float(np.mean(values)), f"{name}_std": float(np.std(values))}
            found.append(record)
        return found

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Each method minus each default baseline over the splits that both have; Holm-corrected for all of them."""
        baselines = [
            row for row in self.rows
            if (first := _first(row)).method in defaults() and not first.changed and not first.averaged
        ]  # fmt: skip
        found = {}
        for row, other in product(self.rows, baselines):
            shared, names = [key for key in row if key in other], (_first(row).label, _first(other).label)
            if shared and other is not row:
                with suppress(BadUse):  # no seed in common
                    compared = compare_splits(*([own[key].results for key in shared] for own in (row, other)))
                    # two baselines are one pair
                    found[frozenset(names)] = replace(compared, one=names[0], other=names[1])
        return corrected(list(found.values()))

    @property
    def facts(self) -> list[str]:
        """What the means over splits are."""
        uneven = any(len(row) < self.n_splits for row in self.rows)
        return [SPLITS, *([UNEVEN] if uneven else []), facts([_first(row) for row in self.rows])]

    def sheets(self) -> list[Sheet]:
        """Means and spread over splits, one table per section; then the differences to the baselines."""
        columns, found = ["method", "accuracy", "balanced", "AUROC", "splits", "seeds"], []
        pairs = zip(map(_first, self.rows), self.records, strict=True)
        for title, section in groupby(pairs, key=lambda pair: pair[0].place.title):
            lines = [
                [first.row_name, *(_spread(record, name) for name in DIGITS), str(record["splits"]), record["seeds"]]
                for first, record in section
            ]
            found.append(Sheet(f"{title}, over splits", columns, lines))
        if self.comparisons:
            sheet = comparisons(self.comparisons, "differences to the baselines, over splits")
            found.append(replace(sheet, after=[f"{COMPARED} {VERDICT}"]))
        return found


def _first(row: dict[str, Cell]) -> Cell:
    """One of the cells, for what they have in common."""
    return next(iter(row.values()))


def _spread(record: dict[str, Any], name: str) -> str:
    mean, digits = record[name], DIGITS[name]
    std = f" ± {record[f'{name}_std']:.{digits}f}" if record["splits"] > 1 and mean == mean else ""
    return score(mean, digits) + std


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
            made = sorted(rows.items(), key=lambda row: (row[0][0], method_order(_first(row[1]))))
            tables.append(OverSplits(key, [own for _, own in made], len(splits)))
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
    return pd.DataFrame([record for table in tables for record in table.records], columns=names)


def split_pairs(tables: Sequence[OverSplits]) -> pd.DataFrame:
    """One row per method and baseline: the comparison over splits; differences in percentage points of accuracy."""
    names = ("cohort", "folds")
    found = ((dict(zip(names, table.pool, strict=False)), c) for table in tables for c in table.comparisons)
    return comparison_table(found, names)
