"""Runs on disk: their identity, their folders, their checkpoints, reading them back; and what runs share.

    RUNS/runs/<identity>/      run.json, predictions.parquet, curves.parquet, windows.parquet, and the fitted model
    RUNS/stage1/<identity>/    encoder.safetensors (with its settings and curve)
    RUNS/features/<key>/       what is computed once of each person's windows: front-end and baseline features
    RUNS/splits/               the splits that were planned here, each with the audit warnings of its cohort
    RUNS/ensembles/            the ensembles that were planned here
    RUNS/audits/               the quick audits of the cohorts
    RUNS/unfinished/           checkpoints, locks, and folders being written
    RUNS/failed/               the errors of runs that failed

A run's folder appears in one rename: it is whole or absent. run.json, written last, holds the hash of every file
beside it and of itself; encoders and features hold their own; all are checked when they are read. Runs of earlier
versions have no hashes and are read without. Nothing here is ever unpickled, and nothing is written or removed through
a link.
"""

from bridgemil.runs.identity import IDENTITY, RESULTS_VERSION, run_identity, stage1_identity
from bridgemil.runs.shelf import RunShelf
from bridgemil.runs.store import RunStore, find_store, open_store
from bridgemil.runs.warnings import TITLE, AuditWarning, merged, warning_names, warning_text

__all__ = [
    "IDENTITY", "RESULTS_VERSION", "TITLE", "AuditWarning", "RunShelf", "RunStore", "find_store", "merged",
    "open_store", "run_identity", "stage1_identity", "warning_names", "warning_text",
]  # fmt: skip
