"""Nested tuning: settings chosen by cross-validation within the training subjects of a fold.

The candidates are compared by the Brier score of the held-out subjects of the inner folds. By the one-standard-error
rule (Breiman et al., 1984) the simplest candidate is chosen whose score is within one standard error, over subjects, of
the lowest: a difference smaller than that is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadUse
from bridgemil.evaluation import metrics
from bridgemil.evaluation.sites import harmonised
from bridgemil.methods import Settings
from bridgemil.methods.registry import HARMONISATION

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from bridgemil.evaluation.run import Run
    from bridgemil.learning.loop import Watch
    from bridgemil.runs import RunStore

PART = "inner fold"  # such runs are in no table of a report


def tuned(make: Callable[[Mapping[str, Any]], Settings], tune: Mapping[str, Sequence[Any]]) -> Settings:
    """The settings ``make({})`` with their candidates, all combinations of the values of ``tune``, simplest first.

    ``make`` gives settings from changes (``{"stage2.lr": 1e-3}``). The values of a setting are ordered from the
    simplest: its default, if it is among them, then as they are given. A candidate is the simpler, the smaller the sum
    of these places. The members of an ensemble have candidates each.
    """
    if wrong := [key for key in tune if key in HARMONISATION]:
        raise BadUse(
            f"{', '.join(wrong)} cannot be tuned: by whom features are adjusted, and who is scored, is settled before "
            "a fold chooses; evaluate each value by itself (--set KEY=VALUE, --adjust)"
        )
    base = make({})
    grids, unknown = methods.shares([member.source for member in base.each], {k: list(own) for k, own in tune.items()})
    if unknown:
        raise BadUse(f"{base.method} has no setting {unknown[0]} that could be tuned")
    members = [_with_candidates(make, base, place, grid) for place, grid in enumerate(grids.values())]
    return base.model_copy(update={"members": tuple(members)}) if base.members else members[0]


def _with_candidates(
    make: Callable[[Mapping[str, Any]], Settings], base: Settings, place: int, grid: Mapping[str, list[Any]]
) -> Settings:
    member = base.each[place]
    if not grid:
        return member
    ranked = [  # of each setting its values, each with its place
        [(0 if make({key: value}).each[place] == member else i, value) for i, value in enumerate(values, 1)]
        for key, values in grid.items()
    ]
    simplest_first = sorted(product(*ranked), key=lambda combination: sum(rank for rank, _ in combination))
    every = [{key: value for key, (_, value) in zip(grid, one, strict=True)} for one in simplest_first]
    candidates = tuple((changes, make(changes).each[place]) for changes in every)
    if len(candidates) < 2:
        raise BadUse(f"there is nothing to choose: give {', '.join(grid)} two values or more")
    if any(settings.selects != member.selects for _, settings in candidates):
        raise BadUse("stage2.selection decides who trains; it cannot be tuned")
    return member.model_copy(update={"tune": dict(grid), "candidates": candidates})


def choose(run: Run, store: RunStore, device: torch.device, watch: Watch | None = None) -> dict[str, Any]:
    """The candidate that the training subjects of a run choose, and how all of them did.

    Every inner fit is a run of its own in the store, so that an interrupted choice resumes. The test subjects of
    ``run`` are neither trained on nor predicted.

    Returns
    -------
    dict
        ``chosen`` (the place of the candidate), ``candidates`` (of each ``changes``, ``brier``, ``se``), ``inner`` (the
        subjects of each inner fold) and ``seconds``.
    """
    seconds, rows = 0.0, list[dict[str, Any]]()
    for changes, candidate in run.settings.candidates:
        losses = []
        for fold in FoldPlan(run.fold.inner).cv_folds(candidate.selects):
            adjusted = harmonised(fold, run.cohort, candidate) if candidate.harmonises else fold
            split = {**(run.split or {}), "part": f"{PART} {fold.number} of fold {run.fold.number}"}
            inner = replace(run, fold=adjusted, settings=candidate, split=split)
            identity = inner.perform(store, device, watch)
            losses.append(brier(store.predictions(identity), run.cohort.classes))
            seconds += float(store.metadata(identity)["seconds"])
        loss = np.concatenate(losses)
        error = loss.std(ddof=1) / np.sqrt(len(loss))
        rows.append({"changes": dict(changes), "brier": float(loss.mean()), "se": float(error)})
    chosen = simplest_within_one_error([row["brier"] for row in rows], [row["se"] for row in rows])
    parts = [list(part) for part in run.fold.inner]
    return {"chosen": chosen, "candidates": rows, "inner": parts, "seconds": seconds}


def brier(predictions: pd.DataFrame, classes: Sequence[str]) -> NDArray[np.float64]:
    """Brier score of each subject: the squared distance of its probabilities from its class, between 0 and 2."""
    p, y = metrics.labelled(predictions, classes)
    return np.asarray(np.square(p - np.eye(len(classes))[y]).sum(axis=1))


def simplest_within_one_error(scores: Sequence[float], errors: Sequence[float]) -> int:
    """The place of the first score that is at most one standard error above the lowest; the simplest come first."""
    best = int(np.argmin(scores))
    return next(place for place, score in enumerate(scores) if score <= scores[best] + errors[best])


def choice(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a run chose, from ``tuning`` of its record: ``chosen``, ``brier``, ``lowest``, ``se`` and ``candidates``."""
    rows = record["candidates"]
    chosen, best = rows[record["chosen"]], min(rows, key=lambda row: row["brier"])
    found = {"chosen": chosen["changes"], "brier": chosen["brier"], "lowest": best["changes"]}
    return found | {"lowest_brier": best["brier"], "se": best["se"], "candidates": rows}
