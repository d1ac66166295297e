"""The studies: each is a grid for the engine, a table and a figure. Add one with a file and a line.

A study is a module with ``OPTIONS`` (the names of its own options) and ``perform(context)``.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from bridgemil import methods
from bridgemil.errors import one_of
from bridgemil.evaluation.results import GROUPED, subbag_pairs
from bridgemil.evaluation.statistics import COMPARED, counted
from bridgemil.runs import merged
from bridgemil.studies import drawing, published, truth
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings

INTERVALS = "Intervals of scores are over subjects; intervals do not include retraining variance."
TESTS = f"{COMPARED} p_holm: Holm-corrected for the comparisons on the cohort; significant where below .05."
_STUDIES = ("reliability", "scarcity", "representation", "ablation", "sensitivity", "learning_curve")


def names() -> list[str]:
    """Names of the studies.

    Returns
    -------
    list of str
    """
    return list(_STUDIES)


def get(name: str) -> Any:
    """The module of a study."""
    one_of("study", name, _STUDIES)
    return importlib.import_module(f"{__name__}.{name}")


def study(name: str, context: StudyContext) -> Findings:
    """Run or resume a study and write its tables and figures to ``context.out / name``.

    Parameters
    ----------
    name : str
        One of ``names()``.
    context : StudyContext
        Cohorts, output folder and settings.

    Returns
    -------
    Findings
        Sentences, tables and figures.
    """
    module, context = get(name), replace(context)  # a context of this study alone: it notes which settings were used
    context.refuse_foreign(name, module.OPTIONS)
    if context.truth is not None:
        for cohort in context.cohorts:
            truth.evidence(context, cohort)  # a wrong folder is better noticed before hours of work
    with drawing.plain_words():
        findings = _explained(name, context, module.perform(context))
        findings.write(context.out / name)
    return findings


def _explained(name: str, context: StudyContext, said: Findings) -> Findings:
    """What a study said, with what every study says."""
    warnings = merged(
        [
            {"cohort": context.name(cohort), **warning}
            for cohort in context.cohorts
            for warning in context.warnings[cohort.hash]
        ]
    )
    notes = [*said.footnotes, INTERVALS, *_about(context)]
    if any("p" in table for table in said.tables.values()):
        notes.append(TESTS)
    if name != "representation":  # whose numbers in the paper are of one seed
        notes += published.notes(context)
    return replace(said, warnings=warnings, footnotes=notes)


def _about(context: StudyContext) -> list[str]:
    """Of what and how the study is, so that findings.md can stand alone."""
    cohorts = ", ".join(f"{context.name(cohort)} ({len(cohort)} subjects)" for cohort in context.cohorts)
    counts = f"{counted(len(context.seeds), 'seed')}, {counted(len(context.split_seeds), 'split')}"
    words = [f"Cohorts: {cohorts}; {counts}."]
    pairs = subbag_pairs(context.experiment(context.cohorts[0], context.option("method", "bridgemil")).settings)
    if pairs is not None:
        words.append(f"bridgemil's Stage 1 has {counted(pairs, 'pair')} of sub-bags a step where nothing else is said.")
    if context.groups is not None:
        words.append(GROUPED)
    if context.used_changes:
        words.append(f"Set by hand: {', '.join(f'{key} = {value}' for key, value in context.used_changes.items())}.")
    unused = [key for key in methods.flat(context.changes) if key not in context.used_changes]
    if unused:
        words.append(f"Set, but no method of this study has it: {', '.join(unused)}.")
    return words


__all__ = ["Findings", "StudyContext", "get", "names", "study"]
