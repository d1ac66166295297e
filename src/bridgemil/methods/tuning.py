"""The candidates of nested tuning: all combinations of the values that ``evaluate --tune`` names, simplest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from bridgemil.errors import BadUse
from bridgemil.methods.registry import has_setting
from bridgemil.methods.resolve import Settings

Make = Callable[[Mapping[str, Any]], Settings]


def tuned(make: Make, tune: Mapping[str, Sequence[Any]]) -> Settings:
    """Settings with their candidates; of an ensemble, each member with those of its own settings.

    The values of a setting are ordered from the simplest: its default, if it is among them, then as they are given. A
    candidate is the simpler, the smaller the sum of these places.

    Parameters
    ----------
    make : callable
        From changes (``{"stage2.lr": 1e-3}``) to settings.
    tune : mapping of str to sequence
        Values of each setting.

    Returns
    -------
    Settings
        As ``make({})`` gives them, with ``candidates``.
    """
    base = make({})
    grids = [{key: list(values) for key, values in tune.items() if has_setting(m.source, key)} for m in base.each]
    if unknown := [key for key in tune if not any(key in grid for grid in grids)]:
        raise BadUse(f"{base.method} has no setting {unknown[0]} that could be tuned")
    members = [_with_candidates(make, base, place, grid) for place, grid in enumerate(grids)]
    return base.model_copy(update={"members": tuple(members)}) if base.members else members[0]


def _with_candidates(make: Make, base: Settings, place: int, grid: Mapping[str, list[Any]]) -> Settings:
    member = base.each[place]
    if not grid:
        return member
    default = {key: [make({key: value}).each[place] == member for value in values] for key, values in grid.items()}
    found: list[tuple[int, dict[str, Any], Settings]] = []
    for places in product(*(range(len(values)) for values in grid.values())):
        changes = {key: values[i] for (key, values), i in zip(grid.items(), places, strict=True)}
        rank = sum(0 if default[key][i] else i + 1 for key, i in zip(grid, places, strict=True))
        found.append((rank, changes, make(changes).each[place]))
    candidates = tuple((changes, settings) for _, changes, settings in sorted(found, key=lambda one: one[0]))
    if len(candidates) < 2:
        raise BadUse(f"there is nothing to choose: give {', '.join(grid)} two values or more")
    if any(settings.selects != member.selects for _, settings in candidates):
        raise BadUse("stage2.selection decides who trains; it cannot be tuned")
    return member.model_copy(update={"tune": dict(grid), "candidates": candidates})
