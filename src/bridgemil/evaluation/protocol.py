"""The protocol: which split an experiment follows, and its results from finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import Results
from bridgemil.methods import Settings
from bridgemil.runs import RunStore

if TYPE_CHECKING:
    import pandas as pd


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


def gather(
    store: RunStore, identities: Sequence[str], settings: Settings, plan: FoldPlan, rounds: int | None = None
) -> Results:
    """The results of an experiment's finished runs, given fold by fold for each seed.

    A run may belong to several splits; what it is called here is its place in this one. ``rounds`` of the plan were
    run, all by default. An audit warning of this cohort and split, from any call, is a warning of these results.
    """
    import pandas as pd

    predictions, curves, marks, seconds = [], [], list[dict[str, int]](), 0.0
    classes: list[str] = []
    for place, identity in enumerate(identities):
        about = store.metadata(identity)
        mark = {"seed": about["seed"], "fold": place % (rounds or plan.k) + 1}
        predictions.append(store.predictions(identity).assign(**mark))
        curves.append(_marked(store.curves(identity), mark))
        marks.append(mark)
        seconds += float(about["seconds"])
        classes = about["cohort"]["classes"]

    def windows() -> pd.DataFrame:
        pairs = zip(identities, marks, strict=True)
        return _concat([_marked(store.windows(identity), mark) for identity, mark in pairs])

    return Results(
        settings, classes, pd.concat(predictions, ignore_index=True), _concat(curves), list(identities), seconds,
        plan.about | {"title": plan.title}, warnings=store.warnings(about["cohort"]["hash"], plan.hash),
        bands_left_out=about.get("bands_left_out") or {}, _windows=windows,
    )  # fmt: skip


def _marked(table: pd.DataFrame, mark: dict[str, int]) -> pd.DataFrame:
    """Seed and fold in front."""
    if table.empty:
        return table
    rest = [name for name in table.columns if name not in mark]
    return table.assign(**mark)[[*mark, *rest]]


def _concat(tables: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
