"""Table 1 of a folder of runs: cohort x backbone x method, beside the paper's numbers, and pairwise comparisons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any

from bridgemil.cohort.folds import FoldPlan
from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData
from bridgemil.evaluation.protocol import gather
from bridgemil.evaluation.results import Results, averaged
from bridgemil.evaluation.statistics import Comparison, compare_all
from bridgemil.methods import Settings, changed_from_budget, order
from bridgemil.runs import RESULTS_VERSION, RunStore, run_identity

if TYPE_CHECKING:
    import pandas as pd

NO_NETWORK = "baselines"  # where no network stands beside them
Place = tuple[str, str, str]  # cohort and split, backbone and recipe, budget


@cache
def paper() -> dict[str, Any]:
    """The paper's tables."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(files("bridgemil.report").joinpath("paper.yaml").read_text("utf-8"))
    return content


@dataclass(frozen=True)
class Cell:
    """One experiment: the results of a method on a backbone with a budget, on a split of a cohort."""

    cohort: str  # its name, made unique among what is in the folder
    label: str  # the method, made unique among those it is compared with
    source: Mapping[str, Any]  # the cohort, as run.json has it
    split: FoldPlan
    results: Results

    @property
    def method(self) -> str:
        """The method's name."""
        return self.results.settings.method

    @property
    def place(self) -> Place | None:
        """Where it stands; None for a baseline, which stands beside every network."""
        settings = self.results.settings
        if settings.budget is None or settings.backbone is None:
            return None
        recipe = "" if settings.recipe == "paper" else f", recipe {settings.recipe}"
        return self.cohort, f"{settings.backbone}{recipe}", settings.budget

    @cached_property
    def row(self) -> Mapping[str, Any]:
        """The results' summary; accuracies in percent."""
        row = {str(name): value for name, value in self.results.summary.iloc[0].items()}
        percent = ("accuracy", "accuracy_std", "ci95_low", "ci95_high", "chance", "chance95_low", "chance95_high")
        return row | {name: 100 * row[name] for name in percent}

    @property
    def changed(self) -> dict[str, Any]:
        """What the user set."""
        return changed_from_budget(self.results.settings, self.source.get("burn_in"))

    @property
    def published(self) -> tuple[float, float] | None:
        """The paper's number for this cohort, backbone and method."""
        tables, source, settings = paper(), self.source["source"], self.results.settings
        if settings.recipe != "paper":
            return None
        number = tables["main"].get(source, {}).get(settings.backbone, {}).get(self.method)
        if number is None and settings.backbone == "eegnet":
            number = tables["ablation"].get(source, {}).get(self.method)
        return None if number is None else (number[0], number[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number must not be read as a repetition of the paper's."""
        tables, cohort, row = paper(), self.source, self.row
        own = tables["cohorts"].get(cohort["source"])
        if own is None:
            return []
        budget = self.results.settings.budget
        found = [] if budget == "paper" else [f"budget {budget}"]
        if row["seeds"] != tables["seeds"]:
            found.append(f"{row['seeds']} seeds, not {tables['seeds']}")
        if row["folds"] != own["folds"]:
            found.append(f"{row['folds']} folds, not {own['folds']}")
        if cohort["n_subjects"] != own["subjects"]:
            found.append(f"{cohort['n_subjects']} subjects, not {own['subjects']}")
        if sorted(cohort["classes"]) != own["classes"]:
            found.append(f"classes {', '.join(sorted(cohort['classes']))}")
        if abs(cohort["n_windows"] - own["windows"]) > 0.05 * own["windows"]:
            found.append(f"{cohort['n_windows']:,} windows, not {own['windows']:,}")
        changed = cohort.get("changed", {}) | self.changed
        return found + [f"{key} = {value}" for key, value in changed.items()]


@dataclass
class BenchmarkReport:
    """What a folder of runs shows."""

    cells: list[Cell]
    comparisons: dict[Place, list[Comparison]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # what is not in the table, and why

    @property
    def table(self) -> pd.DataFrame:
        """A row an experiment; accuracies in percent."""
        import pandas as pd

        rows = []
        for cell in self.cells:
            published = cell.published
            beside = {
                "paper": None if published is None else published[0],
                "paper_std": None if published is None else published[1],
                "difference": None if published is None else cell.row["accuracy"] - published[0],
                "not_as_in_the_paper": "; ".join(cell.caveats) if published else "",
                "changed": "; ".join(f"{key} = {value}" for key, value in cell.changed.items()),
                "cohort_hash": cell.source["hash"],
                "split": cell.split.title,
                "split_hash": cell.split.hash[:12],
            }
            rows.append({"cohort": cell.cohort, **cell.row, **beside})
        return pd.DataFrame(rows)

    @property
    def pairs(self) -> pd.DataFrame:
        """A row a comparison; gains in points of accuracy."""
        import pandas as pd

        columns = ["cohort", "backbone", "budget", "one", "other", "gain", "ci95_low", "ci95_high", "p", "p_holm"]
        rows = [
            [*key, c.one, c.other, 100 * c.gain, 100 * c.low, 100 * c.high, c.p, c.p_holm, c.seeds]
            for key, found in self.comparisons.items()
            for c in found
        ]
        return pd.DataFrame(rows, columns=[*columns, "seeds"])

    def groups(self) -> dict[Place, list[Cell]]:
        """Cells that may be compared: one cohort, split, backbone, recipe and budget; baselines join every one."""
        placed: dict[Place, list[Cell]] = {}
        for cell in self.cells:
            if cell.place is not None:
                placed.setdefault(cell.place, []).append(cell)
        for cell in self.cells:
            if cell.place is None:
                beside = [key for key in placed if key[0] == cell.cohort and key[1] != NO_NETWORK]
                for key in beside or [(cell.cohort, NO_NETWORK, "")]:
                    placed.setdefault(key, []).append(cell)
        return {key: sorted(cells, key=_order) for key, cells in placed.items()}


def build(store: RunStore) -> BenchmarkReport:
    """Read every finished run of a folder."""
    runs = collect(store)
    if runs.empty:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil benchmark` or `evaluate`")
    remarks = []
    foreign = runs["results_version"] != RESULTS_VERSION
    if foreign.any():
        remarks.append(f"Left out: {foreign.sum()} runs of another version of bridgemil, whose numbers may differ")
    cells, missing = _cells(store, runs[~foreign])
    cells = _labelled(cells)
    cells.sort(key=lambda cell: (cell.cohort, *(cell.place or ("", "", ""))[1:], _order(cell)))
    report = BenchmarkReport(cells, remarks=remarks + missing + _failures(store))
    for key, group in report.groups().items():
        tables = {cell.label: cell.results.predictions for cell in group}
        if len(tables) > 1:
            report.comparisons[key] = compared = compare_all(tables)
            pairs = {frozenset((comparison.one, comparison.other)) for comparison in compared}
            for pair in combinations(tables, 2):
                if frozenset(pair) not in pairs:
                    report.remarks.append(f"Not compared: {pair[0]} and {pair[1]} on {key[0]}: they share no seed")
    return report


def _cells(store: RunStore, runs: pd.DataFrame) -> tuple[list[Cell], list[str]]:
    """A cell for each experiment and split of which some seed is complete, ensembles included; and what is missing."""
    done, cells, used = set(runs["identity"]), list[Cell](), set[str]()
    splits = store.splits()
    for (cohort_hash, _), rows in runs.groupby(["cohort_hash", "settings_hash"], sort=False):
        about = store.about(rows["identity"].iloc[0])
        settings = Settings.model_validate(about["settings"])
        for hash_, plan in splits:
            if hash_ == cohort_hash:
                complete = list[str]()
                for seed in sorted(rows["seed"].unique()):
                    identities = [run_identity(settings, cohort_hash, r, int(seed)) for r in plan.rounds()]
                    complete += identities if done.issuperset(identities) else []
                if complete:
                    results = gather(store, complete, settings, plan)
                    cells.append(Cell(rows["cohort"].iloc[0], settings.method, about["cohort"], plan, results))
                    used.update(complete)
    cells += _ensembles(store, cells)
    left = runs[~runs["identity"].isin(used)]
    missing = [
        f"Not finished: {', '.join(str(name) for name in names if name)}: {len(rows)} run(s) of seeds that are not "
        "complete, left out"
        for names, rows in left.groupby(["cohort", "method", "backbone"], sort=False, dropna=False)
    ]
    return cells, missing


def _ensembles(store: RunStore, cells: Sequence[Cell]) -> list[Cell]:
    """Those that were planned here and whose members are all there, on each split."""
    made = []
    for settings in store.ensembles():
        for cell in cells:
            if cell.results.settings == settings.members[0]:
                members = [
                    next((c.results for c in cells if c.results.settings == member and c.split == cell.split), None)
                    for member in settings.members
                ]
                shared = set.intersection(*(set(m.predictions["seed"]) if m is not None else set() for m in members))
                if shared:
                    parts = [m.for_seeds(shared) for m in members if m is not None]
                    made.append(replace(cell, label=settings.method, results=averaged(parts, settings)))
    return made


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Names that tell apart what is apart: cohorts of one name, splits of one cohort, variants of one method."""
    named, labelled = [], []
    cohorts = _ambiguous((cell.cohort, cell.source["hash"]) for cell in cells)
    splits = _ambiguous((cell.source["hash"], cell.split.hash) for cell in cells)
    for cell in cells:
        words, cohort_hash = cell.cohort, cell.source["hash"]
        if cell.cohort in cohorts:
            words += f" ({cohort_hash[:6]})"
        if cohort_hash in splits:
            words += f", {cell.split.title}"
        named.append(replace(cell, cohort=words))
    methods = _ambiguous((_place(cell), cell.results.settings.hash) for cell in named)
    for cell in named:
        changed = [f"{key}={value}" for key, value in cell.changed.items()]
        apart = f"{cell.method} ({', '.join([*changed, cell.results.settings.hash[:6]])})"
        labelled.append(replace(cell, label=apart) if _place(cell) in methods else cell)
    return labelled


def _place(cell: Cell) -> Hashable:
    return cell.cohort, cell.place, cell.method


def _order(cell: Cell) -> tuple[int, str]:
    known = order()
    return max(known.index(member.method) for member in cell.results.settings.each), cell.label


def _ambiguous(pairs: Iterable[tuple[Hashable, Hashable]]) -> set[Hashable]:
    """First values that come with more than one second value."""
    return {first for first, count in Counter(first for first, _ in set(pairs)).items() if count > 1}


def _failures(store: RunStore) -> list[str]:
    """Experiments with failed runs, and the error of one of them."""
    found: dict[str, list[str]] = {}
    for file in sorted((store.root / "failed").glob("*.json")):
        content = json.loads(file.read_text("utf-8"))
        found.setdefault(content["experiment"], []).append(content["error"])
    return [
        f"Failed: {name}: {len(errors)} run(s): {errors[0].splitlines()[-1]} (kept in {store.root / 'failed'}: run "
        "them again, or delete the files to forget them)"
        for name, errors in found.items()
    ]
