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

from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.statistics import Comparison, compare_all
from bridgemil.methods import ABLATIONS, METHODS, Settings, changed_from_budget, digest
from bridgemil.report.splits import whole_splits
from bridgemil.runs import RESULTS_VERSION, RunStore

if TYPE_CHECKING:
    import pandas as pd

ORDER = [*METHODS, *ABLATIONS]
Place = tuple[str, str, str]  # cohort, backbone, budget


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
    split: str
    results: Results

    @property
    def method(self) -> str:
        """The method's name."""
        return self.results.settings.method

    @property
    def backbone(self) -> str:
        """The backbone's name."""
        return self.results.settings.backbone

    @property
    def budget(self) -> str:
        """The budget's name."""
        return self.results.settings.budget

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
        tables, source = paper(), self.source["source"]
        own = tables["main"].get(source, {}).get(self.backbone, {}).get(self.method)
        if own is None and self.backbone == "eegnet":
            own = tables["ablation"].get(source, {}).get(self.method)
        return None if own is None else (own[0], own[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number must not be read as a repetition of the paper's."""
        tables, cohort, row = paper(), self.source, self.row
        own = tables["cohorts"].get(cohort["source"])
        if own is None:
            return []
        found = [] if self.budget == "paper" else [f"budget {self.budget}"]
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
                "split": cell.split,
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
        """Cells that may be compared: one cohort, split, backbone and budget; band power joins every backbone."""
        found: dict[Place, list[Cell]] = {}
        for cell in self.cells:
            if cell.method != "bandpower":
                found.setdefault((cell.cohort, cell.backbone, cell.budget), []).append(cell)
        for cell in self.cells:
            if cell.method == "bandpower":
                own = [key for key in found if key[0] == cell.cohort and key[2] == cell.budget]
                for key in own or [(cell.cohort, "no backbone", cell.budget)]:
                    found.setdefault(key, []).append(cell)
        return {key: sorted(cells, key=_order) for key, cells in found.items()}


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
    cells.sort(key=lambda cell: (cell.cohort, cell.budget, cell.backbone, _order(cell)))
    report = BenchmarkReport(cells, remarks=remarks + _failures(store))
    for key, group in report.groups().items():
        tables = {cell.label: cell.results.predictions for cell in group}
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
    splits: dict[str, list[tuple[int, str]]] = {}  # fold and identity of each run, over all seeds
    for _, seed in runs.groupby("seed"):
        for path in whole_splits({identity: abouts[identity] for identity in seed["identity"]}):
            split = digest([sorted(abouts[identity]["test"]) for identity in path])
            splits.setdefault(split, []).extend(enumerate(path))
    first = runs.iloc[0]
    about = abouts[first["identity"]]
    settings, cells = Settings.model_validate(about["settings"]), []
    for split, own in splits.items():
        folds = [store.predictions(identity).assign(fold=fold) for fold, identity in own]
        predictions, used = pd.concat(folds, ignore_index=True), [identity for _, identity in own]
        seconds = sum(abouts[identity]["seconds"] for identity in used)
        results = Results(settings, about["cohort"]["classes"], predictions, pd.DataFrame(), used, seconds)
        cells.append(Cell(first["cohort"], first["method"], about["cohort"], split, results))
    left = len(abouts.keys() - {identity for cell in cells for identity in cell.results.runs})
    return cells, f"{left} run(s) of seeds that are not complete, left out" if left else ""


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Names that tell apart what is apart: cohorts of one name, splits of one cohort, variants of one method."""
    named, labelled = [], []
    cohorts = _ambiguous((cell.cohort, cell.source["hash"]) for cell in cells)
    splits = _ambiguous((cell.source["hash"], cell.split) for cell in cells)
    for cell in cells:
        words, cohort_hash = cell.cohort, cell.source["hash"]
        if cell.cohort in cohorts:
            words += f" ({cohort_hash[:6]})"
        if cohort_hash in splits:
            words += f", split {cell.split[:6]}"
        named.append(replace(cell, cohort=words))
    methods = _ambiguous((_place(cell), cell.results.settings.hash) for cell in named)
    for cell in named:
        changed = [f"{key}={value}" for key, value in cell.changed.items()]
        apart = f"{cell.method} ({', '.join([*changed, cell.results.settings.hash[:6]])})"
        labelled.append(replace(cell, label=apart) if _place(cell) in methods else cell)
    return labelled


def _place(cell: Cell) -> Hashable:
    return cell.cohort, cell.backbone, cell.budget, cell.method


def _order(cell: Cell) -> tuple[int, str]:
    return ORDER.index(cell.method), cell.label


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
