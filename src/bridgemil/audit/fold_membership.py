"""Is a subject, or one person under several subjects, on two sides of a split?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from bridgemil.audit.findings import AuditInput, Finding, pass_or_fail
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import some
from bridgemil.runs import latest

PERSONS = ("person", "patient", "participant", "individual", "family", "twin", "household")
FLAGS = {"0", "1", "0.0", "1.0", "yes", "no", "y", "n", "true", "false"}  # say whether, not who
SIDES = ("train", "validation", "test")
NEW_SPLIT = "make a new split: `bridgemil folds COHORT --out split.json`"


def check(inputs: AuditInput) -> list[Finding]:
    """Check the given split, the splits recorded with the runs, and every run's own lists of subjects."""
    return [_splits(inputs), *_run_lists(inputs), *_groups(inputs)]


def _splits(inputs: AuditInput) -> Finding:
    if not (n := len(inputs.splits) + len(inputs.refused_splits)):
        message = "No split was given (--split) or recorded with runs; `evaluate` assigns each subject to one fold."
        return Finding("folds", "SKIP", message)
    others, subjects = [], set(inputs.cohort.subjects)
    for name, plan in inputs.splits.items():
        planned = {subject for fold in plan.folds for subject in fold}
        if planned != subjects:
            absent, strange = sorted(subjects - planned), sorted(planned - subjects)
            others.append(f"{name}: not in the split: {some(absent)}; not in the cohort: {some(strange)}")
    checked, numbers = f"({n} split{'s' if n > 1 else ''} checked)", {"splits": n}
    if others and not inputs.refused_splits:
        message = f"A split has other subjects than the cohort {checked}."
        return Finding("folds", "WARN", message, others, NEW_SPLIT, numbers)
    success = f"Every subject is in one fold {checked}."
    failure = f"A split is invalid {checked}: test subjects may have been trained on."
    fix = f"{NEW_SPLIT}, and delete the runs of this one"
    return pass_or_fail("folds", [*inputs.refused_splits, *others], success, failure, fix, numbers)


def _run_lists(inputs: AuditInput) -> list[Finding]:
    """Whether a run's own lists share a subject, or the folds of one experiment test a subject twice."""
    if not inputs.runs:
        return []
    problems, tested = [], defaultdict[tuple[Any, ...], Counter[str]](Counter)
    for identity, metadata in inputs.runs.items():
        for first, second in combinations(SIDES, 2):
            if both := sorted(set(metadata.get(first) or ()) & set(metadata.get(second) or ())):
                problems.append(f"run {identity}: {some(both)} in {first} and {second}")
    for metadata in latest(inputs.runs).values():
        split = metadata.get("split") or {}
        if "part" not in split and split.get("hash") is not None:
            tested[metadata.get("settings_hash"), split["hash"], metadata["seed"]].update(metadata["test"])
    problems += [
        f"settings {str(settings)[:8]}, split {split}, seed {seed}: {some(names)} tested in two folds"
        for (settings, split, seed), counts in tested.items()
        if (names := sorted(subject for subject, count in counts.items() if count > 1))
    ]
    n = len(inputs.runs)
    success = f"No run trains, selects and tests on a common subject ({n} runs checked)."
    failure = f"Runs have a subject on two sides of their split ({n} runs checked)."
    fix = "delete these runs and run them again on a split of `bridgemil folds`"
    return [pass_or_fail("run_subjects", problems, success, failure, fix, {"runs": n})]


def _groups(inputs: AuditInput) -> list[Finding]:
    """Whether subjects that belong together (one person, a family, or the given column) stay in one fold."""
    columns, findings = related_columns(inputs), []
    for column in _named_alike(inputs):
        if column not in columns:
            why = "is not used: its values are few or shared by many."
            message = f"The column {column!r}, named like an identity, {why}"
            fix = f"if it does say who belongs together, keep them in one fold: --groups {column}"
            findings.append(Finding(f"groups_{column}", "INFO", message, (), fix, {"column": column}))
    for column in columns:
        if shared := {group: names for group, names in _members(inputs, column).items() if len(names) > 1}:
            findings.append(_group_finding(inputs, column, shared))
    return findings


def _group_finding(inputs: AuditInput, column: str, shared: Mapping[str, Sequence[str]]) -> Finding:
    n = sum(map(len, shared.values()))
    summary = f"{n} subjects share their {column!r} with another one ({len(shared)} groups)"
    numbers = {"column": column, "groups": len(shared), "subjects": n}
    fix = f"keep them in one fold: `bridgemil evaluate … --groups {column}` (or `bridgemil folds … --groups {column}`)"
    if not inputs.splits and not inputs.runs:
        lines = [f"{column} {group}: {some(members)}" for group, members in shared.items()]
        return Finding(f"groups_{column}", "WARN", f"{summary}; no split was given to check.", lines, fix, numbers)
    divided = [
        f"{name}: {column} {group} in folds {', '.join(map(str, folds))} ({some(members)})"
        for name, plan in inputs.splits.items()
        for group, members in shared.items()
        if len(folds := [i for i, fold in enumerate(plan.folds, 1) if set(fold) & set(members)]) > 1
    ]
    divided += [
        f"run {identity}: {column} {group} trains and tests ({some(members)})"
        for identity, metadata in inputs.runs.items()
        for group, members in shared.items()
        if set(members) & set(metadata["test"]) and set(members) & set(metadata["train"])
    ]
    success, failure = f"{summary}; each group stays in one fold.", f"{summary}, and are divided between folds."
    return pass_or_fail(f"groups_{column}", divided, success, failure, fix, numbers)


def related_columns(inputs: AuditInput) -> list[str]:
    """The given column, and those whose name and values say that equal ones are one person or family."""
    related = [] if inputs.options.groups is None else [inputs.options.groups]
    for column in _named_alike(inputs):
        members = _members(inputs, column)
        sizes = [len(names) for names in members.values()]
        n = sum(sizes)
        # Many values, each of few subjects; `family` may also say whether the disease runs in it.
        few_each = max(sizes, default=0) <= max(5, n / 5)
        if few_each and len(sizes) >= n / 4 and not {value.strip().lower() for value in members} <= FLAGS:
            related.append(column)
    return list(dict.fromkeys(related))


def _named_alike(inputs: AuditInput) -> list[str]:
    """Columns named like an identity of a person or family."""
    every = [c for c in inputs.cohort.table.columns if c not in ("subject", "label", "n_windows", "n_recordings")]
    return [c for c in every if c.lower().replace("-", "_").removesuffix("_id").removesuffix("_number") in PERSONS]


def _members(inputs: AuditInput, column: str) -> dict[str, list[str]]:
    """The subjects of each value of a column, which is refused if it is not there."""
    members: dict[str, list[str]] = defaultdict(list)
    for subject, value in zip(inputs.cohort.subjects, inputs.cohort.column(column), strict=True):
        if not is_missing(value):
            members[str(value)].append(subject)
    return members
