"""Leaks and shortcuts in cohorts and runs: everything that would make results look better than they are.

One file per check. Add one with a file that has ``check(inputs) -> list[Finding]`` and a line in ``CHECKS``.
"""

from __future__ import annotations

import importlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bridgemil.audit import fold_membership
from bridgemil.audit.findings import Audit, AuditInput, AuditOptions, Finding, as_warnings, refuse
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse, BridgeMILWarning
from bridgemil.runs import AuditWarning, RunStore, find_store
from bridgemil.storage.artifact import digest

__all__ = [
    "CHECKS", "Audit", "AuditInput", "AuditOptions", "Check", "Finding", "audit", "audit_runs", "guard",
    "quick_findings", "refuse", "store_quick_audit",
]  # fmt: skip

VERSION = 5  # of stored quick audits, raised by hand when a check changes
_AUDITED: dict[str, list[Finding]] = {}  # the quick audits of this process, by the key of the cohort


@dataclass(frozen=True)
class Check:
    """One kind of check: the module of that name has ``check``."""

    name: str
    description: str  # what it looks for
    cheap: bool = False  # whether `evaluate`, `benchmark`, `study` and `train` do it first
    findings: tuple[str, ...] = ()  # names of its findings, if not its own; * stands for a column or trait
    by_label: bool = False  # whether it needs two classes

    def run(self, inputs: AuditInput) -> list[Finding]:
        """The findings; a check of labels is skipped where there are fewer than two classes."""
        classes = inputs.cohort.classes
        if self.by_label and len(classes) < 2:
            state = f"one class only ({classes[0]})" if classes else "no labels"
            return [Finding((*self.findings, self.name)[0], "SKIP", f"Needs two classes, the cohort has {state}.")]
        findings: list[Finding] = importlib.import_module(f"{__name__}.{self.name}").check(inputs)
        return findings


CHECKS = (
    Check("same_signal", "duplicate signals across subjects", cheap=True),
    Check(
        "shared_recordings", "recordings, files and headers shared between subjects", True,
        ("same_time", "shared_files", "shared_header"),
    ),
    Check(
        "fold_membership", "subjects and groups on two sides of a split", False, ("folds", "groups_*", "run_subjects")
    ),
    Check(
        "provenance", "runs that saw their test subjects, by their own records",
        findings=("damaged_runs", "provenance", "selection", "stage1"),
    ),
    Check("recomputed", "runs that saw their test subjects, by recomputing them"),
    Check("shortcuts", "labels predicted by anything but EEG", True, ("shortcuts", "shortcut_*"), by_label=True),
    Check("reference", "classes with different references", True, ("reference_shortcut",), by_label=True),
    Check("acquisition", "implausible amplitudes and different low-pass filters", True, ("amplitude", "filter_edges")),
    Check("fingerprint", "subject identification from one window, and the leak of a split by window", by_label=True),
    Check("permutation", "a protocol above chance with shuffled labels", by_label=True),
    Check("size", "class balance, and too few subjects for conclusions", True, ("balance", "size"), by_label=True),
)  # fmt: skip


def audit(
    cohort: Cohort | str | Path,
    runs: str | Path | None = None,
    *,
    watch: Callable[[str], None] | None = None,
    **options: Any,
) -> Audit:
    """Look for leaks and shortcuts in a cohort, and in the runs of it.

    Parameters
    ----------
    cohort : Cohort, str or Path
        A cohort or its folder.
    runs : str or Path, optional
        A folder of runs, or of studies; runs of other cohorts are left alone.
    watch : callable, optional
        Called with what each check looks for, before it starts.
    **options : Any
        The fields of ``AuditOptions``: ``split``, ``groups``, ``difference``, ``permute``, ``permutations``,
        ``sample``, ``seed``.

    Returns
    -------
    Audit
        The findings, one or more per check.
    """
    begun, chosen = time.perf_counter(), AuditOptions(**options)
    opened = cohort if isinstance(cohort, Cohort) else Cohort.open(cohort)
    if chosen.groups is not None:
        opened.column(chosen.groups)  # refuses a column that is not there
    if runs is not None and not (Path(runs) / "runs").is_dir():
        raise BadUse(f"{runs}: no folder of runs; name the --out of `bridgemil evaluate`, `benchmark` or `study`")
    inputs = AuditInput(opened, None if runs is None else find_store(Path(runs)), chosen)
    findings = list[Finding]()
    for check in CHECKS:
        if watch is not None:
            watch(check.description)
        findings += check.run(inputs)
    name = str(opened.path) if opened.path is not None else "(in memory)"
    return Audit(name, "" if runs is None else str(runs), tuple(findings), time.perf_counter() - begun)


def quick_findings(cohort: Cohort) -> list[Finding]:
    """The checks of a cohort that take seconds: copies, shared recordings, shortcuts, acquisition, size."""
    inputs = AuditInput(cohort)
    return [finding for check in CHECKS if check.cheap for finding in check.run(inputs)]


def audit_runs(cohort: Cohort, runs: str | Path) -> list[Finding]:
    """The quick audit of a cohort, stored or done now, and the checks of its runs' own records; nothing is written."""
    store = find_store(Path(runs))
    inputs = AuditInput(cohort, store)
    of_runs = [check for check in CHECKS if check.name in ("fold_membership", "provenance")]
    return [*_quick(cohort, store.root), *(finding for check in of_runs for finding in check.run(inputs))]


def guard(
    plans: Mapping[Cohort, Sequence[FoldPlan]],
    runs: str | Path | None = None,
    accepted: Sequence[str] = (),
    watch: Callable[[str], None] | None = None,
) -> dict[str, tuple[AuditWarning, ...]]:
    """Do the quick audit of cohorts and their splits, and refuse those that fail it.

    An audit that is stored in the folder of ``runs`` is read; nothing is written there (see ``store_quick_audit``).
    ``accepted`` are names of findings whose risk is accepted; ``watch`` is called with the name of each cohort before
    it is audited. Returns the warnings of each cohort by its hash, WARN and accepted FAIL, to be written into every
    result.
    """
    possible = [name for check in CHECKS for name in check.findings or (check.name,)]
    for name in accepted:
        if not any(fnmatchcase(name, pattern) for pattern in possible):
            raise BadUse(f"--accept-risk {name}: no finding has that name; there are {', '.join(sorted(possible))}")
    found = {
        cohort.hash: _quick(cohort, runs, watch)
        + [f for plan in splits for f in fold_membership.check(AuditInput(cohort, None, AuditOptions(plan=plan)))]
        for cohort, splits in plans.items()
    }
    needed = {name for findings in found.values() for name in refuse(findings, accepted)}
    for name in sorted(set(accepted) - needed):
        warnings.warn(f"--accept-risk {name} is not needed: the cohort passes it", BridgeMILWarning, stacklevel=3)
    return {key: tuple(as_warnings(findings)) for key, findings in found.items()}


def store_quick_audit(cohort: Cohort, runs: str | Path) -> None:
    """Store the quick audit of a cohort, if this process did it, in the folder of its runs: resuming is then fast."""
    key, store = _key(cohort), RunStore(Path(runs))
    if key in _AUDITED:
        findings = [finding.to_dict() for finding in _AUDITED[key]]
        store.note("audits", key, {"cohort": cohort.hash, "findings": findings})


def _quick(cohort: Cohort, runs: str | Path | None, watch: Callable[[str], None] | None = None) -> list[Finding]:
    """The findings of ``quick_findings``: of this process, of RUNS/audits, or computed now."""
    key = _key(cohort)
    if key in _AUDITED:
        return _AUDITED[key]
    if runs is not None and key in (store := RunStore(Path(runs))).names("audits"):
        _AUDITED[key] = [Finding(**finding) for finding in store.record("audits", key)["findings"]]
    else:
        if watch is not None:
            watch("the cohort" if cohort.path is None else cohort.path.name)
        _AUDITED[key] = quick_findings(cohort)
    return _AUDITED[key]


def _key(cohort: Cohort) -> str:
    """Signals, labels, columns and files decide whether a cohort is the same."""
    rows = [{k: v for k, v in row.items() if k not in ("sums", "centred_squares")} for row in cohort.rows()]
    return digest([VERSION, cohort.hash, json.loads(json.dumps(rows, default=str)), cohort.metadata.get("files")])[:24]
