"""bridgemil: from EEG recordings to an honest subject-level diagnosis model.

The names below are loaded when first asked for, so that ``import bridgemil`` and ``bridgemil --help`` stay light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bridgemil.cohort.folds import FoldPlan, SubjectKFold
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.store import Cohort

_HOME = {
    "Cohort": "bridgemil.cohort.store",
    "FoldPlan": "bridgemil.cohort.folds",
    "SubjectKFold": "bridgemil.cohort.folds",
    "prepare": "bridgemil.cohort.prepare",
}

__all__ = ["Cohort", "FoldPlan", "SubjectKFold", "__version__", "prepare"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bridgemil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
