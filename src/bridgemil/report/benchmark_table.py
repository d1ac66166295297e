"""Table 1 of a folder of runs: cohort x backbone x method, beside the paper's numbers, and pairwise comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData
from bridgemil.evaluation.metrics import accuracy_interval, seed_accuracy
from bridgemil.evaluation.statistics import Comparison, compare_all
from bridgemil.methods import ABLATIONS, METHODS
from bridgemil.runs import RunStore

if TYPE_CHECKING:
    import pandas as pd

ORDER = [*METHODS, *ABLATIONS]


@cache
def paper() -> dict[str, Any]:
    """The paper's tables."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(files("bridgemil.report").joinpath("paper.yaml").read_text("utf-8"))
    return content


@dataclass(frozen=True)
class Cell:
    """One experiment: a cohort, a backbone, a method, a budget."""

    cohort: str
    source: str
    backbone: str
    method: str
    budget: str
    settings_hash: str
    mean: float  # accuracy in percent
    std: float  # over seeds
    low: float  # 95 % over subjects
    high: float
    seeds: int
    folds: int
    n_windows: int
    missing: str  # what is not finished, in words
    predictions: pd.DataFrame

    @property
    def published(self) -> tuple[float, float] | None:
        """The paper's number for this cohort, backbone and method."""
        tables = paper()
        own = tables["main"].get(self.source, {}).get(self.backbone, {}).get(self.method)
        if own is None and self.backbone == "eegnet":
            own = tables["ablation"].get(self.source, {}).get(self.method)
        return None if own is None else (own[0], own[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number must not be read as a repetition of the paper's."""
        tables = paper()
        own = tables["cohorts"].get(self.source)
        if own is None:
            return []
        found = [] if self.budget == "paper" else [f"budget {self.budget}"]
        if self.seeds != tables["seeds"]:
            found.append(f"{self.seeds} of 5 seeds")
        if self.folds != own["folds"]:
            found.append(f"{self.folds} folds, not {own['folds']}")
        if abs(self.n_windows - own["windows"]) > 0.05 * own["windows"]:
            found.append(f"{self.n_windows:,} windows, not {own['windows']:,}")
        return found


@dataclass
class BenchmarkReport:
    """What a folder of runs shows."""

    cells: list[Cell]
    comparisons: dict[tuple[str, str, str], list[Comparison]] = field(default_factory=dict)  # cohort, backbone, budget
    unfinished: list[str] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        """A row an experiment."""
        import pandas as pd

        rows = []
        for cell in self.cells:
            published = cell.published
            rows.append(
                {
                    "cohort": cell.cohort, "backbone": cell.backbone, "method": cell.method, "budget": cell.budget,
                    "accuracy": cell.mean, "std": cell.std, "ci95_low": cell.low, "ci95_high": cell.high,
                    "seeds": cell.seeds, "folds": cell.folds,
                    "paper": None if published is None else published[0],
                    "paper_std": None if published is None else published[1],
                    "difference": None if published is None else cell.mean - published[0],
                    "not_as_in_the_paper": "; ".join(cell.caveats), "settings_hash": cell.settings_hash,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def groups(self) -> dict[tuple[str, str, str], list[Cell]]:
        """Cells that may be compared: one cohort, backbone and budget; band power joins every backbone."""
        found: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in self.cells:
            if cell.method != "bandpower":
                found.setdefault((cell.cohort, cell.backbone, cell.budget), []).append(cell)
        for cell in self.cells:
            if cell.method == "bandpower":
                own = [key for key in found if key[0] == cell.cohort and key[2] == cell.budget]
                for key in own or [(cell.cohort, "-", cell.budget)]:
                    found.setdefault(key, []).append(cell)
        return found


def build(store: RunStore) -> BenchmarkReport:
    """Read every finished run of a folder."""
    runs = collect(store)
    if runs.empty:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil benchmark` or `evaluate`")
    cells, unfinished = [], []
    for _, own in runs.groupby(["cohort_hash", "settings_hash"], sort=False):
        cell = _cell(store, own)
        if cell is None:
            first = own.iloc[0]
            unfinished.append(f"{first['cohort']}, {first['method']}, {first['backbone']}: no seed is complete yet")
            continue
        cells.append(cell)
        if cell.missing:
            unfinished.append(f"{cell.cohort}, {cell.method}, {cell.backbone}: {cell.missing}")
    cells.sort(key=lambda cell: (cell.cohort, cell.budget, cell.backbone, ORDER.index(cell.method)))
    report = BenchmarkReport(cells, unfinished=unfinished)
    for key, group in report.groups().items():
        if len(group) > 1:
            report.comparisons[key] = _compare(group, unfinished)
    return report


def _cell(store: RunStore, runs: pd.DataFrame) -> Cell | None:
    """Of the complete seeds: those that held every subject out once."""
    import pandas as pd

    about = store.about(runs.iloc[0]["identity"])
    cohort, own = about["cohort"], about["settings"]
    whole, partial = [], 0
    for _, seed in runs.groupby("seed"):
        predictions = pd.concat([store.predictions(identity) for identity in seed["identity"]], ignore_index=True)
        if len(predictions) == cohort["n_subjects"] and predictions["subject"].is_unique:
            whole.append(predictions)
        else:
            partial += 1
    if not whole:
        return None
    predictions = pd.concat(whole, ignore_index=True)
    accuracy = [100 * seed_accuracy(one) for one in whole]
    low, high = accuracy_interval(predictions)
    return Cell(
        cohort=Path(cohort["path"]).name, source=cohort["source"], backbone=own["backbone"], method=own["method"],
        budget=own["budget"], settings_hash=about["settings_hash"], mean=float(np.mean(accuracy)),
        std=float(np.std(accuracy)), low=100 * low, high=100 * high, seeds=len(whole),
        folds=int(predictions["fold"].nunique()), n_windows=cohort["n_windows"],
        missing=f"{partial} seed(s) not complete, left out" if partial else "", predictions=predictions,
    )  # fmt: skip


def _compare(group: Sequence[Cell], unfinished: list[str]) -> list[Comparison]:
    """Pairs on the seeds that all have; a method on other folds is left out and named."""
    seeds = set.intersection(*(set(cell.predictions["seed"]) for cell in group))
    tables, reference = {}, None
    for cell in group:
        own = cell.predictions[cell.predictions["seed"].isin(seeds)]
        folds = set(map(tuple, own[["fold", "subject"]].drop_duplicates().to_numpy()))
        reference = reference or folds
        if folds != reference or not seeds:
            unfinished.append(f"{cell.cohort}, {cell.method}: other folds or seeds, not compared")
            continue
        tables[cell.method if cell.method not in tables else f"{cell.method} ({cell.settings_hash[:6]})"] = own
    return compare_all(tables) if len(tables) > 1 else []
