"""The protocol: which split an experiment follows."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.errors import BadData, BadUse


def fold_plan(
    cohort: Cohort,
    folds: int | None = None,
    split: FoldPlan | str | Path | None = None,
    groups: str | None = None,
    split_seed: int = 0,
) -> FoldPlan:
    """The saved split, or a new one.

    Parameters
    ----------
    cohort
        Whose subjects are dealt.
    folds
        How many folds; the cohort's own number by default.
    split
        A saved split (a plan, or a file of ``bridgemil folds``); it decides everything else.
    groups
        A column of the cohort; subjects of one group stay in one fold.
    split_seed
        Deals subjects to folds.
    """
    if len(cohort.classes) < 2:
        what = f"one class only ({cohort.classes[0]})" if cohort.classes else "no labels"
        raise BadData(
            f"{cohort.path or 'the cohort'}: has {what}, at least two classes are needed: prepare it together with "
            "subjects of another class, with their diagnoses in one column"
        )
    if split is None:
        together = cohort.column(groups) if groups else None
        return SubjectKFold(cohort.folds if folds is None else folds, split_seed).plan(
            cohort.subjects, cohort.labels, together, groups
        )
    if folds is not None or groups is not None or split_seed:
        raise BadUse("a saved split decides everything; leave --folds, --groups and --split-seed out")
    plan = split if isinstance(split, FoldPlan) else FoldPlan.load(split)
    plan.check(cohort.subjects)
    return plan


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """How many seeds, or which, as a list."""
    chosen = [int(s) for s in (range(int(seeds)) if isinstance(seeds, int | Integral) else seeds)]
    if not chosen or len(set(chosen)) < len(chosen) or not 0 <= min(chosen) <= max(chosen) < 2**32:
        raise BadUse(f"seeds must be one or more different whole numbers from 0 to {2**32 - 1}; got {seeds!r}")
    return chosen
