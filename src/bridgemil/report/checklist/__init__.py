"""A reporting checklist (TRIPOD+AI) filled in from the records of cohorts and runs, and a help to judge risk of bias.

report -> dossiers, one a cohort (dossier.py) -> answers, one an item (*_items.py) -> entries -> Markdown and HTML

What the records do not say is never filled in: it is marked as the author's to write. Items and domains are data
(items.yaml, bias.yaml).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgemil.report.benchmark import BenchmarkReport
from bridgemil.report.checklist import data_items, model_items, performance_items
from bridgemil.report.checklist.bias import Judgement, judged
from bridgemil.report.checklist.dossier import Dossier, dossiers
from bridgemil.report.checklist.entries import STATES, Answer, Entry, entry, items, safe, safe_text
from bridgemil.runs import AuditWarning

__all__ = ["Checklist", "Section", "build_checklist"]

FILLERS = data_items.FILLERS | model_items.FILLERS | performance_items.FILLERS


@dataclass(frozen=True)
class Section:
    """The checklist of one cohort and its experiments; all words are safe to print.

    Parameters
    ----------
    name
        The cohort's.
    entries
        Every item.
    judgements
        The four domains of risk of bias.
    warnings
        What must stand above it: a cohort that is not at hand.
    """

    name: str
    entries: tuple[Entry, ...]
    judgements: tuple[Judgement, ...]
    warnings: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many items of each state."""
        counted = Counter(entry.state for entry in self.entries)
        return {state: counted[state] for state in STATES}


@dataclass(frozen=True)
class Checklist:
    """A section for each cohort, what the report could not show, and the audit warnings of the cohorts."""

    name: str
    sections: tuple[Section, ...]
    remarks: tuple[str, ...]
    warnings: tuple[AuditWarning, ...]


def build_checklist(report: BenchmarkReport, cohorts: Sequence[Path] = ()) -> Checklist:
    """Fill the checklist in.

    Parameters
    ----------
    report
        What the runs show.
    cohorts
        Folders of cohorts that are no longer where the runs found them.
    """
    sections = tuple(_section(known) for known in dossiers(report, cohorts))
    warnings = tuple({key: safe_text(value) for key, value in warning.items()} for warning in report.warnings)
    return Checklist(safe_text(report.store.root.resolve().name), sections, safe(report.remarks), warnings)


def _section(known: Dossier) -> Section:
    warnings = [f"Filled in from the runs alone: {known.absent}."] if known.cohort is None else []
    fillers = {item: FILLERS.get(item.number) for item in items()}
    entries = tuple(entry(item, fill(known) if fill else Answer()) for item, fill in fillers.items())
    return Section(safe_text(known.name), entries, tuple(judged(known)), safe(warnings))
