"""The studies: each is a grid for the engine, a table and a figure. Add one with a file and a line.

A study is a module with ``ABOUT`` (a sentence), ``OPTIONS`` (the names of its own options) and ``perform(desk)``, which
runs what it needs and says what came out.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from bridgemil.errors import one_of
from bridgemil.evaluation.results import accepted_words
from bridgemil.report.benchmark_table import counted
from bridgemil.studies import published, truth
from bridgemil.studies.desk import Desk
from bridgemil.studies.findings import Findings

_STUDIES = ("reliability", "scarcity", "representation", "ablation", "sensitivity", "learning_curve")


def names() -> list[str]:
    """The studies."""
    return list(_STUDIES)


def get(name: str) -> Any:
    """The module of a study."""
    one_of("study", name, _STUDIES)
    return importlib.import_module(f"{__name__}.{name}")


def study(name: str, desk: Desk) -> Findings:
    """Run a study, or go on with it, and write its tables and figures into ``desk.out / name``.

    Parameters
    ----------
    name
        One of ``names()``.
    desk
        What to run it on, and how.
    """
    module = get(name)
    desk.refuse_foreign(name, module.OPTIONS)
    if desk.truth is not None:
        for cohort in desk.cohorts:
            truth.evidence(desk, cohort)  # a wrong folder is better noticed before hours of work
    said: Findings = module.perform(desk)
    risks = [
        f"{desk.name(cohort)}: {accepted_words(desk.risks[cohort.hash])}"
        for cohort in desk.cohorts
        if desk.risks[cohort.hash]
    ]
    findings = replace(
        said, sentences=[*risks, *said.sentences], footnotes=[*said.footnotes, *published.notes(desk), *_about(desk)]
    )
    findings.write(desk.out / name)
    return findings


def _about(desk: Desk) -> list[str]:
    """Of what and how the study is, so that findings.md can stand alone."""
    cohorts = ", ".join(f"{desk.name(cohort)} ({len(cohort)} subjects)" for cohort in desk.cohorts)
    counts = f"{counted(len(desk.seeds), 'seed')}, {counted(len(desk.split_seeds), 'split')}"
    words = [f"Cohorts: {cohorts}; {counts}."]
    if desk.changes:
        words.append(f"Set by hand: {', '.join(f'{key} = {value}' for key, value in desk.changes.items())}.")
    return words


__all__ = ["Desk", "Findings", "get", "names", "study"]
