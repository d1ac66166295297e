"""What a worker does with a job, wherever it is."""

from __future__ import annotations

import errno
import traceback
from functools import lru_cache
from typing import TYPE_CHECKING

from bridgemil.cohort.store import Cohort
from bridgemil.engine.plan import Job
from bridgemil.errors import STORAGE, BadData, BridgeMILError

if TYPE_CHECKING:
    from bridgemil.learning.loop import Watch


def do(job: Job, out: str, device: str, threads: int, watch: Watch | None = None) -> tuple[str, str]:
    """Perform a run; returns how it ended (an event's kind) and the words of its error."""
    import torch

    from bridgemil.evaluation.run import Run, device_of
    from bridgemil.runs import open_store

    torch.set_num_threads(threads)
    try:
        cohort = _open(job.cohort)
        if cohort.hash != job.cohort_hash:
            raise BadData(f"{job.cohort}: is not the cohort that was planned with; it has changed meanwhile")
        run = Run(cohort, job.subjects, job.settings, job.seed)
        run.perform(open_store(out), device_of(device), watch)
    except BridgeMILError as error:
        return "failed", str(error)
    except OSError as error:
        if error.errno in STORAGE:
            return "storage", error.strerror or errno.errorcode[error.errno or 0]
        return "failed", _last_lines(error)
    except Exception as error:  # kept with the run; it must not hide the others
        return "failed", _last_lines(error)
    return "done", ""


@lru_cache(maxsize=4)
def _open(path: str) -> Cohort:
    return Cohort.open(path)


def _last_lines(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-4:]).strip()
