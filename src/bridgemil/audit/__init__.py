"""Leaks and shortcuts in cohorts and runs: what would make a number look better than it is.

One file a check. Add one with a file that has ``check(inputs) -> list[Finding]`` and a line below.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bridgemil.audit.findings import Audit, Finding, as_warnings, refuse
from bridgemil.audit.inputs import AuditInput, AuditOptions
from bridgemil.audit.memory import keep, remembered
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse, BridgeMILWarning
from bridgemil.runs import AuditWarning, find_store

__all__ = [
    "Audit",
    "AuditInput",
    "AuditOptions",
    "Check",
    "Finding",
    "audit",
    "cheap",
    "checks",
    "guard",
    "keep",
    "quick",
    "refuse",
]  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One kind of check: the module of that name has ``check``.

    Parameters
    ----------
    name
        Of the module.
    about
        What it looks for.
    cheap
        Whether ``evaluate``, ``benchmark`` and ``train`` do it first.
    finds
        What its findings are called, if not as itself; ``*`` stands for a column or trait.
    by_label
        Whether it needs subjects of two classes.
    """

    name: str
    about: str
    cheap: bool = False
    finds: tuple[str, ...] = ()
    by_label: bool = False

    def run(self, inputs: AuditInput) -> list[Finding]:
        """Do it; a check of labels is skipped where there are fewer than two classes."""
        if self.by_label and len(inputs.cohort.classes) < 2:
            known = f"one class only ({inputs.cohort.classes[0]})" if inputs.cohort.classes else "no labels"
            message = f"Needs two classes, the cohort has {known}."
            return [Finding((*self.finds, self.name)[0], "SKIP", message)]
        findings: list[Finding] = importlib.import_module(f"{__name__}.{self.name}").check(inputs)
        return findings


CHECKS = (
    Check("same_signal", "duplicate signals across subjects", cheap=True),
    Check("same_time", "windows of one stretch of one recording under two subjects", cheap=True),
    Check("identity", "files and headers shared between subjects", True, ("shared_files", "shared_header")),
    Check(
        "fold_membership", "subjects and groups on two sides of a split", True, ("folds", "groups_*", "run_subjects")
    ),
    Check(
        "provenance", "runs that saw their test subjects, by their own records",
        finds=("damaged_runs", "provenance", "selection", "stage1"),
    ),
    Check("recomputed", "runs that saw their test subjects, by computing them again"),
    Check("shortcuts", "labels predicted by what is no EEG", True, ("shortcuts", "shortcut_*"), by_label=True),
    Check("amplitude", "implausible amplitudes: wrong units or gains", cheap=True),
    Check("filter_edges", "subjects recorded with different low-pass filters", cheap=True),
    Check("fingerprint", "people recognised by a window, and the leak of a split by window", by_label=True),
    Check("permutation", "a protocol above chance with shuffled labels", by_label=True),
    Check("size", "class balance, chance, and too few people for the claim", True, ("balance", "size"), by_label=True),
)  # fmt: skip


def checks() -> list[Check]:
    """All checks, in the order in which they are done."""
    return list(CHECKS)


def audit(
    cohort: Cohort | str | Path,
    runs: str | Path | None = None,
    *,
    split: str | Path | None = None,
    groups: str | None = None,
    hope: float = 5.0,
    permute: str | None = None,
    permutations: int = 20,
    sample: int = 5,
    seed: int = 0,
    watch: Callable[[str], None] | None = None,
) -> Audit:
    """Look for leaks and shortcuts in a cohort, and in the runs of it.

    Parameters
    ----------
    cohort : Cohort, str or Path
        A cohort or its folder.
    runs : str or Path, optional
        A folder of runs, or of studies; runs of other cohorts are left alone.
    split : str or Path, optional
        A split file to check too.
    groups : str, optional
        A column of the cohort whose groups must stay in one fold.
    hope : float, default 5.0
        The difference of accuracy one hopes to show, in points.
    permute : str, optional
        A method to cross-validate with shuffled labels (``bandpower`` takes seconds).
    permutations : int, default 20
        How many times.
    sample : int, default 5
        How many runs are computed again at most.
    seed : int, default 0
        Of everything that is drawn.
    watch : callable, optional
        Called with what each check looks for, before it starts.

    Returns
    -------
    Audit
        The findings, one or more per check.
    """
    begun = time.perf_counter()
    options = AuditOptions(None if split is None else Path(split), groups, hope, permute, permutations, sample, seed)
    opened = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    if groups is not None:
        opened.column(groups)  # refuses a column that is not there
    store = None
    if runs is not None:
        if not (Path(runs) / "runs").is_dir():
            raise BadUse(f"{runs}: no folder of runs; name the --out of `bridgemil evaluate`, `benchmark` or `study`")
        store = find_store(Path(runs))
    findings = _findings(AuditInput(opened, store, options), CHECKS, watch)
    name = str(opened.path) if opened.path is not None else "(in memory)"
    return Audit(name, "" if runs is None else str(runs), tuple(findings), time.perf_counter() - begun)


def cheap(cohort: Cohort, options: AuditOptions | None = None) -> list[Finding]:
    """The quick part of an audit: copies, folds, files, shortcuts, size.

    Parameters
    ----------
    cohort
        What is audited.
    options
        A split or groups to check, and the like.
    """
    return _findings(AuditInput(cohort, None, options or AuditOptions()), [check for check in CHECKS if check.cheap])


def quick(cohort: Cohort, runs: str | Path) -> list[Finding]:
    """The quick part of an audit, remembered or done now, and what the runs' own records say; nothing is written.

    Parameters
    ----------
    cohort
        What is audited.
    runs
        A folder of runs; those of other cohorts are left alone.
    """
    store = find_store(Path(runs))
    of_runs = [check for check in CHECKS if check.name in ("fold_membership", "provenance")]
    return [*_without_folds(remembered(cohort, store.root, cheap)), *_findings(AuditInput(cohort, store), of_runs)]


def guard(
    plans: Mapping[Cohort, Sequence[FoldPlan]],
    runs: str | Path | None = None,
    accepted: Sequence[str] = (),
    watch: Callable[[str], None] | None = None,
) -> dict[str, tuple[AuditWarning, ...]]:
    """Do the quick audit of cohorts unless it is remembered, and refuse those that fail it.

    Parameters
    ----------
    plans
        What is to be trained on, each with the splits that will be followed.
    runs
        The folder of runs, where the findings may have been kept; nothing is written there (see ``keep``).
    accepted
        Names of findings whose risk is accepted.
    watch
        Called with the name of each cohort that is not remembered, before it is audited.

    Returns
    -------
    dict
        Cohort hash to its warnings, each WARN and each accepted FAIL: to be written into every result.
    """
    from bridgemil.audit import fold_membership

    possible = [name for check in CHECKS for name in check.finds or (check.name,)]
    for name in accepted:
        if not any(fnmatchcase(name, pattern) for pattern in possible):
            raise BadUse(f"--accept-risk {name}: no finding has that name; there are {', '.join(sorted(possible))}")

    def look(cohort: Cohort) -> list[Finding]:
        if watch is not None:
            watch("the cohort" if cohort.path is None else cohort.path.name)
        return cheap(cohort)

    findings = {}
    for cohort, splits in plans.items():
        known = _without_folds(remembered(cohort, runs, look))
        for plan in splits:
            known += fold_membership.check(AuditInput(cohort, None, AuditOptions(plan=plan)))
        findings[cohort.hash] = known
    needed = {name for known in findings.values() for name in refuse(known, accepted)}
    for name in sorted(set(accepted) - needed):
        message = f"--accept-risk {name} is not needed: the cohort does not fail it"
        warnings.warn(message, BridgeMILWarning, stacklevel=3)
    return {key: tuple(as_warnings(known)) for key, known in findings.items()}


def _without_folds(findings: Sequence[Finding]) -> list[Finding]:
    """What is known of a cohort whatever the split."""
    return [finding for finding in findings if finding.name != "folds" and not finding.name.startswith("groups_")]


def _findings(
    inputs: AuditInput, chosen: tuple[Check, ...] | list[Check], watch: Callable[[str], None] | None = None
) -> list[Finding]:
    findings = []
    for check in chosen:
        if watch is not None:
            watch(check.about)
        findings += check.run(inputs)
    return findings
