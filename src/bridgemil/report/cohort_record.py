"""What is recorded of a cohort and the experiments on it: values and tables of the reporting checklist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from bridgemil.cohort.sources.bids import derivative_sentence
from bridgemil.cohort.tables import AGE, SEX, is_missing
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.evaluation.calibration import calibration_summary
from bridgemil.evaluation.clinical import INTERVALS
from bridgemil.evaluation.metrics import score_intervals
from bridgemil.evaluation.statistics import COMPARED, counted
from bridgemil.methods import Settings
from bridgemil.report import characteristics as people
from bridgemil.report import tables
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.held_out import cohort_of
from bridgemil.report.pages.methods import assignment_text, model_text
from bridgemil.report.tables import Sheet, span
from bridgemil.runs import RESULTS_VERSION, AuditWarning, RunStore, merged

ARRAYS = "the cohort was made from arrays: how they were processed, and what was excluded before, is not recorded"
SCORES = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
NAMED = 6  # examples that are named for each reason of exclusion


@dataclass(frozen=True)
class CohortRecord:
    """What is recorded of one cohort and the experiments on it; what the cohort itself must tell may be missing."""

    cells: Sequence[Cell]  # at least one; seeds are not averaged
    cohort: Cohort | None
    absent: str  # why there is no cohort
    findings: Sequence[Finding]  # of the quick audit of the cohort and its runs
    unaudited: str  # why there are none
    per_class: Mapping[str, int]  # number of held-out subjects of each class
    settings: Sequence[Settings]  # of every experiment; of ensembles, those of their members
    splits: Sequence[FoldPlan]  # of the experiments
    runs: Sequence[Mapping[str, Any]]  # run.json of every run that is shown
    model: Mapping[str, Any]  # model.json of one of them: signal, preparation
    preparation: PrepareSettings | None
    unprepared: str  # why the preparation is not known
    warnings: Sequence[AuditWarning]  # that are stored with the runs

    @property
    def name(self) -> str:
        """The cohort's name in the report."""
        return self.cells[0].cohort

    @property
    def accepted(self) -> list[AuditWarning]:
        """Stored warnings that are a FAIL, accepted when runs were made."""
        return [warning for warning in self.warnings if warning["level"] == "FAIL"]


def cohort_records(report: BenchmarkReport, given: Sequence[Path] = ()) -> list[CohortRecord]:
    """One record per cohort of a report; each cohort is located (or ``given``, if it was moved), opened and audited."""
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


def _record(store: RunStore, cells: Sequence[Cell], given: Cohort | None) -> CohortRecord:
    recorded, first = cells[0].source, cells[0].results
    cohort, absent, findings, unaudited = None, "", list[Finding](), ""
    try:
        cohort = cohort_of(recorded, store.root, given)
        findings = quick(cohort, store.root)
    except BridgeMILError as error:  # of its path only the folder's name is given
        where, reason = recorded["path"], str(error).splitlines()[0]
        reason = reason.replace(where, Path(where).name) if where else reason
        absent = reason if cohort is None else ""
        unaudited = absent or f"the audit failed ({reason})"
    model, preparation = store.record("runs", first.runs[0], "model.json"), None
    prepared, unprepared = model["preparation"], ARRAYS
    if prepared:
        try:
            preparation, unprepared = PrepareSettings.model_validate(prepared), ""
        except ValidationError:
            unprepared = "the settings of its preparation are of another version"
    counts, identities = Counter(first.labels), dict.fromkeys(run for cell in cells for run in cell.results.runs)
    return CohortRecord(
        cells, cohort, absent, findings, unaudited, {name: counts[name] for name in first.classes},
        [member for cell in cells for member in cell.results.settings.each],
        list({cell.split.hash: cell.split for cell in cells}.values()), [store.metadata(run) for run in identities],
        model, preparation, unprepared, merged(*(cell.results.warnings for cell in cells)),
    )  # fmt: skip


def context(r: CohortRecord) -> dict[str, Any]:
    """Values of the texts in templates/checklist.yaml, beside those of the record itself."""
    first, n = r.cells[0].results, sum(r.per_class.values())
    weighted: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for settings in r.settings:
        weighted[_weights_classes(settings)].append(settings.title)
    versions = {
        name: sorted({str(run[name]) for run in r.runs if name in run}) for name in ("bridgemil", "torch", "numpy")
    }
    tried = len({cell.results.settings.hash for cell in r.cells})
    two = len(r.per_class) == 2
    return {
        "r": r,
        "source": r.cells[0].source,
        "n": n,
        "class_counts": ", ".join(f"{n} {name}" for name, n in r.per_class.items()),
        "tried": f"{tried} {'method' if tried == 1 else 'methods or settings'} on {counted(len(r.splits), 'split')}",
        "cohort": _cohort_values(r.cohort) if r.cohort is not None else None,
        "signal": r.model["signal"],
        "half_width": 100 * half_width(n),
        "assigned": _assigned(r.splits),
        "models": _models(r),
        "clinical": f"{first.clinical.method} {INTERVALS}",
        "compared": COMPARED,
        "weighted": weighted,
        "operating_point": first.clinical_options.operating_point.sentence if two else "No threshold was chosen.",
        "versions": {name: values for name, values in versions.items() if values},
        "results_version": RESULTS_VERSION,
        "facts": tables.facts(r.cells),
        "interval": tables.INTERVAL,
    }


def _cohort_values(cohort: Cohort) -> dict[str, Any]:
    """Values that need the cohort itself."""
    about, columns = cohort.metadata, people.columns(cohort)
    counts = [record.n_windows for record in cohort.records.values()]
    entries = sum(int(row[1]) for row in _excluded(cohort, channels=False))
    noun = "entry" if entries == 1 else "entries"
    missing = {column: sum(map(is_missing, cohort.column(column))) for column in columns}
    sex, age = people.by_value(cohort, SEX), people.by_age(cohort)
    kept = ("windows", "marked_bad", "dropped_marked_bad", "dropped_amplitude")
    named = {"sex": SEX, "age": AGE}
    return {
        "recordings": sum(len(record.recordings) for record in cohort.records.values()),
        "sites": people.by_value(cohort, people.SITES),
        "cleaning": summarise(about["settings"], about["files"]),
        "derivative": derivative_sentence(about.get("provenance") or {}),
        "notes": [str(note) for note in about["notes"]],
        "excluded": f"{entries} {noun} of the source (subjects or recordings)" if entries else "",
        "windows": {"median": np.median(counts), "min": min(counts), "max": max(counts)},
        "files": {name: sum(int(file.get(name) or 0) for file in about["files"]) for name in kept},
        "recording_files": bool(about["files"]),
        "skipped": len(about.get("skipped", ())),
        "interpolated": sum(str(note).endswith("interpolated") for note in about["notes"]),
        "missing": {column: n for column, n in missing.items() if n},
        "ungrouped": [name for name, groups in (("sex", sex), ("age", age)) if not groups],
        "prepared_with": about.get("versions") or {},
        "columns": columns,
        "no_columns": [name for name, known in named.items() if not people.column_of(cohort, known)],
    }


def _assigned(splits: Sequence[FoldPlan]) -> list[str]:
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
    named = [(_experiment(cell), cell.results.settings) for cell in r.cells]
    named += [(member.title, member) for member in r.settings if member.hash not in described]
    return list(dict.fromkeys(model_text(name, settings) for name, settings in named))


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
    reasons = {
        why: [name.removeprefix("channel ") for name in names if name.startswith("channel ") == channels]
        for why, names in people.left_out(cohort).items()
    }
    for line in [] if channels else cohort.metadata.get("skipped", []):
        where, _, why = str(line).partition(": ")
        reasons.setdefault(f"skipped as bad: {why or where}", []).append(where if why else "")
    return [
        [why, str(len(names)), ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")]
        for why, names in reasons.items()
        if names
    ]


def sheets(r: CohortRecord) -> dict[str, Sequence[Sheet]]:
    """Tables of the checklist by name."""
    names = [(_experiment(cell), cell.place.split) for cell in r.cells]
    labels = [f"{name}, {split}" if len(r.splits) > 1 else name for name, split in names]
    found: dict[str, Sequence[Sheet]] = {
        "experiments": [_experiments(r)],
        "folds": [_folds(r)],
        "performance": [_by_cell(r, "Performance", ["accuracy %", *SCORES.values(), "seeds"], _performance)],
        "clinical": tables.clinical([(label, c.results) for label, c in zip(labels, r.cells, strict=True)]),
        "calibration": [_by_cell(r, "Calibration", ["ECE", "perfect calibration"], _calibration)],
    }
    if r.cohort is None:
        return found
    reasons = ["reason", "number", "names"]
    prepared = [] if r.unprepared else _excluded(r.cohort, channels=False)
    groups = {
        "groups": ("Results by sex and age", [*people.by_value(r.cohort, SEX), *people.by_age(r.cohort)]),
        "sites": ("Results by centre", people.by_value(r.cohort, people.SITES)),
    }
    columns = ["experiment", "split", "group", "n", "classes", "accuracy %", "balanced accuracy"]
    return found | {
        "excluded": [Sheet("Excluded in preparation", reasons, prepared)],
        "channels": [Sheet("Channels excluded", reasons, _excluded(r.cohort, channels=True))],
        "characteristics": [people.characteristics(r.cohort, r.preparation.overlap if r.preparation else 0.0)],
        **{
            name: [Sheet(title, columns, [[*who, g.title, *people.group_row(cell, g)]
                                          for who, cell in zip(names, r.cells, strict=True) for g in own])]
            for name, (title, own) in groups.items()
        },
    }  # fmt: skip


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


def _by_cell(r: CohortRecord, title: str, columns: list[str], values: Callable[[Cell], list[str]]) -> Sheet:
    rows = [[_experiment(cell), cell.place.split, *values(cell)] for cell in r.cells]
    return Sheet(title, ["experiment", "split", *columns], rows)


def _performance(cell: Cell) -> list[str]:
    row, intervals = cell.row, score_intervals(cell.results.predictions, cell.results.classes)
    scores = [f"{row[name]:.3f} ({span(*intervals[name], 3)})" for name in SCORES]
    return [f"{tables.accuracy(row)} ({span(row['ci95_low'], row['ci95_high'])})", *scores, str(row["seeds"])]


def _calibration(cell: Cell) -> list[str]:
    error = calibration_summary(cell.results.predictions, cell.results.classes)
    return [f"{error['value']:.3f} ({span(error['low'], error['high'], 3)})", f"{error['expected']:.3f}"]
