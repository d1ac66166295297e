"""Which runs of a folder make up a whole cross-validation: a folder may hold several, and they may share runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def whole_splits(runs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Of one experiment and seed (run.json by identity): the runs of each complete split, in the order of its folds.

    In a split each round validates on the next one's test subjects, and everyone is tested once. The first fold is the
    one that tests the first subject by name, so that the same split has the same order whoever ran it.
    """
    test = {identity: frozenset(about["test"]) for identity, about in runs.items()}
    validation = {identity: frozenset(about["validation"]) for identity, about in runs.items()}
    found: list[tuple[str, ...]] = []

    def walk(path: tuple[str, ...], left: frozenset[str]) -> None:
        if not left:
            if validation[path[-1]] == test[path[0]]:
                found.append(path)
            return
        for identity in runs:
            if test[identity] == validation[path[-1]] and test[identity] <= left:
                walk((*path, identity), left - test[identity])

    for identity, about in runs.items():
        everyone = frozenset((*about["train"], *about["validation"], *about["test"]))
        if min(everyone) in test[identity]:
            walk((identity,), everyone - test[identity])
    return found
