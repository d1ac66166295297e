"""What a folder of runs shows: an experiment a cell, beside the paper's numbers, and pairwise comparisons.

runs -> cells (build) -> those chosen (benchmark_choice) -> sections -> sheets (benchmark_sheets)
                                                         -> over splits (benchmark_splits)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from bridgemil.cohort.folds import FoldPlan
from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import GROUPED, Results, averaged, gather
from bridgemil.evaluation.statistics import Comparison, corrected, counted
from bridgemil.methods import Settings, changed_from_budget, order, short_name
from bridgemil.runs import RESULTS_VERSION, AuditWarning, RunStore, merged, run_identity, warning_names

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.report.benchmark_choice import Choice

NO_NETWORK = "no network"  # the title of a section of baselines
AVERAGED = ", seeds averaged"
PERCENT = (
    "accuracy",
    "accuracy_std",
    "fold_mean",
    "fold_mean_std",
    "ci95_low",
    "ci95_high",
    "chance",
    "chance95_low",
    "chance95_high",
)


COMPARISON = (
    "one", "other", "difference", "ci95_low", "ci95_high", "p", "p_holm", "test", "seeds", "splits", "sentence",
)  # fmt: skip


class Place(NamedTuple):
    """What the methods of a section have in common; a baseline has no backbone, recipe and budget."""

    cohort: str
    split: str
    backbone: str = ""
    recipe: str = ""
    budget: str = ""

    @property
    def title(self) -> str:
        """The section in words: ``eegnet, recipe ours, budget laptop``."""
        if not self.backbone:
            return NO_NETWORK
        recipe = "" if self.recipe == "paper" else f", recipe {self.recipe}"
        return f"{self.backbone}{recipe}, budget {self.budget}"


@cache
def paper() -> dict[str, Any]:
    """The paper's tables."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(files("bridgemil.report").joinpath("paper.yaml").read_text("utf-8"))
    return content


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    """A comparison as a row of a CSV file; differences in points of accuracy."""
    c = comparison
    values = (c.one, c.other, 100 * c.difference, 100 * c.low, 100 * c.high, c.p, c.p_holm, c.test, c.seeds, c.splits)
    return dict(zip(COMPARISON, (*values, c.sentence), strict=True))


@dataclass(frozen=True)
class Cell:
    """One experiment: the results of a method on a backbone with a budget, on a split of a cohort."""

    cohort: str  # its name, made unique among what is shown
    label: str  # the method, made unique among those it is compared with
    source: Mapping[str, Any]  # the cohort, as run.json has it
    split: FoldPlan
    results: Results
    split_title: str = ""  # made unique among the cohort's
    finished: str = ""  # day and time of its first run, UTC
    averaged: int = 0  # how many seeds' probabilities were averaged; 0: each seed counts by itself

    @property
    def method(self) -> str:
        """The method's name."""
        return self.results.settings.method

    @property
    def is_baseline(self) -> bool:
        """Whether nothing in it is a network."""
        return self.results.settings.backbone is None

    @property
    def place(self) -> Place:
        """The section it stands in."""
        settings, where = self.results.settings, (self.cohort, self.split_title or self.split.title)
        if settings.backbone is None:
            return Place(*where)
        return Place(*where, short_name(settings.backbone), settings.recipe, str(settings.budget))

    @cached_property
    def row(self) -> Mapping[str, Any]:
        """The results' summary; accuracy in percent, the other scores as they are."""
        row = {str(name): value for name, value in self.results.summary.iloc[0].items()}
        row |= {name: 100 * row[name] for name in PERCENT}
        row |= {"backbone": self.place.backbone or None, "settings_hash": row["settings_hash"][:12]}
        return row | ({"seeds": self.averaged, "accuracy_std": None, "fold_mean_std": None} if self.averaged else {})

    @property
    def changed(self) -> dict[str, Any]:
        """What the user set."""
        return changed_from_budget(self.results.settings, self.source.get("burn_in"))

    @property
    def published(self) -> tuple[float, float] | None:
        """The paper's number for this cohort, backbone and method; only the paper's recipe and budget have one."""
        tables, source, settings = paper(), self.source["source"], self.results.settings
        if settings.recipe != "paper" or settings.budget != "paper" or self.averaged:
            return None
        number = tables["main"].get(source, {}).get(settings.backbone, {}).get(self.method)
        if number is None and settings.backbone == "eegnet":
            number = tables["ablation"].get(source, {}).get(self.method)
        return None if number is None else (number[0], number[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number must not be read as a repetition of the paper's."""
        tables, cohort, row = paper(), self.source, self.row
        theirs = tables["cohorts"].get(cohort["source"])
        if theirs is None:
            return []
        reasons = [] if self.split.kind == "array_split" else [f"a split of another kind ({self.split.kind})"]
        if row["seeds"] != tables["seeds"]:
            reasons.append(f"{counted(row['seeds'], 'seed')}, not {tables['seeds']}")
        if row["folds"] != theirs["folds"]:
            reasons.append(f"{row['folds']} folds, not {theirs['folds']}")
        if cohort["n_subjects"] != theirs["subjects"]:
            reasons.append(f"{cohort['n_subjects']} subjects, not {theirs['subjects']}")
        if sorted(cohort["classes"]) != theirs["classes"]:
            reasons.append(f"classes {', '.join(sorted(cohort['classes']))}")
        if abs(cohort["n_windows"] - theirs["windows"]) > 0.05 * theirs["windows"]:
            reasons.append(f"{cohort['n_windows']:,} windows, not {theirs['windows']:,}")
        changed = cohort.get("changed", {}) | self.changed
        return reasons + [f"{key} = {value}" for key, value in changed.items()]


@dataclass
class BenchmarkReport:
    """What a folder of runs shows."""

    cells: list[Cell]
    store: RunStore
    comparisons: dict[Place, list[Comparison]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # what is not in the tables, and why

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings of every cohort shown: cohort, check, level, message."""
        return merged([{"cohort": cell.cohort, **warning} for cell in self.cells for warning in cell.results.warnings])

    @property
    def table(self) -> pd.DataFrame:
        """A row an experiment; accuracy in percent, the other scores as they are."""
        import pandas as pd

        rows = []
        for cell in self.cells:
            published = cell.published
            beside = {
                "paper": None if published is None else published[0],
                "paper_std": None if published is None else published[1],
                "difference": None if published is None else cell.row["fold_mean"] - published[0],
                "not_as_in_the_paper": "; ".join(cell.caveats) if published else "",
                "changed": "; ".join(f"{key} = {value}" for key, value in cell.changed.items()),
                "own_code": own_code(cell),
                "warnings": warning_names(cell.results.warnings),
                "cohort_hash": cell.source["hash"],
                "split_hash": cell.split.hash[:12],
            }
            names = {"cohort": cell.cohort, "split": cell.place.split, "name": cell.label}
            rows.append({**names, **cell.row, "seeds_averaged": cell.averaged > 0, **beside})
        return pd.DataFrame(rows)

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per comparison; differences in points of accuracy."""
        import pandas as pd

        rows = [
            place._asdict() | comparison_row(comparison)
            for place, compared in self.comparisons.items()
            for comparison in compared
        ]
        columns = [*Place._fields, *COMPARISON]
        return pd.DataFrame(rows, columns=columns)

    def sections(self) -> dict[Place, list[Cell]]:
        """Cells by place, the baselines of a cohort and split before its networks."""
        placed: dict[Place, list[Cell]] = {}
        for cell in self.cells:
            placed.setdefault(cell.place, []).append(cell)
        return placed

    def groups(self) -> dict[Place, list[Cell]]:
        """What may be compared: each network section with the baselines of its cohort and split before it."""
        groups: dict[Place, list[Cell]] = {}
        for block in self.blocks().values():
            baselines = [cell for cells in block.values() for cell in cells if cell.is_baseline and not cell.averaged]
            for place, cells in block.items():
                if place.backbone:
                    groups[place] = [*baselines, *(cell for cell in cells if not cell.averaged)]
                elif len(block) == 1:
                    groups[place] = baselines
        return groups

    def blocks(self) -> dict[tuple[str, str], dict[Place, list[Cell]]]:
        """The sections of each cohort and split."""
        blocks: dict[tuple[str, str], dict[Place, list[Cell]]] = {}
        for place, cells in self.sections().items():
            blocks.setdefault((place.cohort, place.split), {})[place] = cells
        return blocks


def build(store: RunStore, choice: Choice | None = None) -> BenchmarkReport:
    """Read every finished run of a folder.

    Parameters
    ----------
    store
        The folder of runs.
    choice
        What to show of it; everything by default.
    """
    runs = collect(store)
    if runs.empty:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil benchmark` or `evaluate`")
    remarks = []
    foreign = runs["results_version"] != RESULTS_VERSION
    if foreign.any():
        remarks.append(f"Left out: {foreign.sum()} runs of another version of bridgemil, whose numbers may differ")
    cells, missing = _cells(store, runs[~foreign])
    if choice is not None:
        cells = choice.among(cells)
    cells = sorted(_labelled(cells), key=lambda cell: (*_natural(cell.place), method_order(cell)))
    if any(cell.split.kind == "groups" for cell in cells):
        remarks.append(GROUPED)
    report = BenchmarkReport(cells, store, remarks=remarks + missing + _failures(store))
    _compare(report)
    report.cells = [row for cell in cells for row in (cell, *_together(cell))]
    return report


def _compare(report: BenchmarkReport) -> None:
    """Every pair of a section, and each of its networks with the baselines of its cohort and split."""
    for block in report.blocks().values():
        baselines = next((cells for place, cells in block.items() if not place.backbone), [])
        for place, cells in block.items():
            pairs = [*((c, b) for b in baselines for c in cells if place.backbone), *combinations(cells, 2)]
            compared = []
            for first, second in pairs:
                try:
                    comparison = first.results.compare(second.results)
                except BadUse as error:
                    report.remarks.append(f"Not compared on {place.cohort}, {place.split}, {place.title}: {error}")
                else:
                    compared.append(replace(comparison, one=first.label, other=second.label))
            if compared:
                report.comparisons[place] = corrected(compared)


def _together(cell: Cell) -> list[Cell]:
    """The seeds' probabilities averaged, as a row of its own; none where there is one seed or all say the same."""
    seeds = cell.results.seeds
    if seeds == 1 or cell.results.steady:
        return []
    return [replace(cell, label=cell.label + AVERAGED, results=cell.results.ensemble, averaged=seeds)]


def _cells(store: RunStore, runs: pd.DataFrame) -> tuple[list[Cell], list[str]]:
    """A cell for each experiment and split of which some seed is complete, ensembles included; and what is missing."""
    done, cells, used = set(runs["identity"]), list[Cell](), set[str]()
    splits = store.splits()
    for (cohort_hash, _), rows in runs.groupby(["cohort_hash", "settings_hash"], sort=False):
        about = store.metadata(rows["identity"].iloc[0])
        settings = Settings.model_validate(about["settings"])
        for planned_for, plan in splits:
            if planned_for != cohort_hash:
                continue
            complete = list[str]()
            for seed in sorted(rows["seed"].unique()):
                identities = [
                    run_identity(settings, cohort_hash, r, int(seed)) for r in plan.cv_folds(settings.selects)
                ]
                complete += identities if done.issuperset(identities) else []
            if complete:
                results = gather(store, complete, settings, plan)
                cell = Cell(rows["cohort"].iloc[0], settings.method, about["cohort"], plan, results)
                cells.append(replace(cell, finished=str(about.get("finished", ""))[:16].replace("T", " ")))
                used.update(complete)
    cells += _ensembles(store, cells)
    left = runs[~runs["identity"].isin(used)]
    studied = left["part"] != ""
    missing = list[str]()
    if studied.any():
        missing.append(f"Of studies on a part of a cohort: {counted(int(studied.sum()), 'run')}, in no table here")
    missing += [
        f"Not finished: {', '.join(str(name) for name in names if name)}: {counted(len(rows), 'run')} of seeds that "
        "are not complete on any split planned here, left out"
        for names, rows in left[~studied].fillna({"backbone": ""}).groupby(["cohort", "method", "backbone"], sort=False)
    ]
    return cells, missing


def _ensembles(store: RunStore, cells: Sequence[Cell]) -> list[Cell]:
    """Those that were planned here and whose members are all there, on each split of each cohort."""
    by_place = {(cell.source["hash"], cell.split.hash, cell.results.settings.hash): cell for cell in cells}
    made = []
    for settings in store.ensembles():
        for cohort_hash, split_hash in dict.fromkeys(key[:2] for key in by_place):
            members = [by_place.get((cohort_hash, split_hash, member.hash)) for member in settings.members]
            present = [member for member in members if member is not None]
            if len(present) < len(members):
                continue
            shared = set.intersection(*(set(member.results.predictions["seed"]) for member in present))
            if shared:
                parts = [_for_seeds(store, member, shared) for member in present]
                made.append(replace(present[0], label=settings.method, results=averaged(parts, settings)))
    return made


def _for_seeds(store: RunStore, cell: Cell, seeds: set[int]) -> Results:
    """The results of some of a cell's seeds."""
    identities = [identity for identity, seed, _ in runs_of(cell.results, cell.split) if seed in seeds]
    return gather(store, identities, cell.results.settings, cell.split)


def runs_of(results: Results, plan: FoldPlan) -> list[tuple[str, int, int]]:
    """The identity, seed and fold of each run of an experiment (not of an ensemble: of its members)."""
    seeds = [int(seed) for seed in results.predictions["seed"].unique()]
    return [(identity, seeds[i // plan.k], i % plan.k + 1) for i, identity in enumerate(results.runs)]


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Names that tell apart what is apart: cohorts of one name, splits of one title, variants of one method."""
    named, labelled = [], []
    cohorts = _ambiguous((cell.cohort, cell.source["hash"]) for cell in cells)
    splits = _ambiguous(((cell.source["hash"], cell.split.title), cell.split.hash) for cell in cells)
    for cell in cells:
        cohort_hash, title = cell.source["hash"], cell.split.title
        words = f"{cell.cohort} ({cohort_hash[:6]})" if cell.cohort in cohorts else cell.cohort
        title += f" ({cell.split.hash[:6]})" if (cohort_hash, title) in splits else ""
        named.append(replace(cell, cohort=words, split_title=title))
    variants = _ambiguous((_variant(cell), cell.results.settings.hash) for cell in named)
    for cell in named:
        changed = [f"{key}={value}" for key, value in cell.changed.items()]
        apart = f"{cell.method} ({', '.join([*changed, own_code(cell) or cell.results.settings.hash[:6]])})"
        labelled.append(replace(cell, label=apart) if _variant(cell) in variants else cell)
    return labelled


def own_code(cell: Cell) -> str:
    """Of user code, a label of this version: its file, its fingerprint's beginning, the day and time of the run."""
    codes = {short_name(m.backbone or m.method).partition(":")[0]: m.code for m in cell.results.settings.each if m.code}
    versions = " + ".join(f"{name} {code[:6]}" for name, code in codes.items())
    return f"{versions} of {cell.finished}" if versions and cell.finished else versions


def _variant(cell: Cell) -> Hashable:
    """One name on every split, so that splits can be set side by side."""
    return cell.place._replace(split=""), cell.method


def _natural(place: Place) -> list[list[tuple[int, str]]]:
    """To sort by: ``split seed 10`` after ``split seed 9``."""
    return [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)] for name in place]


def method_order(cell: Cell) -> tuple[int, str]:
    """To sort by: baselines, then the methods as they are listed everywhere."""
    known = order()  # a baseline that was registered elsewhere is not known here
    return max(known.index(m.method) if m.method in known else -1 for m in cell.results.settings.each), cell.label


def _ambiguous(pairs: Iterable[tuple[Hashable, Hashable]]) -> set[Hashable]:
    """First values that come with more than one second value."""
    return {first for first, count in Counter(first for first, _ in set(pairs)).items() if count > 1}


def _failures(store: RunStore) -> list[str]:
    """Experiments with failed runs, and the error of one of them."""
    failed: dict[str, list[str]] = {}
    for content in store.failures():
        failed.setdefault(content["experiment"], []).append(content["error"])
    advice = f"kept in {store.root / 'failed'}: run them again, or delete the files to forget them"
    return [
        f"Failed: {name}: {counted(len(errors), 'run')}: {errors[0].splitlines()[-1]} ({advice})"
        for name, errors in failed.items()
    ]
