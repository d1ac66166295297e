"""What is known of one cohort: its own record where its folder is at hand, the records of its runs, and the audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridgemil.audit import Finding, quick
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.settings import PrepareSettings
from bridgemil.errors import BadUse, BridgeMILError
from bridgemil.evaluation.statistics import counted
from bridgemil.report.benchmark import BenchmarkReport, Cell
from bridgemil.report.cohort_place import cohort_place
from bridgemil.runs import AuditWarning, RunStore, merged

ARRAYS = "the cohort was made from arrays: what was done to them, and left out, before is not recorded"


@dataclass(frozen=True)
class Dossier:
    """One cohort and the experiments on it.

    Parameters
    ----------
    name
        The cohort's, as the report has it.
    cells
        The experiments, one at least; seeds are not averaged.
    store
        Where their runs are.
    cohort
        The cohort, if it is at hand.
    absent
        Why it is not; empty if it is.
    findings
        Of the quick audit of the cohort and its runs.
    unaudited
        Why there are none; empty if there are.
    """

    name: str
    cells: Sequence[Cell]
    store: RunStore
    cohort: Cohort | None = None
    absent: str = ""
    findings: Sequence[Finding] = ()
    unaudited: str = ""

    @property
    def source(self) -> Mapping[str, Any]:
        """The cohort, as run.json has it."""
        return self.cells[0].source

    @property
    def classes(self) -> list[str]:
        """The diagnoses."""
        return list(self.cells[0].results.classes)

    @cached_property
    def per_class(self) -> dict[str, int]:
        """How many people of each class were held out."""
        counts = Counter(self.cells[0].results.labels)
        return {name: counts[name] for name in self.classes}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What model.json of one of the runs says: signal, preparation."""
        return self.store.model_facts(self.cells[0].results.runs[0])

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """run.json of every run that is shown."""
        identities = dict.fromkeys(identity for cell in self.cells for identity in cell.results.runs)
        return [self.store.metadata(identity) for identity in identities]

    @property
    def tried(self) -> str:
        """How many experiments there are: ``3 settings on 5 splits``."""
        settings = {cell.results.settings.hash for cell in self.cells}
        splits = {cell.split.hash for cell in self.cells}
        words = f"{len(settings)} {'method' if len(settings) == 1 else 'methods or settings'}"
        return f"{words} on {counted(len(splits), 'split')}"

    @property
    def warnings(self) -> list[AuditWarning]:
        """The audit warnings that are stored with the runs."""
        return merged(*(cell.results.warnings for cell in self.cells))

    @property
    def accepted(self) -> list[AuditWarning]:
        """Those of them that are a FAIL, accepted when runs were made."""
        return [warning for warning in self.warnings if warning["level"] == "FAIL"]

    @cached_property
    def preparation(self) -> PrepareSettings | None:
        """How ``prepare`` made the cohort from recordings; None of arrays, and of settings of another version."""
        try:
            return PrepareSettings.model_validate(self.facts["preparation"]) if self.facts["preparation"] else None
        except ValidationError:
            return None

    @property
    def unprepared(self) -> str:
        """Why it is not known how recordings became windows; empty if it is."""
        if self.preparation is not None:
            return ""
        return "its settings of preparation are another version's" if self.facts["preparation"] else ARRAYS


def dossiers(report: BenchmarkReport, given: Sequence[Path] = ()) -> list[Dossier]:
    """One for each cohort of a report; each cohort is looked for, opened and audited.

    Parameters
    ----------
    report
        What the runs show.
    given
        Folders of cohorts that are no longer where the runs found them.
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
    return [_dossier(report.store, key, shown, opened.get(key)) for key, shown in cells.items()]


def _dossier(store: RunStore, cohort_hash: str, cells: Sequence[Cell], cohort: Cohort | None) -> Dossier:
    absent = ""
    if cohort is None:
        cohort, absent = _at_its_place(cells[0].source["path"], cohort_hash, store.root)
    if cohort is None:
        return Dossier(cells[0].cohort, cells, store, None, absent, (), absent)
    try:
        return Dossier(cells[0].cohort, cells, store, cohort, "", quick(cohort, store.root))
    except BridgeMILError as error:
        unaudited = f"the audit came to no end ({str(error).splitlines()[0]})"
        return Dossier(cells[0].cohort, cells, store, cohort, "", (), unaudited)


def _at_its_place(path: str, cohort_hash: str, root: Path) -> tuple[Cohort | None, str]:
    """The cohort where the runs found it, or why it is not there. The folder's name is said, not where it lies."""
    if not path:
        return None, "the cohort was in memory only and is not stored"
    name = Path(path).name
    place = cohort_place(path, root)
    if place is None:
        return None, f"the cohort {name} is no longer where the runs found it (say where: --cohort FOLDER)"
    try:
        cohort = Cohort.open(place)
    except BridgeMILError as error:
        words = str(error).splitlines()[0].replace(str(place), name)
        return None, f"the cohort {name} cannot be read ({words})"
    if cohort.hash != cohort_hash:
        return None, f"the cohort {name} has changed since the runs (the right one: --cohort FOLDER)"
    return cohort, ""
