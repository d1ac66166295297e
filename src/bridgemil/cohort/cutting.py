"""One subject from its recordings to its folder: what a worker of ``prepare`` is given, and what it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridgemil.cohort.folder import write_subject
from bridgemil.cohort.records import describe
from bridgemil.cohort.segment import SegmentPlan, segment


@dataclass(frozen=True)
class SubjectTask:
    """Everything a worker needs to prepare one subject; ``recipe`` identifies its result."""

    out: Path
    subject: str
    label: str
    plans: tuple[SegmentPlan, ...]
    files: tuple[dict[str, Any], ...]
    recipe: str


def segment_subject(task: SubjectTask) -> dict[str, Any] | None:
    """Segments all recordings of one subject and write its folder.

    Parameters
    ----------
    task
        The recordings, how to cut them, and where to write.

    Returns
    -------
    dict or None
        The subject's record, as in its record.json; None if no window is left.
    """
    cuts = [segment(plan) for plan in task.plans]
    lengths = [len(piece.windows) for piece in cuts]
    if not sum(lengths):
        return None
    windows = cuts[0].windows if len(cuts) == 1 else np.concatenate([piece.windows for piece in cuts])
    starts = np.concatenate([piece.starts for piece in cuts])
    names = [plan.recording.name for plan in task.plans]
    record = asdict(describe(task.subject, task.label, windows, names, lengths)) | {"recipe": task.recipe}
    record["files"] = [
        {
            **file,
            "windows": len(piece.windows),
            "marked_bad": piece.n_marked,
            "dropped_marked_bad": piece.n_dropped_marked,
            "dropped_amplitude": piece.n_dropped_amplitude,
            "filter_warnings": piece.warnings,
        }
        for file, piece in zip(task.files, cuts, strict=True)
    ]
    write_subject(task.out, task.subject, windows, starts, record)
    return record
