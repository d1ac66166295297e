"""The studies: each is a grid of runs, tables, sentences and figures.

Add a study with one file, a module with ``perform(context)`` that returns ``Findings``, and one entry of ``STUDIES``
with its description and its own options, which the command line and its help read.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bridgemil.errors import BadUse
from bridgemil.registry import Entry, Registry

if TYPE_CHECKING:
    from bridgemil.studies.context import StudyContext
    from bridgemil.studies.findings import Findings


@dataclass(frozen=True)
class Option:
    """An option of one study, ``--NAME`` on the command line."""

    help: str  # one line for help texts
    kind: str = "text"  # or names, numbers (comma-separated), number, flag, values (``key=value,value``)


@dataclass(frozen=True)
class Study(Entry):
    """A study: its description, its module, and its own options by name."""

    flags: Mapping[str, Option] = field(default_factory=dict)


METHOD = Option("which method.")
STUDIES = Registry("study", __name__, {
    "reliability": Study("windows against the diagnosis they inherit, RQ2", "reliability", flags={
        "top": Option("K of Top-K, comma-separated.  [default: 20,50,100,200]", "numbers"),
        "nested": Option("rank by models that never saw the test subjects; ten times slower.", "flag"),
    }),
    "scarcity": Study("fewer subjects or fewer windows, RQ3", "scarcity"),
    "representation": Study("t-SNE maps of the windows after each stage, RQ4", "representation"),
    "ablation": Study("bridgemil without its parts", "ablation", flags={
        "variants": Option("which, comma-separated.  [default: all]", "names"),
    }),
    "sensitivity": Study("one setting at a time", "sensitivity", flags={
        "vary": Option("a setting and its values, stage2.retention=0,1e-5,1e-2.", "values"),
        "method": METHOD,
    }),
    "learning_curve": Study("the expected gain of more subjects", "learning_curve", flags={
        "method": METHOD,
        "sizes": Option("numbers of training subjects, comma-separated.", "numbers"),
        "draws": Option("random training sets of each size.  [default: 3]", "number"),
    }),
    "transfer": Study("every training site against every test site", "transfer", flags={
        "method": METHOD,
        "column": Option("which column holds the site.  [default: site]"),
    }),
})  # fmt: skip


def names() -> list[str]:
    """Names of the studies.

    Returns
    -------
    list of str
    """
    return list(STUDIES)


def flags() -> dict[str, tuple[Option, list[str]]]:
    """The own options of all studies by name, each with the studies that have it."""
    found: dict[str, tuple[Option, list[str]]] = {}
    for name in STUDIES:
        for flag, option in STUDIES[name].flags.items():
            found.setdefault(flag, (option, []))[1].append(name)
    return found


def study(name: str, context: StudyContext) -> Findings:
    """Run a study, or resume it, and write its tables and figures into ``context.out / name``.

    Parameters
    ----------
    name : str
        One of ``names()``.
    context : StudyContext
        Cohorts, training settings and where to run.

    Returns
    -------
    Findings
        Sentences, tables (data frames) and figures.

    Examples
    --------
    >>> study("ablation", StudyContext((cohort,), Path("studies"), split_seeds=(0, 1, 2)))  # doctest: +SKIP
    """
    import matplotlib as mpl

    own = STUDIES[name].flags
    for option, value in context.options.items():
        if value is not None and option not in own:
            known = ", ".join(f"--{flag.replace('_', '-')}" for flag in own) or "none"
            raise BadUse(f"--{option.replace('_', '-')} is no option of the study {name}; its own: {known}")
    context = replace(context)  # a context of this study alone: it notes which settings were used
    _ = context.evidence  # a wrong --truth is refused before hours of work
    with mpl.rc_context({"text.parse_math": False}):  # a class may be called $x
        findings = context.explained(STUDIES.load(name).perform(context))
        findings.write(context.out / name)
    return findings


def __getattr__(name: str) -> Any:  # the help of the command line needs the registry alone
    file = {"StudyContext": "context", "Findings": "findings"}.get(name)
    if file is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{file}"), name)


__all__ = ["STUDIES", "Findings", "Option", "Study", "StudyContext", "names", "study"]
