"""Results of a folder of runs: one cell per experiment, the paper's numbers, and pairwise comparisons.

runs -> cells (``build``) -> those chosen (``choice.py``) -> sections by backbone -> tables (``tables.py``)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.tables import natural_key
from bridgemil.engine.benchmark import collect
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.clinical import ClinicalOptions
from bridgemil.evaluation.results import GROUPED, Results, averaged, gather
from bridgemil.evaluation.statistics import Comparison, corrected, counted
from bridgemil.methods import Settings, changed_from_budget, order, short_name
from bridgemil.runs import RESULTS_VERSION, AuditWarning, RunStore, merged, warning_names

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.report.choice import Choice

BASELINES = "baselines"  # title of their section
AVERAGED = ", seeds averaged"
PERCENT = ("accuracy", "accuracy_std", "fold_mean", "fold_mean_std", "ci95_low", "ci95_high",
           "chance", "chance95_low", "chance95_high")  # fmt: skip
COMPARISON = (
    "one", "other", "difference", "ci95_low", "ci95_high", "p", "p_holm", "test", "seeds", "splits", "sentence",
)  # fmt: skip


class Place(NamedTuple):
    """Section of a report: what its methods have in common. A baseline has no backbone, recipe and budget."""

    cohort: str
    split: str
    backbone: str = ""
    recipe: str = ""
    budget: str = ""

    @property
    def title(self) -> str:
        """Title of the section: ``eegnet, recipe ours, budget laptop``."""
        recipe = "" if self.recipe == "paper" else f", recipe {self.recipe}"
        return f"{self.backbone}{recipe}, budget {self.budget}" if self.backbone else BASELINES


@cache
def paper() -> dict[str, Any]:
    """Tables of the BridgeMIL paper (``paper.yaml``)."""
    import yaml

    content: dict[str, Any] = yaml.safe_load(files("bridgemil.report").joinpath("paper.yaml").read_text("utf-8"))
    return content


def differences(theirs: Mapping[str, Any], classes: Sequence[str], n_subjects: int, n_windows: int) -> list[str]:
    """How subjects, classes and windows of a cohort differ from those of the paper's."""
    n = theirs["subjects"]
    reasons = [f"{counted(n_subjects, 'subject')}, not {n}"] if n_subjects != n else []
    if sorted(classes) != theirs["classes"]:
        reasons.append(f"classes {', '.join(sorted(classes))}")
    if abs(n_windows - theirs["windows"]) > 0.05 * theirs["windows"]:
        reasons.append(f"{n_windows:,} windows, not {theirs['windows']:,}")
    return reasons


def comparison_table(found: Iterable[tuple[Mapping[str, Any], Comparison]], names: Sequence[str]) -> pd.DataFrame:
    """One row per comparison, with its ``names`` in front; differences in percentage points of accuracy."""
    import pandas as pd

    rows = [
        (*own.values(), c.one, c.other, 100 * c.difference, 100 * c.low, 100 * c.high, c.p, c.p_holm, c.test, c.seeds,
         c.splits, c.sentence)
        for own, c in found
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*names, *COMPARISON])


def percent_row(results: Results) -> dict[str, Any]:
    """Summary of results; accuracy and chance in percent, the other scores between 0 and 1."""
    row = {str(name): value for name, value in results.summary.iloc[0].items()}
    return row | {name: 100 * row[name] for name in PERCENT}


@dataclass(frozen=True)
class Cell:
    """One experiment: the results of a method on a backbone with a budget, on a split of a cohort."""

    cohort: str  # its name, made unique among what is shown
    label: str  # the method, made unique among those it is compared with
    source: Mapping[str, Any]  # the cohort, as in run.json
    split: FoldPlan
    results: Results
    split_title: str = ""  # made unique among the cohort's
    finished: str = ""  # day and time of its first run, UTC
    averaged: int = 0  # number of seeds whose probabilities were averaged; 0: each seed by itself

    @property
    def method(self) -> str:
        """The method's name."""
        return self.results.settings.method

    @property
    def is_baseline(self) -> bool:
        """Whether no part of it is a network."""
        return self.results.settings.backbone is None

    @property
    def place(self) -> Place:
        """Its section."""
        settings, where = self.results.settings, (self.cohort, self.split_title or self.split.title)
        if settings.backbone is None:
            return Place(*where)
        return Place(*where, short_name(settings.backbone), settings.recipe, str(settings.budget))

    @cached_property
    def row(self) -> Mapping[str, Any]:
        """Summary of the results; accuracy in percent, the other scores between 0 and 1."""
        row = percent_row(self.results)
        row |= {"backbone": self.place.backbone or None, "settings_hash": row["settings_hash"][:12]}
        return row | ({"seeds": self.averaged, "accuracy_std": None, "fold_mean_std": None} if self.averaged else {})

    @property
    def row_name(self) -> str:
        """First column of a table: the method; indented for its averaged seeds."""
        return f"  {AVERAGED[2:]}" if self.averaged else self.label

    @property
    def changed(self) -> dict[str, Any]:
        """Settings changed by the user."""
        return changed_from_budget(self.results.settings, self.source.get("burn_in"))

    @property
    def changed_text(self) -> str:
        """``changed`` as ``stage2.epochs = 3; …``."""
        return "; ".join(f"{key} = {value}" for key, value in self.changed.items())

    @property
    def published(self) -> tuple[float, float] | None:
        """The paper's number for this cohort, backbone and method; only the paper's recipe and budget have one."""
        tables, source, settings = paper(), self.source["source"], self.results.settings
        if settings.recipe != "paper" or settings.budget != "paper" or self.averaged:
            return None
        ablation = tables["ablation"].get(source, {}) if settings.backbone == "eegnet" else {}
        number = (ablation | tables["main"].get(source, {}).get(settings.backbone, {})).get(self.method)
        return None if number is None else (number[0], number[1])

    @property
    def caveats(self) -> list[str]:
        """Why this number is not a replication of the paper's."""
        cohort, row = self.source, self.row
        theirs = paper()["cohorts"].get(cohort["source"])
        if theirs is None:
            return []
        reasons = [] if self.split.kind == "array_split" else [f"a split of another kind ({self.split.kind})"]
        numbers = {"seed": (row["seeds"], paper()["seeds"]), "fold": (row["folds"], theirs["folds"])}
        reasons += [f"{counted(n, name)}, not {own}" for name, (n, own) in numbers.items() if n != own]
        reasons += differences(theirs, cohort["classes"], cohort["n_subjects"], cohort["n_windows"])
        return reasons + [f"{key} = {value}" for key, value in (cohort.get("changed", {}) | self.changed).items()]


@dataclass
class BenchmarkReport:
    """Results of a folder of runs."""

    cells: list[Cell]
    store: RunStore
    comparisons: dict[Place, list[Comparison]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # what is not in the tables, and why

    @property
    def warnings(self) -> list[AuditWarning]:
        """Audit warnings of every cohort shown: cohort, check, level, message."""
        return merged([{"cohort": cell.cohort, **warning} for cell in self.cells for warning in cell.results.warnings])

    @property
    def table(self) -> pd.DataFrame:
        """One row per experiment; accuracy in percent, the other scores between 0 and 1."""
        import pandas as pd

        rows = []
        for cell in self.cells:
            mean, std = cell.published or (None, None)
            names = {"cohort": cell.cohort, "split": cell.place.split, "name": cell.label}
            more = {
                "seeds_averaged": cell.averaged > 0, "paper": mean, "paper_std": std,
                "difference": None if mean is None else cell.row["fold_mean"] - mean,
                "not_as_in_the_paper": "; ".join(cell.caveats) if cell.published else "",
                "changed": cell.changed_text, "own_code": own_code(cell),
                "warnings": warning_names(cell.results.warnings),
                "cohort_hash": cell.source["hash"], "split_hash": cell.split.hash[:12],
            }  # fmt: skip
            rows.append({**names, **cell.row, **more})
        return pd.DataFrame(rows)

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per comparison; differences in percentage points of accuracy."""
        found = ((place._asdict(), c) for place, compared in self.comparisons.items() for c in compared)
        return comparison_table(found, Place._fields)

    def blocks(self) -> dict[tuple[str, str], dict[Place, list[Cell]]]:
        """Sections of each cohort and split: its baselines, then its networks."""
        blocks: dict[tuple[str, str], dict[Place, list[Cell]]] = {}
        for cell in self.cells:
            blocks.setdefault(cell.place[:2], {}).setdefault(cell.place, []).append(cell)
        return blocks

    def groups(self) -> dict[Place, list[Cell]]:
        """What may be compared: each network section, preceded by the baselines of its cohort and split."""
        groups: dict[Place, list[Cell]] = {}
        for block in self.blocks().values():
            single = [cell for cells in block.values() for cell in cells if not cell.averaged]
            for place in block:
                if place.backbone or len(block) == 1:
                    groups[place] = [cell for cell in single if cell.is_baseline or cell.place == place]
        return groups


def build(store: RunStore, choice: Choice | None = None) -> BenchmarkReport:
    """Read every finished run of a folder, or those of a choice; ``BadData`` if there is none."""
    runs = collect(store)
    if runs.empty:
        raise BadData(f"{store.root}: no finished run there; make some with `bridgemil benchmark` or `evaluate`")
    remarks = []
    foreign = runs["results_version"] != RESULTS_VERSION
    if foreign.any():
        remarks.append(f"Excluded: {counted(int(foreign.sum()), 'run')} of another results version")
    cells, missing = _cells(store, runs[~foreign])
    if choice is not None:
        cells = choice.among(cells)
    cells = sorted(_labelled(cells), key=lambda cell: (*map(natural_key, cell.place), method_order(cell)))
    if any(cell.split.kind == "groups" for cell in cells):
        remarks.append(GROUPED)
    report = BenchmarkReport(cells, store, remarks=remarks + missing + _failures(store))
    _compare(report)
    report.cells = [row for cell in cells for row in (cell, *_seeds_averaged(cell))]
    return report


def _compare(report: BenchmarkReport) -> None:
    """Compare every pair of a section, and each of its networks with the baselines of its cohort and split."""
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


def _seeds_averaged(cell: Cell) -> list[Cell]:
    """The mean of the seeds' probabilities as a cell of its own; none for one seed or identical predictions."""
    results, label = cell.results, cell.label + AVERAGED
    steady = results.seeds == 1 or results.steady
    return [] if steady else [replace(cell, label=label, results=results.ensemble, averaged=results.seeds)]


def _cells(store: RunStore, runs: pd.DataFrame) -> tuple[list[Cell], list[str]]:
    """A cell for each experiment and split with a complete seed, ensembles included; and what is missing."""
    done, cells, used = set(runs["identity"]), list[Cell](), set[str]()
    splits = store.splits()
    for (cohort_hash, _), rows in runs.groupby(["cohort_hash", "settings_hash"], sort=False):
        about = store.metadata(rows["identity"].iloc[0])
        settings = Settings.model_validate(about["settings"])
        run_of = store.finder(settings, str(cohort_hash), rows["identity"])
        for plan in [plan for planned_for, plan in splits if planned_for == cohort_hash]:
            folds = plan.cv_folds(settings.selects)
            each = [[run_of(fold, int(seed)) for fold in folds] for seed in sorted(rows["seed"].unique())]
            complete = [identity for identities in each if done.issuperset(identities) for identity in identities]
            if complete:
                results = gather(store, complete, settings, plan)
                name, finished = rows["cohort"].iloc[0], str(about.get("finished", ""))[:16].replace("T", " ")
                cells.append(Cell(name, settings.method, about["cohort"], plan, results, finished=finished))
                used.update(complete)
    cells += _ensembles(store, cells)
    left = runs[~runs["identity"].isin(used)]
    studied = left["part"] != ""
    missing = list[str]()
    if studied.any():
        missing.append(f"Of studies on a part of a cohort: {counted(int(studied.sum()), 'run')}, in no table here")
    missing += [
        f"Not finished: {', '.join(str(name) for name in names if name)}: {counted(len(rows), 'run')} of seeds that "
        "are not complete on any split planned here"
        for names, rows in left[~studied].fillna({"backbone": ""}).groupby(["cohort", "method", "backbone"], sort=False)
    ]
    return cells, missing


def _ensembles(store: RunStore, cells: Sequence[Cell]) -> list[Cell]:
    """Ensembles that were planned here and whose members are complete, on each split of each cohort."""
    by_split: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        by_split.setdefault((cell.source["hash"], cell.split.hash), {})[cell.results.settings.hash] = cell
    made = []
    for settings, there in product(store.ensembles(), by_split.values()):
        members = [there[member.hash].results for member in settings.members if member.hash in there]
        if len(members) < len(settings.members):
            continue
        first = there[settings.members[0].hash]
        shared = set.intersection(*(set(member.predictions["seed"]) for member in members))
        runs = [[i for i, seed, _ in runs_of(member, first.split) if seed in shared] for member in members]
        if shared:
            parts = [gather(store, own, m.settings, first.split) for own, m in zip(runs, members, strict=True)]
            made.append(replace(first, label=settings.method, results=averaged(parts, settings)))
    return made


def runs_of(results: Results, plan: FoldPlan) -> list[tuple[str, int, int]]:
    """Identity, seed and fold of each run of an experiment (of an ensemble, ask its members)."""
    pairs = product((int(seed) for seed in results.predictions["seed"].unique()), plan.numbers)
    return [(identity, *pair) for identity, pair in zip(results.runs, pairs, strict=True)]


def _labelled(cells: Sequence[Cell]) -> list[Cell]:
    """Distinct names for cohorts of one name, splits of one title and variants of one method."""
    named, labelled = [], []
    cohorts = _ambiguous((cell.cohort, cell.source["hash"]) for cell in cells)
    splits = _ambiguous(((cell.source["hash"], cell.split.title), cell.split.hash) for cell in cells)
    for cell in cells:
        cohort_hash, title = cell.source["hash"], cell.split.title
        name = f"{cell.cohort} ({cohort_hash[:6]})" if cell.cohort in cohorts else cell.cohort
        title += f" ({cell.split.hash[:6]})" if (cohort_hash, title) in splits else ""
        named.append(replace(cell, cohort=name, split_title=title))

    def variant(cell: Cell) -> Hashable:  # one label on every split, so that splits can be averaged
        return cell.place._replace(split=""), cell.method

    variants = _ambiguous((variant(cell), cell.results.settings.hash) for cell in named)
    for cell in named:
        changed = [f"{key}={value}" for key, value in cell.changed.items()]
        label = f"{cell.method} ({', '.join([*changed, own_code(cell) or cell.results.settings.hash[:6]])})"
        labelled.append(replace(cell, label=label) if variant(cell) in variants else cell)
    return labelled


def own_code(cell: Cell) -> str:
    """Label of this version of user code: its file, the beginning of its fingerprint, day and time of the run."""
    codes = {short_name(m.backbone or m.method).partition(":")[0]: m.code for m in cell.results.settings.each if m.code}
    versions = " + ".join(f"{name} {code[:6]}" for name, code in codes.items())
    return f"{versions} of {cell.finished}" if versions and cell.finished else versions


def method_order(cell: Cell) -> tuple[int, str]:
    """Sort key: baselines, then the methods in the order of their registry."""
    known = order()  # a baseline that was registered elsewhere is not known here
    return max(known.index(m.method) if m.method in known else -1 for m in cell.results.settings.each), cell.label


def _ambiguous(pairs: Iterable[tuple[Hashable, Hashable]]) -> set[Hashable]:
    """First values that come with more than one second value."""
    return {first for first, count in Counter(first for first, _ in set(pairs)).items() if count > 1}


def _failures(store: RunStore) -> list[str]:
    """Experiments with failed runs, and the error of one of them."""
    failures = list(store.failures())
    counts = Counter(content["experiment"] for content in failures)
    errors = {content["experiment"]: content["error"] for content in reversed(failures)}
    advice = f"kept in {store.root / 'failed'}: run them again, or delete the files"
    return [f"Failed: {n}: {counted(counts[n], 'run')}: {errors[n].splitlines()[-1]} ({advice})" for n in counts]


def with_clinical_options(report: BenchmarkReport, options: ClinicalOptions) -> None:
    """Apply positive class, operating point and prevalence to every experiment of a report, in place.

    Cohorts of more than two classes have no options; a cohort without the named positive class keeps its default, and
    a remark says so. ``BadUse`` if the options apply to no cohort.
    """
    if options == ClinicalOptions():
        return
    two = [cell for cell in report.cells if len(cell.results.classes) == 2]
    absent = dict.fromkeys(cell.cohort for cell in two if options.positive not in (None, *cell.results.classes))
    if all(cell.cohort in absent for cell in two):
        names = sorted({name for cell in report.cells for name in cell.results.classes})
        raise BadUse(
            "--positive, --operating-point and --prevalence are for two classes, one of them the positive one; the "
            f"classes of these runs are {', '.join(names)}"
        )
    for i, cell in enumerate(report.cells):
        if len(cell.results.classes) == 2:
            own = replace(options, positive=None) if cell.cohort in absent else options
            report.cells[i] = replace(cell, results=replace(cell.results, clinical_options=own))
    report.remarks += [f"{name} has no class {options.positive}: its default positive class" for name in absent]
