"""bridgemil: from EEG recordings to an honest subject-level diagnosis model.

The names below are loaded when first asked for, so that ``import bridgemil`` and ``bridgemil --help`` stay light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bridgemil import aggregators, backbones, baselines, bundle, methods, models, pretraining
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.cohort.folds import FoldPlan, SubjectKFold
    from bridgemil.cohort.prepare import prepare
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.estimator import BridgeMILClassifier

_PARTS = ("aggregators", "backbones", "baselines", "bundle", "methods", "models", "pretraining")
_HOME = {
    "BridgeMILClassifier": "bridgemil.estimator",
    "Cohort": "bridgemil.cohort.cohort",
    "FoldPlan": "bridgemil.cohort.folds",
    "SubjectKFold": "bridgemil.cohort.folds",
    "evaluate": "bridgemil.engine.evaluate",
    "prepare": "bridgemil.cohort.prepare",
}

__all__ = [
    "BridgeMILClassifier",
    "Cohort",
    "FoldPlan",
    "SubjectKFold",
    "__version__",
    "aggregators",
    "backbones",
    "baselines",
    "bundle",
    "evaluate",
    "methods",
    "models",
    "prepare",
    "pretraining",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"bridgemil.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bridgemil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
