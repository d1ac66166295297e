"""Runs on disk: their identity, their folders, their checkpoints, reading them back; and what runs share.

    RUNS/runs/<identity>/             run.json, predictions.parquet, curves.parquet, windows.parquet, the fitted model
    RUNS/stage1/<identity>/           encoder.safetensors, encoder.json
    RUNS/features/<key>/<signal>/     features.npy: what is computed once per subject
    RUNS/splits/                      the splits that were planned here, each with the audit warnings of its cohort
    RUNS/ensembles/                   the ensembles that were planned here
    RUNS/audits/                      the quick audits of the cohorts
    RUNS/unfinished/                  checkpoints, and folders being written
    RUNS/failed/                      the errors of runs that failed

All but the last two are artifacts (see ``bridgemil.storage.artifact``): a folder appears in one rename with a manifest
of checksums, which are compared when a file is read. Nothing here is ever unpickled, and nothing is written or removed
through a link.
"""

from bridgemil.runs.cache import RunCache
from bridgemil.runs.identity import IDENTITY, RESULTS_VERSION, run_identity, stage1_identity
from bridgemil.runs.store import RunStore, find_store, open_store
from bridgemil.runs.warnings import TITLE, AuditWarning, merged, warning_names, warning_text

__all__ = [
    "IDENTITY", "RESULTS_VERSION", "TITLE", "AuditWarning", "RunCache", "RunStore", "find_store", "merged",
    "open_store", "run_identity", "stage1_identity", "warning_names", "warning_text",
]  # fmt: skip
