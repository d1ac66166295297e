"""What is recorded of a cohort and the experiments on it: values and tables of the reporting checklist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from bridgemil import baselines
from bridgemil.audit import Finding, audit_runs
from bridgemil.audit.size import half_width
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
from bridgemil.report import tables, templating
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.held_out import cohort_of
from bridgemil.report.pages.results import METHODS, model_text
from bridgemil.report.tables import Sheet, span
from bridgemil.report.terminal import summary
from bridgemil.runs import RESULTS_VERSION, RunStore, merged

ARRAYS = "the cohort was made from arrays: how they were processed, and what was excluded before, is not recorded"
SCORES = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
NAMED = 6  # examples that are named for each reason of exclusion


def cohort_records(report: BenchmarkReport, given: Sequence[Path] = ()) -> list[SimpleNamespace]:
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


def _record(store: RunStore, cells: Sequence[Cell], given: Cohort | None) -> SimpleNamespace:
    """What is recorded of one cohort and the experiments on it (``cells``): values of the texts in checklist.yaml."""
    first, opened, findings, unaudited = cells[0].results, None, list[Finding](), ""
    source, model = cells[0].source, store.record("runs", first.runs[0], "model.json")
    try:
        opened = cohort_of(source, store.root, given)
        findings = audit_runs(opened, store.root)
    except BridgeMILError as error:  # of its path only the folder's name is given
        where, reason = source["path"], str(error).splitlines()[0]
        unaudited = reason.replace(where, Path(where).name) if where else reason
    absent = unaudited if opened is None else ""  # why there is no cohort
    preparation, unprepared = _preparation(model["preparation"])
    settings = [member for cell in cells for member in cell.results.settings.each]  # of ensembles, their members'
    splits = list({cell.split.hash: cell.split for cell in cells}.values())
    identities = dict.fromkeys(run for cell in cells for run in cell.results.runs)
    runs = [store.metadata(run) for run in identities]
    versions = {name: sorted({str(r[name]) for r in runs if name in r}) for name in ("bridgemil", "torch", "numpy")}
    warnings = merged(*(cell.results.warnings for cell in cells))
    n, counts = len(first.labels), Counter(first.labels)
    tried = len({cell.results.settings.hash for cell in cells})
    point = first.clinical_options.operating_point.sentence
    return SimpleNamespace(
        name=cells[0].cohort, cells=cells, source=source, opened=opened, absent=absent, findings=findings,
        unaudited=unaudited if absent or not unaudited else f"the audit failed ({unaudited})",
        settings=settings, splits=splits, runs=runs, preparation=preparation, unprepared=unprepared, warnings=warnings,
        accepted=[warning for warning in warnings if warning["level"] == "FAIL"],
        per_class={name: counts[name] for name in first.classes},
        n=n, class_counts=", ".join(f"{counts[name]} {name}" for name in first.classes),
        tried=f"{tried} {'method' if tried == 1 else 'methods or settings'} on {counted(len(splits), 'split')}",
        cohort=None if opened is None else _cohort_values(opened),
        signal=model["signal"], half_width=100 * half_width(n), assigned=_assigned(splits),
        models=_models(cells, settings), clinical=f"{first.clinical.method} {INTERVALS}", compared=COMPARED,
        weighted={how: [s.title for s in settings if _weights_classes(s) is how] for how in (True, False, None)},
        operating_point=point if len(first.classes) == 2 else "No threshold was chosen.",
        versions={name: values for name, values in versions.items() if values}, results_version=RESULTS_VERSION,
        facts=tables.facts(cells), interval=tables.INTERVAL,
    )  # fmt: skip


def _preparation(prepared: Mapping[str, Any]) -> tuple[PrepareSettings | None, str]:
    """The settings of preparation, and why they are not known."""
    if not prepared:
        return None, ARRAYS
    try:
        return PrepareSettings.model_validate(prepared), ""
    except ValidationError:
        return None, "the settings of its preparation are of another version"


def _cohort_values(cohort: Cohort) -> dict[str, Any]:
    """Values that need the cohort itself: its summary, groups, and what is missing."""
    about, columns = cohort.metadata, people.columns(cohort)
    counts = cohort.table["n_windows"]
    entries = sum(int(row[1]) for row in _excluded(cohort, channels=False))
    noun = "entry" if entries == 1 else "entries"
    sex, age = people.by_value(cohort, SEX), people.by_age(cohort)
    return summary(cohort) | {
        "sites": people.by_value(cohort, people.SITES),
        "derivative": derivative_sentence(about.get("provenance") or {}),
        "excluded": f"{entries} {noun} of the source (subjects or recordings)" if entries else "",
        "windows": {"median": counts.median(), "min": counts.min(), "max": counts.max()},
        "recording_files": bool(about["files"]),
        "interpolated": sum(str(note).endswith("interpolated") for note in about["notes"]),
        "missing": {column: n for column in columns if (n := sum(map(is_missing, cohort.column(column))))},
        "ungrouped": [name for name, groups in (("sex", sex), ("age", age)) if not groups],
        "prepared_with": about.get("versions") or {},
        "columns": columns,
        "no_columns": [n for n, names in {"sex": SEX, "age": AGE}.items() if people.known(cohort, names).name is None],
    }


def _assigned(splits: Sequence[FoldPlan]) -> list[str]:
    """How subjects were assigned to folds; splits that differ in their seed only share a sentence."""
    alike: dict[tuple[int, str], list[FoldPlan]] = {}
    for split in splits:
        alike.setdefault((split.k, split.kind), []).append(split)
    lines = []
    for same in alike.values():
        lines.append(templating.macro(METHODS, "assignment")(same[0]))
        if len(same) > 1:
            seeds = ", ".join(str(split.split_seed) for split in same if split.split_seed is not None)
            lines.append(f"This was repeated for {len(same)} splits" + (f", split seeds {seeds}." if seeds else "."))
    return lines


def _models(cells: Sequence[Cell], settings: Sequence[Settings]) -> list[str]:
    """Description of every method, members of ensembles included."""
    named = {cell.results.settings.hash: (_experiment(cell), cell.results.settings) for cell in cells}
    for member in settings:
        named.setdefault(member.hash, (member.title, member))
    return list(dict.fromkeys(model_text(name, one) for name, one in named.values()))


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


def sheets(r: SimpleNamespace) -> dict[str, Sequence[Sheet]]:
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
    if r.opened is None:
        return found
    reasons = ["reason", "number", "names"]
    prepared = [] if r.unprepared else _excluded(r.opened, channels=False)
    groups = {
        "groups": ("Results by sex and age", [*people.by_value(r.opened, SEX), *people.by_age(r.opened)]),
        "sites": ("Results by centre", people.by_value(r.opened, people.SITES)),
    }
    columns = ["experiment", "split", "group", "n", "classes", "accuracy %", "balanced accuracy"]
    return found | {
        "excluded": [Sheet("Excluded in preparation", reasons, prepared)],
        "channels": [Sheet("Channels excluded", reasons, _excluded(r.opened, channels=True))],
        "characteristics": [people.characteristics(r.opened, r.preparation.overlap if r.preparation else 0.0)],
        **{
            name: [Sheet(title, columns, [[*who, g.title, *people.group_row(cell, g)]
                                          for who, cell in zip(names, r.cells, strict=True) for g in own])]
            for name, (title, own) in groups.items()
        },
    }  # fmt: skip


def _experiments(r: SimpleNamespace) -> Sheet:
    alike: dict[tuple[str, str], list[Cell]] = {}
    for cell in r.cells:
        alike.setdefault((_experiment(cell), str(cell.row["settings_hash"])), []).append(cell)
    rows = [[*names, str(len(cells)), cells[0].changed_text or "none"] for names, cells in alike.items()]
    title = "Experiments, and settings that differ from method, recipe and budget"
    return Sheet(title, ["experiment", "settings", "splits", "changed by the user"], rows)


def _folds(r: SimpleNamespace) -> Sheet:
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


def _by_cell(r: SimpleNamespace, title: str, columns: list[str], values: Callable[[Cell], list[str]]) -> Sheet:
    rows = [[_experiment(cell), cell.place.split, *values(cell)] for cell in r.cells]
    return Sheet(title, ["experiment", "split", *columns], rows)


def _performance(cell: Cell) -> list[str]:
    row, intervals = cell.row, score_intervals(cell.results.predictions, cell.results.classes)
    scores = [f"{row[name]:.3f} ({span(*intervals[name], 3)})" for name in SCORES]
    return [f"{tables.accuracy(row)} ({span(row['ci95_low'], row['ci95_high'])})", *scores, str(row["seeds"])]


def _calibration(cell: Cell) -> list[str]:
    error = calibration_summary(cell.results.predictions, cell.results.classes)
    return [f"{error['value']:.3f} ({span(error['low'], error['high'], 3)})", f"{error['expected']:.3f}"]
