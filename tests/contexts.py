"""Contexts for tests of studies: small cohorts, few epochs, and runs in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.execute import Where
from bridgemil.evaluation.protocol import Protocol
from bridgemil.studies import StudyContext

QUICK = {"stage1.epochs": 1, "stage1.subbag_pairs": 4, "stage2.epochs": 2, "stage2.burn_in": 0}


def quick_context(cohort: Cohort, out: Path, **more: Any) -> StudyContext:
    """Three folds of a demo that ends at once, trained as the paper does."""
    usual: dict[str, Any] = {"backbone": "eegnet", "recipe": "paper", "budget": "demo", "folds": 3, "settings": QUICK}
    own = {name: more.pop(name) for name in ("split_seeds", "options") if name in more}
    where = Where("inline", device="cpu")
    return StudyContext((cohort,), out, Protocol(**usual | more), **own, where=where, progress=False)


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that is not hidden."""
    shown = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in shown}
