"""The paper's numbers, where cohort, backbone, recipe and budget are the paper's."""

from __future__ import annotations

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.settings import changed_from_preset
from bridgemil.report.benchmark import paper
from bridgemil.studies.context import StudyContext


def comparable(context: StudyContext, cohort: Cohort) -> bool:
    """Whether the paper's numbers may stand beside this cohort's."""
    theirs = paper()["cohorts"].get(cohort.about["source"])
    return (
        theirs is not None
        and context.backbone == "eegnet"
        and context.used_recipe == context.budget == "paper"
        and sorted(cohort.classes) == theirs["classes"]
        and len(cohort) == theirs["subjects"]
        and not changed_from_preset(cohort.about["source"], cohort.about.get("settings", {}))
        and abs(cohort.n_windows - theirs["windows"]) <= 0.05 * theirs["windows"]
        and context.split_seeds == (0,)
        and not context.changes
        and context.folds in (None, theirs["folds"])
        and context.groups is None
    )


def notes(context: StudyContext) -> list[str]:
    """What to know of the paper's numbers where they stand beside ours."""
    seeds = int(paper()["seeds"])
    if len(context.seeds) == seeds or not any(comparable(context, cohort) for cohort in context.cohorts):
        return []
    return [f"The paper's numbers are means over {seeds} seeds; here it is {len(context.seeds)}."]


def number(context: StudyContext, cohort: Cohort, table: str, *keys: str) -> tuple[float, float] | None:
    """Mean and standard deviation of a table's cell; None where it has none or must not be compared.

    Parameters
    ----------
    context, cohort
        Whose number it would stand beside.
    table
        ``main``, ``ablation`` or ``sensitivity``.
    keys
        What leads to the cell within the cohort (and, in ``main``, the backbone).
    """
    if not comparable(context, cohort):
        return None
    place = paper()[table].get(cohort.about["source"], {})
    for key in ("eegnet", *keys) if table == "main" else keys:
        place = place.get(key, {})
    return (float(place[0]), float(place[1])) if place else None
