"""What decides a run's result, or a Stage 1 encoder: their names on disk."""

from __future__ import annotations

import re
from typing import Any

from bridgemil.cohort.folds import Fold
from bridgemil.methods import Settings, digest

IDENTITY = re.compile("[0-9a-f]{24}")
# Raised by hand when the same settings would give other numbers, or a run's record changes its form.
# 2: a run is a fitted model with its split; folds count from 1; windows are a table.
# 3: windows on either side of a gap (left out as bad, a boundary) are no longer nearby for Stage 1.
# 4: EEGNet and DSAINet sum in blocks of windows: the same up to rounding, which training enlarges.
# 5: what selects no epoch trains on k - 1 folds; averaged weights have batch-norm statistics of their own; bands that
#    the preparation's filters removed are no features.
RESULTS_VERSION = 5


def run_identity(settings: Settings, cohort_hash: str, subjects: Fold, seed: int) -> str:
    """Everything that decides a run's result; not the device, threads, paths or the fold's number."""
    who: list[Any] = [sorted(subjects.train), sorted(subjects.validation), sorted(subjects.test)]
    who += _kept(subjects, {*subjects.train, *subjects.validation, *subjects.test})
    return digest([settings.changed, cohort_hash, who, seed, RESULTS_VERSION])[:24]


def stage1_identity(settings: Settings, cohort_hash: str, subjects: Fold, seed: int) -> str | None:
    """What decides a Stage 1 encoder: runs that would train the same one share it. None without a Stage 1."""
    if settings.stage1 is None:
        return None
    changed = settings.changed
    network = [changed["backbone"], settings.backbone_options, settings.code]
    who: list[Any] = [sorted(subjects.train), *_kept(subjects, set(subjects.train))]
    return digest([changed["stage1"], network, cohort_hash, *who, seed, RESULTS_VERSION])[:24]


def _kept(subjects: Fold, who: set[str]) -> list[Any]:
    """Which windows of these people are used; nothing where all are."""
    kept = {subject: list(rows) for subject, rows in subjects.kept.items() if subject in who}
    return [kept] if kept else []
