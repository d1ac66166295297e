"""Table 1 of a folder of runs: cohort x backbone x method, beside the paper's numbers, and pairwise comparisons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData
from bridgemil.evaluation.metrics import accuracy_interval, seed_accuracy
from bridgemil.evaluation.statistics import Comparison, compare_all
from bridgemil.methods import ABLATIONS, METHODS, Settings, changed_from_budget, digest
from bridgemil.report.splits import whole_splits
from bridgemil.runs import RESULTS_VERSION, RunStore

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
    """One experiment: a cohort and its split, a backbone, a method, a budget."""

    cohort: str  # its name, made unique among what is in the folder
    label: str  # the method, made unique among those it is compared with
    about: Mapping[str, Any]  # run.json of one of its runs
    split: str
    mean: float  # accuracy in percent
    std: float  # over seeds
    low: float  # 95 % over subjects
    high: float
    predictions: pd.DataFrame

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.about["settings"]["method"])

    @property
    def backbone(self) -> str:
        """The backbone's name."""
        return str(self.about["settings"]["backbone"])

    @property
    def budget(self) -> str:
        """The budget's name."""
        return str(self.about["settings"]["budget"])

    @property
    def seeds(self) -> int:
        """How many seeds are complete."""
        return int(self.predictions["seed"].nunique())

    @property
    def folds(self) -> int:
        """How many folds the split has."""
        return int(self.predictions["fold"].nunique())

    @property
    def published(self) -> tuple[float, float] | None:
        """The paper's number for this cohort, backbone and method."""
        tables, source = paper(), self.about["cohort"]["source"]
        own = tables["main"].get(source, {}).get(self.backbone, {}).get(self.method)
        if own is None and self.backbone == "eegnet":
            own = tables["ablation"].get(source, {}).get(self.method)
        return None if own is None else (own[0], own[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number must not be read as a repetition of the paper's."""
        tables, cohort = paper(), self.about["cohort"]
        own = tables["cohorts"].get(cohort["source"])
        if own is None:
            return []
        found = [] if self.budget == "paper" else [f"budget {self.budget}"]
        if self.seeds != tables["seeds"]:
            found.append(f"{self.seeds} seeds, not {tables['seeds']}")
        if self.folds != own["folds"]:
            found.append(f"{self.folds} folds, not {own['folds']}")
        if cohort["n_subjects"] != own["subjects"]:
            found.append(f"{cohort['n_subjects']} subjects, not {own['subjects']}")
        if sorted(cohort["classes"]) != own["classes"]:
            found.append(f"classes {', '.join(sorted(cohort['classes']))}")
        if abs(cohort["n_windows"] - own["windows"]) > 0.05 * own["windows"]:
            found.append(f"{cohort['n_windows']:,} windows, not {own['windows']:,}")
        changed = cohort.get("changed", {}) | changed_settings(self.about)
        burn_in = self.about["settings"]["stage2"].get("burn_in", own["burn_in"])
        if self.budget == "paper" and burn_in != own["burn_in"]:
            changed["stage2.burn_in"] = burn_in
        return found + [f"{key} = {value}" for key, value in changed.items()]


def changed_settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """What the user set, of a run's settings."""
    return changed_from_budget(Settings.model_validate(about["settings"]))


@dataclass
class BenchmarkReport:
    """What a folder of runs shows."""

    cells: list[Cell]
    comparisons: dict[tuple[str, str, str], list[Comparison]] = field(default_factory=dict)  # cohort, backbone, budget
    remarks: list[str] = field(default_factory=list)  # what is not in the table, and why

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
                    "not_as_in_the_paper": "; ".join(cell.caveats) if published else "",
                    "changed": "; ".join(f"{key} = {value}" for key, value in changed_settings(cell.about).items()),
                    "cohort_hash": cell.about["cohort"]["hash"], "settings_hash": cell.about["settings_hash"],
                    "split": cell.split,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def groups(self) -> dict[tuple[str, str, str], list[Cell]]:
        """Cells that may be compared: one cohort, split, backbone and budget; band power joins every backbone."""
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
    remarks = []
    foreign = runs["results_version"] != RESULTS_VERSION
    if foreign.any():
        remarks.append(f"Left out: {foreign.sum()} runs of another version of bridgemil, whose numbers may differ")
    cells: list[Cell] = []
    for _, own in runs[~foreign].groupby(["cohort_hash", "settings_hash"], sort=False):
        made, missing = _cells(store, own)
        cells += made
        if missing:
            first = own.iloc[0]
            remarks.append(f"Not finished: {first['cohort']}, {first['method']}, {first['backbone']}: {missing}")
    cells = _labelled(cells)
    cells.sort(key=lambda cell: (cell.cohort, cell.budget, cell.backbone, ORDER.index(cell.method), cell.label))
    report = BenchmarkReport(cells, remarks=remarks + _failures(store))
    for key, group in report.groups().items():
        tables = {cell.label: cell.predictions for cell in group}
        if len(tables) > 1:
            report.comparisons[key] = found = compare_all(tables)
            compared = {frozenset((one.one, one.other)) for one in found}
            for pair in combinations(tables, 2):
                if frozenset(pair) not in compared:
                    report.remarks.append(f"Not compared: {pair[0]} and {pair[1]} on {key[0]}: they share no seed")
    return report


def _cells(store: RunStore, runs: pd.DataFrame) -> tuple[list[Cell], str]:
    """Of one experiment, a cell for each split that some seed has completed; and what is missing."""
    import pandas as pd

    abouts = {identity: store.about(identity) for identity in runs["identity"]}
    splits: dict[str, list[pd.DataFrame]] = {}
    used: set[str] = set()
    for _, seed in runs.groupby("seed"):
        for path in whole_splits({identity: abouts[identity] for identity in seed["identity"]}):
            used |= set(path)
            folds = [store.predictions(identity).assign(fold=fold) for fold, identity in enumerate(path)]
            split = digest([sorted(abouts[identity]["test"]) for identity in path])
            splits.setdefault(split, []).append(pd.concat(folds, ignore_index=True))
    first = runs.iloc[0]
    cells = []
    for split, seeds in splits.items():
        predictions = pd.concat(seeds, ignore_index=True)
        accuracy = [100 * seed_accuracy(one) for one in seeds]
        low, high = accuracy_interval(predictions)
        mean, std = float(np.mean(accuracy)), float(np.std(accuracy))
        about = abouts[first["identity"]]
        cells.append(
            Cell(first["cohort"], first["method"], about, split, mean, std, 100 * low, 100 * high, predictions)
        )
    left = len(abouts.keys() - used)
    return cells, f"{left} run(s) of seeds that are not complete, left out" if left else ""


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Names that tell apart what is apart: cohorts of one name, splits of one cohort, variants of one method."""
    named, labelled = [], []
    cohorts = _ambiguous((cell.cohort, cell.about["cohort"]["hash"]) for cell in cells)
    splits = _ambiguous((cell.about["cohort"]["hash"], cell.split) for cell in cells)
    for cell in cells:
        words, cohort_hash = cell.cohort, cell.about["cohort"]["hash"]
        if cell.cohort in cohorts:
            words += f" ({cohort_hash[:6]})"
        if cohort_hash in splits:
            words += f", {cell.folds} folds (split {cell.split[:6]})"
        named.append(replace(cell, cohort=words))
    methods = _ambiguous((_place(cell), cell.about["settings_hash"]) for cell in named)
    for cell in named:
        changed = [f"{key}={value}" for key, value in changed_settings(cell.about).items()]
        apart = f"{cell.method} ({', '.join([*changed, cell.about['settings_hash'][:6]])})"
        labelled.append(replace(cell, label=apart) if _place(cell) in methods else cell)
    return labelled


def _place(cell: Cell) -> Hashable:
    return cell.cohort, cell.backbone, cell.budget, cell.method


def _ambiguous(pairs: Iterable[tuple[Hashable, Hashable]]) -> set[Hashable]:
    """First values that come with more than one second value."""
    return {first for first, count in Counter(first for first, _ in set(pairs)).items() if count > 1}


def _failures(store: RunStore) -> list[str]:
    """Experiments with failed runs, and the error of one of them."""
    found: dict[str, list[str]] = {}
    for file in sorted((store.root / "failed").glob("*.json")):
        content = json.loads(file.read_text("utf-8"))
        found.setdefault(content["experiment"], []).append(content["error"])
    return [f"Failed: {name}: {len(errors)} run(s): {errors[0].splitlines()[-1]}" for name, errors in found.items()]
