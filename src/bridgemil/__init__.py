"""bridgemil: subject-level diagnosis from EEG, from raw recordings to an evaluated, calibrated model.

The public names are documented in docs/api.md. They are loaded on first use, so that ``import bridgemil`` and
``bridgemil --help`` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from bridgemil import (
        aggregators,
        audit,
        backbones,
        baselines,
        bundle,
        datasets,
        methods,
        models,
        pretraining,
        studies,
        verify,
    )
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.cohort.folds import FoldPlan, SubjectKFold
    from bridgemil.cohort.pool import pool
    from bridgemil.cohort.prepare import prepare
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.errors import Exclude
    from bridgemil.estimator import BridgeMILClassifier
    from bridgemil.evaluation.protocol import Protocol

_HOME = {
    "BridgeMILClassifier": "bridgemil.estimator",
    "Cohort": "bridgemil.cohort.cohort",
    "Exclude": "bridgemil.errors",
    "FoldPlan": "bridgemil.cohort.folds",
    "Protocol": "bridgemil.evaluation.protocol",
    "SubjectKFold": "bridgemil.cohort.folds",
    "evaluate": "bridgemil.engine.evaluate",
    "pool": "bridgemil.cohort.pool",
    "prepare": "bridgemil.cohort.prepare",
}

__all__ = [
    "BridgeMILClassifier",
    "Cohort",
    "Exclude",
    "FoldPlan",
    "Protocol",
    "SubjectKFold",
    "__version__",
    "aggregators",
    "audit",
    "backbones",
    "baselines",
    "bundle",
    "datasets",
    "evaluate",
    "methods",
    "models",
    "pool",
    "prepare",
    "pretraining",
    "studies",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in __all__:
        return importlib.import_module(f"bridgemil.{name}")
    raise AttributeError(f"module 'bridgemil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
