"""How long to train: the epochs and steps of a recipe and budget, and ceilings where a cohort is large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bridgemil.learning.settings import BagSettings, with_min_steps
from bridgemil.methods.registry import budgets, recipes

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.methods.resolve import Settings

PARTS = ("stage1", "bags", "windows")  # of a budget


def length(recipe: str, budget: str) -> dict[str, Any]:
    """How long to train; a recipe may count its own steps. Ceilings are applied where a cohort needs them."""
    found = budgets()[budget] | recipes()[recipe].get("budgets", {}).get(budget, {})
    return {
        part: {name: value for name, value in values.items() if name != "max_steps"} if part in PARTS else values
        for part, values in found.items()
    }


def ceilings(chosen: Settings) -> dict[str, int]:
    """The largest number of steps of each stage in its recipe and budget; none in recipe ``paper``."""
    if chosen.recipe is None or chosen.budget is None or chosen.stage2 is None:
        return {}
    found = recipes()[chosen.recipe].get("budgets", {}).get(chosen.budget, {})
    parts = {"stage1": "stage1", "stage2": chosen.stage2.kind}
    return {stage: found[part]["max_steps"] for stage, part in parts.items() if "max_steps" in found.get(part, {})}


def limited(cohort: Cohort, chosen: Settings, further: int, user: Mapping[str, Any]) -> Settings:
    """The settings with the ceiling of steps of every stage that would take more on the whole cohort.

    So the settings, and hence the identities, of a cohort that needs no ceiling are those without one. Who sets the
    epochs means them.

    Parameters
    ----------
    cohort : Cohort
        Of which a fold trains on a part.
    chosen : Settings
        Of a network or baseline.
    further : int
        Windows of a second cohort that Stage 1 learns from.
    user : mapping
        The user's changes, by name.
    """
    found = {}
    for stage, most in ceilings(chosen).items():
        own = getattr(chosen, stage)
        if own is None or f"{stage}.epochs" in user or f"{stage}.max_steps" in user:
            continue
        if isinstance(own, BagSettings):
            steps = math.ceil(len(cohort) / own.batch_subjects)
        else:
            steps = math.ceil((cohort.n_windows + further * (stage == "stage1")) / own.batch_windows)
        if with_min_steps(own, steps).epochs * steps > most:
            found[stage] = own.model_copy(update={"max_steps": most})
    return chosen.model_copy(update=found) if found else chosen
