"""Bundles: a trained, calibrated model with its card, and its predictions for new recordings.

``train`` makes one from a cohort, ``load`` reads one, ``predict`` applies one to recordings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgemil.bundle.bundle import Bundle, load
    from bridgemil.bundle.prediction import predict
    from bridgemil.bundle.training import train

__all__ = ["Bundle", "load", "predict", "train"]
_HOME = {"Bundle": "bundle", "load": "bundle", "predict": "prediction", "train": "training"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module 'bridgemil.bundle' has no attribute {name!r}")
