"""Bundles: a trained, calibrated model with its card, and its predictions for new recordings.

``train`` makes one from a cohort, ``load`` reads one, ``predict`` applies one to recordings, ``validate`` tests one on
labelled subjects it has never seen, ``adapt`` moves one to another site.
"""

from __future__ import annotations

from bridgemil.bundle.adaptation import adapt
from bridgemil.bundle.bundle import Bundle, load
from bridgemil.bundle.prediction import predict
from bridgemil.bundle.training import train
from bridgemil.bundle.validation import validate

__all__ = ["Bundle", "adapt", "load", "predict", "train", "validate"]
