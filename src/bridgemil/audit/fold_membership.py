"""Is a subject, or one person under several subjects, on two sides of a split?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.tables import is_missing

NAME = "folds"
PERSONS = ("person", "patient", "participant", "individual", "family", "twin", "household")
FLAGS = {"0", "1", "0.0", "1.0", "yes", "no", "y", "n", "true", "false"}  # say whether, not who
SIDES = ("train", "validation", "test")


def check(inputs: AuditInput) -> list[Finding]:
    """Look at the split that was named, at the splits noted with the runs, and at every run's own lists."""
    return [_splits(inputs), *_run_lists(inputs), *_groups(inputs)]


def _splits(inputs: AuditInput) -> Finding:
    looked = len(inputs.splits) + len(inputs.refused_splits)
    if not looked:
        message = (
            "No split was given (--split) and none is noted with runs; `evaluate` assigns each subject to one fold."
        )
        return Finding(NAME, "SKIP", message)
    strange_plans, known = [], set(inputs.cohort.subjects)
    for name, plan in inputs.splits.items():
        planned = {subject for fold in plan.folds for subject in fold}
        if planned != known:
            absent, strange = sorted(known - planned), sorted(planned - known)
            strange_plans.append(f"{name}: not in the split: {_some(absent)}; not in the cohort: {_some(strange)}")
    n = f"{looked} split{'s' if looked > 1 else ''}"
    numbers = {"splits": looked}
    if inputs.refused_splits:
        fix = "make a new split (`bridgemil folds COHORT --out split.json`), and delete what was run on this one"
        message = f"A split is invalid ({n} checked): test subjects may have been trained on."
        return Finding(NAME, "FAIL", message, shortened(inputs.refused_splits + strange_plans), fix, numbers)
    if strange_plans:
        message = f"A split is for other subjects than the cohort's ({n} looked at)."
        fix = "make a new split: `bridgemil folds COHORT --out split.json`"
        return Finding(NAME, "WARN", message, shortened(strange_plans), fix, numbers)
    return Finding(NAME, "PASS", f"Every subject is in one fold ({n} looked at).", numbers=numbers)


def _run_lists(inputs: AuditInput) -> list[Finding]:
    """Whether a run's own lists share a subject, or the folds of one experiment test a subject twice."""
    if not inputs.runs:
        return []
    wrong, tested = [], dict[tuple[Any, ...], Counter[str]]()
    for identity, about in inputs.runs.items():
        for first, second in combinations(SIDES, 2):
            both = sorted(set(about.get(first) or ()) & set(about.get(second) or ()))
            if both:
                wrong.append(f"run {identity}: {_some(both)} in {first} and {second}")
        split = about.get("split") or {}
        if "part" not in split:
            key = (about.get("settings_hash"), split.get("hash"), about["seed"])
            tested.setdefault(key, Counter()).update(about["test"])
    twice = [
        f"settings {str(key[0])[:8]}, split {key[1]}, seed {key[2]}: {_some(names)} tested in two folds"
        for key, counts in tested.items()
        if (names := sorted(s for s, count in counts.items() if count > 1)) and key[1] is not None
    ]
    name, n = "run_subjects", len(inputs.runs)
    if wrong or twice:
        message = f"Runs name a subject on two sides of their border ({n} runs looked at)."
        fix = "delete these runs and run them again on a split of `bridgemil folds`"
        return [Finding(name, "FAIL", message, shortened(wrong + twice), fix, {"runs": n})]
    message = f"No run trains, selects and tests on a common subject ({n} runs looked at)."
    return [Finding(name, "PASS", message, numbers={"runs": n})]


def _groups(inputs: AuditInput) -> list[Finding]:
    """Whether subjects that belong together (one person, a family, or the column that was named) stay in one fold."""
    columns = related_columns(inputs)
    findings = [_doubtful(column) for column in _named_alike(inputs) if column not in columns]
    for column in columns:
        together = _members(inputs, column)
        shared = {group: names for group, names in together.items() if len(names) > 1}
        if not shared:
            continue
        torn = [
            f"{name}: {column} {group} in folds {', '.join(map(str, folds))} ({_some(members)})"
            for name, plan in inputs.splits.items()
            for group, members in shared.items()
            if len(folds := _folds_of(plan.folds, members)) > 1
        ]
        torn += [
            f"run {identity}: {column} {group} trains and tests ({_some(members)})"
            for identity, about in inputs.runs.items()
            for group, members in shared.items()
            if set(members) & set(about["test"]) and set(members) & set(about["train"])
        ]
        findings.append(_group_finding(inputs, column, shared, torn))
    return findings


def _group_finding(
    inputs: AuditInput, column: str, shared: Mapping[str, Sequence[str]], torn: Sequence[str]
) -> Finding:
    n = sum(map(len, shared.values()))
    about = f"{n} subjects share their {column!r} with another one ({len(shared)} groups)"
    numbers = {"column": column, "groups": len(shared), "subjects": n}
    fix = f"keep them in one fold: `bridgemil evaluate … --groups {column}` (or `bridgemil folds … --groups {column}`)"
    name = f"groups_{column}"
    if torn:
        return Finding(name, "FAIL", f"{about}, and are on both sides of a border.", shortened(torn), fix, numbers)
    if not inputs.splits and not inputs.runs:
        lines = [f"{column} {group}: {_some(members)}" for group, members in shared.items()]
        return Finding(name, "WARN", f"{about}; no split was given to check.", shortened(lines), fix, numbers)
    return Finding(name, "PASS", f"{about}; each group stays on one side.", numbers=numbers)


def _doubtful(column: str) -> Finding:
    message = f"The column {column!r} is called like an identity, but its values are few or shared by many: left alone."
    fix = f"if it does say who belongs together, keep them in one fold: --groups {column}"
    return Finding(f"groups_{column}", "INFO", message, (), fix, {"column": column})


def related_columns(inputs: AuditInput) -> list[str]:
    """The column that was named, and those whose name and values say that equal ones are one person or family."""
    named = [] if inputs.options.groups is None else [inputs.options.groups]
    if named:
        inputs.cohort.column(named[0])  # refuses a column that is not there
    alike = [column for column in _named_alike(inputs) if _is_identity(_members(inputs, column))]
    return list(dict.fromkeys([*named, *alike]))


def _named_alike(inputs: AuditInput) -> list[str]:
    """Columns called like what equal values would make one person or family."""
    every = [c for c in inputs.cohort.table.columns if c not in ("subject", "label", "n_windows", "n_recordings")]
    return [c for c in every if c.lower().replace("-", "_").removesuffix("_id").removesuffix("_number") in PERSONS]


def _is_identity(together: Mapping[str, Sequence[str]]) -> bool:
    """Whether there are many values, each of few subjects; `family` may also say whether the disease runs in it."""
    sizes = [len(names) for names in together.values()]
    n = sum(sizes)
    few_each = max(sizes, default=0) <= max(5, n / 5)
    return few_each and len(sizes) >= n / 4 and not {value.strip().lower() for value in together} <= FLAGS


def _members(inputs: AuditInput, column: str) -> dict[str, list[str]]:
    together: dict[str, list[str]] = defaultdict(list)
    for subject, value in zip(inputs.cohort.subjects, inputs.cohort.column(column), strict=True):
        if not is_missing(value):
            together[str(value)].append(subject)
    return together


def _folds_of(folds: Sequence[Sequence[str]], members: Sequence[str]) -> list[int]:
    return [number for number, fold in enumerate(folds, 1) if set(fold) & set(members)]


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "none"
