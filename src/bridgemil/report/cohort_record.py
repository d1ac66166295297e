"""What is recorded of a cohort and the experiments on it: values and tables of the reporting checklist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from bridgemil import baselines
from bridgemil.audit import Finding, quick
from bridgemil.audit.size import half_width
from bridgemil.cohort.cleaning import summarise
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.cohort.sources.derivatives import sentence
from bridgemil.cohort.tables import AGE, SEX, is_missing
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.evaluation.calibration import calibration_summary
from bridgemil.evaluation.clinical import INTERVALS
from bridgemil.evaluation.metrics import score_intervals
from bridgemil.evaluation.statistics import COMPARED, counted
from bridgemil.methods import Settings
from bridgemil.report import tables
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.characteristics import (
    SITES,
    Group,
    by_age,
    by_value,
    characteristics,
    column_of,
    columns,
    group_row,
)
from bridgemil.report.held_out import cohort_place
from bridgemil.report.pages.methods import assignment_text, model_text, roles_text
from bridgemil.report.tables import Sheet
from bridgemil.runs import RESULTS_VERSION, AuditWarning, RunStore, merged, warning_text

ARRAYS = "the cohort was made from arrays: how they were processed, and what was excluded before, is not recorded"
NAMED = 6  # examples that are named for each reason of exclusion
BRACKETS = "In brackets: 95 % intervals."
ECE = (
    "ECE: expected calibration error of the predicted class; with several seeds, the means of each seed's value and "
    "interval. Perfect calibration: its expected value on this many subjects if the probabilities were perfectly "
    "calibrated; only a larger error is evidence of miscalibration."
)
BY_GROUP = (
    "Proportion of the group's subjects correctly classified, with a Wilson interval; balanced accuracy with the "
    "classes' Wilson intervals combined. Class proportions differ between groups, which alone changes accuracy. No "
    "difference between groups was tested; with so few subjects an equal result is no proof of fairness."
)


@dataclass(frozen=True)
class CohortRecord:
    """What is recorded of one cohort and the experiments on it.

    Parameters
    ----------
    cells : sequence of Cell
        The experiments, at least one; seeds are not averaged.
    store : RunStore
        Their runs.
    cohort : Cohort, optional
        The cohort, if it is available.
    absent : str
        Why it is not; empty if it is.
    findings : sequence of Finding
        Of the quick audit of the cohort and its runs.
    unaudited : str
        Why there are none; empty if there are.
    """

    cells: Sequence[Cell]
    store: RunStore
    cohort: Cohort | None = None
    absent: str = ""
    findings: Sequence[Finding] = ()
    unaudited: str = ""

    @property
    def name(self) -> str:
        """The cohort's name in the report."""
        return self.cells[0].cohort

    @property
    def source(self) -> Mapping[str, Any]:
        """The cohort, as in run.json."""
        return self.cells[0].source

    @property
    def classes(self) -> list[str]:
        """The diagnoses."""
        return list(self.cells[0].results.classes)

    @cached_property
    def per_class(self) -> dict[str, int]:
        """Number of held-out subjects of each class."""
        counts = Counter(self.cells[0].results.labels)
        return {name: counts[name] for name in self.classes}

    @property
    def n(self) -> int:
        """Number of held-out subjects."""
        return sum(self.per_class.values())

    @property
    def class_counts(self) -> str:
        """``36 A, 29 C, 23 F``."""
        return ", ".join(f"{n} {name}" for name, n in self.per_class.items())

    @cached_property
    def model(self) -> dict[str, Any]:
        """model.json of one of the runs: signal, preparation."""
        return self.store.model_facts(self.cells[0].results.runs[0])

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """run.json of every run that is shown."""
        identities = dict.fromkeys(identity for cell in self.cells for identity in cell.results.runs)
        return [self.store.metadata(identity) for identity in identities]

    @property
    def settings(self) -> list[Settings]:
        """Settings of every experiment; of ensembles, those of their members."""
        return [member for cell in self.cells for member in cell.results.settings.each]

    @property
    def networks(self) -> list[Settings]:
        """Settings of the networks."""
        return [member for member in self.settings if member.is_network]

    @property
    def tried(self) -> str:
        """Number of experiments: ``3 methods or settings on 5 splits``."""
        n = len({cell.results.settings.hash for cell in self.cells})
        splits = counted(len({cell.split.hash for cell in self.cells}), "split")
        return f"{n} {'method' if n == 1 else 'methods or settings'} on {splits}"

    @property
    def warnings(self) -> list[AuditWarning]:
        """Audit warnings that are stored with the runs."""
        return merged(*(cell.results.warnings for cell in self.cells))

    @property
    def accepted(self) -> list[AuditWarning]:
        """Those that are a FAIL, accepted when runs were made."""
        return [warning for warning in self.warnings if warning["level"] == "FAIL"]

    @cached_property
    def preparation(self) -> PrepareSettings | None:
        """Settings of ``prepare``; None for arrays, and for settings of another version."""
        try:
            return PrepareSettings.model_validate(self.model["preparation"]) if self.model["preparation"] else None
        except ValidationError:
            return None

    @property
    def unprepared(self) -> str:
        """Why the preparation is not known; empty if it is."""
        if self.preparation is not None:
            return ""
        return "the settings of its preparation are of another version" if self.model["preparation"] else ARRAYS


def cohort_records(report: BenchmarkReport, given: Sequence[Path] = ()) -> list[CohortRecord]:
    """One record per cohort of a report; each cohort is located, opened and audited.

    Parameters
    ----------
    report : BenchmarkReport
        Results of a folder of runs.
    given : sequence of Path
        Folders of cohorts that have been moved since the runs.

    Raises
    ------
    BadUse
        If one of ``given`` is not a cohort of these runs.
    """
    cells: dict[str, list[Cell]] = {}
    for cell in report.cells:
        if not cell.averaged:
            cells.setdefault(cell.source["hash"], []).append(cell)
    opened: dict[str, Cohort] = {}
    for path in given:
        cohort = Cohort.open(path)
        if cohort.hash not in cells:
            raise BadUse(f"--cohort {path}: no run shown here is of that cohort, or it has changed since")
        opened[cohort.hash] = cohort
    return [_record(report.store, shown, opened.get(key)) for key, shown in cells.items()]


def _record(store: RunStore, cells: Sequence[Cell], cohort: Cohort | None) -> CohortRecord:
    absent = ""
    if cohort is None:
        cohort, absent = _at_its_place(cells[0].source["path"], cells[0].source["hash"], store.root)
    if cohort is None:
        return CohortRecord(cells, store, None, absent, (), absent)
    try:
        return CohortRecord(cells, store, cohort, findings=quick(cohort, store.root))
    except BridgeMILError as error:
        return CohortRecord(cells, store, cohort, unaudited=f"the audit failed ({str(error).splitlines()[0]})")


def _at_its_place(path: str, cohort_hash: str, root: Path) -> tuple[Cohort | None, str]:
    """The cohort at its recorded path, or why it is not there; of the path only the folder's name is given."""
    if not path:
        return None, "the cohort was in memory only and is not stored"
    name, place = Path(path).name, cohort_place(path, root)
    if place is None:
        return None, f"the cohort {name} is no longer at its recorded path (state where it is: --cohort FOLDER)"
    try:
        cohort = Cohort.open(place)
    except BridgeMILError as error:
        return None, f"the cohort {name} cannot be read ({str(error).splitlines()[0].replace(str(place), name)})"
    if cohort.hash != cohort_hash:
        return None, f"the cohort {name} has changed since the runs (the right one: --cohort FOLDER)"
    return cohort, ""


def context(r: CohortRecord) -> dict[str, Any]:
    """Values of the texts in templates/checklist.yaml."""
    first = r.cells[0].results
    weighted: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for settings in {member.hash: member for member in r.settings}.values():
        weighted[_weights_classes(settings)].append(settings.title)
    versions = {
        name: sorted({str(run[name]) for run in r.runs if name in run}) for name in ("bridgemil", "torch", "numpy")
    }
    stored = {warning["check"] for warning in r.warnings}
    found = [f for f in r.findings if f.status in ("FAIL", "WARN") and f.name not in stored]
    sizes = [f for f in r.findings if f.name == "size"]
    return _cohort_context(r) | {
        "r": r,
        "counted": counted,
        "signal": r.model["signal"],
        "half_width": 100 * half_width(r.n),
        "size": [_sentence(line) for f in sizes for line in f.evidence or [f.message.rstrip(".")]],
        "assigned": _assigned({cell.split.hash: cell.split for cell in r.cells}.values()),
        "roles": roles_text(r.settings),
        "models": _models(r),
        "selections": sorted({member.stage2.selection for member in r.settings if member.stage2 is not None}),
        "grouped": any(cell.split.kind == "groups" for cell in r.cells),
        "clinical": f"{first.clinical.method} {INTERVALS}",
        "compared": COMPARED,
        "largest": max(r.per_class.values()) / r.n,
        "weighted": weighted,
        "operating_point": first.clinical_options.operating_point.sentence
        if len(r.classes) == 2
        else "No threshold was chosen.",
        "versions": {name: values for name, values in versions.items() if values},
        "results_version": RESULTS_VERSION,
        "hashes": list(dict.fromkeys(str(cell.row["settings_hash"]) for cell in r.cells)),
        "own_code": list(dict.fromkeys(member.title for member in r.settings if member.code is not None)),
        "facts": tables.facts(r.cells)[0],
        "several_splits": len({cell.split.hash for cell in r.cells}) > 1,
        "accepted": [warning_text(warning) for warning in r.accepted],
        "limitations": [*map(warning_text, r.warnings), *(f"{f.status} {f.name}: {f.message}" for f in found)],
    }


def _cohort_context(r: CohortRecord) -> dict[str, Any]:
    """Values that need the cohort itself; empty without it."""
    names = ("windows", "marked_bad", "dropped_marked_bad", "dropped_amplitude")
    if r.cohort is None:
        empty = ["recordings", "cleaning", "derivative", "sites", "notes", "excluded", "windows", "missing",
                 "ungrouped", "recording_files", "skipped", "interpolated", "prepared_with", "columns",
                 "no_columns"]  # fmt: skip
        return dict.fromkeys(empty, ()) | {"files": dict.fromkeys(names, 0)}
    cohort, about = r.cohort, r.cohort.metadata
    counts = [record.n_windows for record in cohort.records.values()]
    entries = sum(int(row[1]) for row in _excluded(cohort, channels=False))
    missing = {column: sum(map(is_missing, cohort.column(column))) for column in columns(cohort)}
    return {
        "recordings": sum(len(record.recordings) for record in cohort.records.values()),
        "sites": by_value(cohort, SITES),
        "cleaning": summarise(about["settings"], about["files"]),
        "derivative": sentence(about.get("provenance") or {}),
        "notes": [str(note) for note in about["notes"]],
        "excluded": f"{entries} {'entry' if entries == 1 else 'entries'} of the source (subjects or recordings)"
        if entries
        else "",
        "windows": {"median": np.median(counts), "min": min(counts), "max": max(counts)},
        "files": {name: sum(int(file.get(name) or 0) for file in about["files"]) for name in names},
        "skipped": len(about.get("skipped", ())),
        "interpolated": sum(str(note).endswith("interpolated") for note in about["notes"]),
        "missing": {column: n for column, n in missing.items() if n},
        "ungrouped": [w for w, g in (("sex", by_value(cohort, SEX)), ("age", by_age(cohort))) if not g],
        "recording_files": bool(about["files"]),
        "prepared_with": about.get("versions") or {},
        "columns": columns(cohort),
        "no_columns": [w for w, names in (("sex", SEX), ("age", AGE)) if not column_of(cohort, names)],
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _assigned(splits: Iterable[FoldPlan]) -> list[str]:
    """How subjects were assigned to folds; splits that differ in their seed only share a sentence."""
    alike: dict[tuple[int, str], list[FoldPlan]] = {}
    for split in splits:
        alike.setdefault((split.k, split.kind), []).append(split)
    lines = []
    for same in alike.values():
        lines.append(assignment_text(same[0]))
        if len(same) > 1:
            seeds = ", ".join(str(split.split_seed) for split in same if split.split_seed is not None)
            lines.append(f"This was repeated for {len(same)} splits" + (f", split seeds {seeds}." if seeds else "."))
    return lines


def _models(r: CohortRecord) -> list[str]:
    """Description of every method, members of ensembles included."""
    described = {cell.results.settings.hash for cell in r.cells}
    members = {member.hash: member for member in r.settings if member.hash not in described}
    lines = [model_text(_experiment(cell), cell.results.settings) for cell in r.cells]
    return list(dict.fromkeys([*lines, *(model_text(member.title, member) for member in members.values())]))


def _weights_classes(settings: Settings) -> bool | None:
    """Whether training weights classes; None if it is not known."""
    if settings.stage2 is not None:
        return settings.stage2.class_weight
    return baselines.get(settings.method).weighs_classes if settings.method in baselines.names() else None


def _experiment(cell: Cell) -> str:
    """Name of an experiment: method, and backbone, recipe and budget of a network."""
    return cell.label if cell.is_baseline else f"{cell.label}, {cell.place.title}"


def _excluded(cohort: Cohort, *, channels: bool) -> list[list[str]]:
    """Reason, number and names of excluded channels, or of excluded subjects and recordings."""
    reasons: dict[str, list[str]] = {}
    for item in cohort.metadata["left_out"]:
        if str(item["what"]).startswith("channel ") == channels:
            reasons.setdefault(str(item["why"]), []).append(str(item["what"]).removeprefix("channel "))
    for line in [] if channels else cohort.metadata.get("skipped", []):
        where, _, why = str(line).partition(": ")
        reasons.setdefault(f"skipped as bad: {why or where}", []).append(where if why else "")
    return [
        [why, str(len(names)), ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")]
        for why, names in reasons.items()
    ]


def sheets(r: CohortRecord) -> dict[str, Sequence[Sheet]]:
    """Tables of the checklist by name."""
    found: dict[str, Sequence[Sheet]] = {"experiments": [_experiments(r)], "folds": [_folds(r)]}
    found |= dict.fromkeys(("excluded", "channels", "characteristics", "groups", "sites"), ())
    found |= {"performance": [_performance(r)], "calibration": [_calibration(r)]}
    several = len({cell.split.hash for cell in r.cells}) > 1
    named = [(_experiment(c) + (f", {c.place.split}" if several else ""), c.results) for c in r.cells]
    found["clinical"] = tables.clinical(named)
    if r.cohort is not None:
        reasons = ["reason", "number", "names"]
        prepared = [] if r.unprepared else _excluded(r.cohort, channels=False)
        found["excluded"] = [Sheet("Excluded in preparation", reasons, prepared)]
        found["channels"] = [Sheet("Channels excluded", reasons, _excluded(r.cohort, channels=True))]
        found["characteristics"] = [characteristics(r.cohort, r.preparation.overlap if r.preparation else 0.0)]
        groups = [*by_value(r.cohort, SEX), *by_age(r.cohort)]
        found["groups"] = [_by_group(r, groups, "Results by sex and age")]
        found["sites"] = [_by_group(r, by_value(r.cohort, SITES), "Results by centre")]
    return found


def _experiments(r: CohortRecord) -> Sheet:
    alike: dict[tuple[str, str], list[Cell]] = {}
    for cell in r.cells:
        alike.setdefault((_experiment(cell), str(cell.row["settings_hash"])), []).append(cell)
    rows = [[*names, str(len(cells)), cells[0].changed_text or "none"] for names, cells in alike.items()]
    title = "Experiments, and settings that differ from method, recipe and budget"
    return Sheet(title, ["experiment", "settings", "splits", "changed by the user"], rows)


def _folds(r: CohortRecord) -> Sheet:
    kinds = {
        (cell.split.hash, member.selects): (cell.split, cell.place.split, member.selects)
        for cell in r.cells
        for member in cell.results.settings.each
    }
    rows = []
    for split, title, selects in kinds.values():
        folds = split.cv_folds(selects)
        sizes = [sorted(len(getattr(fold, role)) for fold in folds) for role in ("train", "validation", "test")]
        ranges = [" - ".join(str(n) for n in dict.fromkeys([size[0], size[-1]])) for size in sizes]
        rows.append([title, str(split.k), *ranges, str(sum(sizes[2]))])
    columns = ["split", "folds", "training", "validation", "test", "tested in total"]
    return Sheet("Subjects of each fold", columns, rows)


def _performance(r: CohortRecord) -> Sheet:
    rows = []
    for cell in r.cells:
        row, intervals = cell.row, score_intervals(cell.results.predictions, cell.results.classes)
        scores = [f"{row[name]:.3f} ({intervals[name][0]:.3f} - {intervals[name][1]:.3f})"
                  for name in ("balanced_accuracy", "auroc")]  # fmt: skip
        accuracy = f"{tables.accuracy(cell)} ({row['ci95_low']:.1f} - {row['ci95_high']:.1f})"
        rows.append([_experiment(cell), cell.place.split, accuracy, *scores, str(row["seeds"])])
    columns = ["experiment", "split", "accuracy %", "balanced accuracy", "AUROC", "seeds"]
    return Sheet("Performance", columns, rows, after=[f"{BRACKETS} {tables.INTERVAL}"])


def _calibration(r: CohortRecord) -> Sheet:
    rows = []
    for cell in r.cells:
        error = calibration_summary(cell.results.predictions, cell.results.classes)
        value = f"{error['value']:.3f} ({error['low']:.3f} - {error['high']:.3f})"
        rows.append([_experiment(cell), cell.place.split, value, f"{error['expected']:.3f}"])
    columns = ["experiment", "split", "ECE", "perfect calibration"]
    return Sheet("Calibration", columns, rows, after=[f"{BRACKETS} {ECE}"])


def _by_group(r: CohortRecord, groups: Sequence[Group], title: str) -> Sheet:
    rows = [[_experiment(c), c.place.split, g.title, *group_row(c, g)] for c in r.cells for g in groups]
    columns = ["experiment", "split", "group", "n", "classes", "accuracy %", "balanced accuracy"]
    return Sheet(title, columns, rows, after=[f"{BRACKETS} {BY_GROUP}"])
