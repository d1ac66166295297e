"""What a worker does with a job, wherever it is."""

from __future__ import annotations

import errno
import os
import socket
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.plan import Job
from bridgemil.errors import STORAGE, BadData, BadUse, BridgeMILError
from bridgemil.methods import Settings

if TYPE_CHECKING:
    import torch

    from bridgemil.learning.loop import Watch
    from bridgemil.runs import RunStore


def do(job: Job, out: str, device: str, threads: int, watch: Watch | None = None) -> tuple[str, str]:
    """Perform a run in a worker; returns how it ended (an event's kind) and the message of its error."""
    from bridgemil.parallel import device_of
    from bridgemil.runs import RunStore

    store = RunStore(Path(out))
    if not store.root.is_dir():
        return "storage", f"{socket.gethostname()} has no such folder: it must be on a path that all nodes share"
    try:
        cohort = _open(job.cohort, _written(Path(job.cohort) / "cohort.json"))
        if cohort.hash != job.cohort_hash:
            raise BadData(f"{job.cohort}: is not the cohort that was planned with; it has changed meanwhile")
        _refuse_unknown(job.settings)
        perform(job, cohort, store, device_of(device), threads, watch)
    except BridgeMILError as error:
        return "failed", str(error)
    except OSError as error:
        ours = error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(store.root)
        if error.errno in STORAGE and ours:
            return "storage", error.strerror or errno.errorcode[error.errno or 0]
        return "failed", _last_lines(error)
    except Exception as error:  # kept with the run; it must not hide the others
        return "failed", _last_lines(error)
    return "done", ""


def perform(
    job: Job, cohort: Cohort, store: RunStore, device: torch.device, threads: int, watch: Watch | None = None
) -> None:
    """Perform a run with this number of threads: the same bits in this process and in a worker.

    Parameters
    ----------
    job
        The run.
    cohort
        Its cohort, which may be in memory.
    store
        Where the run is kept.
    device, threads
        What it may use.
    watch
        Called after every epoch.
    """
    from threadpoolctl import threadpool_limits

    from bridgemil.evaluation.run import Run
    from bridgemil.parallel import torch_threads

    run = Run(cohort, job.subjects, job.settings, job.seed, job.split)
    with torch_threads(threads), threadpool_limits(threads):  # numpy's and scikit-learn's
        run.perform(store, device, watch)


def registered(settings: Settings) -> bool:
    """Whether these name a backbone or baseline that is registered in this process, not one of a file or module."""
    name = settings.backbone or settings.method
    return settings.code is not None and (":" not in name or name.startswith("__main__:"))


def _refuse_unknown(settings: Settings) -> None:
    """What was registered by the process that planned is known there only."""
    from bridgemil import backbones, baselines

    if settings.code is None:
        return
    name, where = settings.backbone, "was registered in the process that planned this run; a worker does not know it"
    if name is not None and ":" not in name and name not in backbones.names():
        raise BadUse(f"backbone {name!r} {where}. Put it in a file, and name it by its address: path/to/file.py:NAME")
    if name is None and settings.method not in baselines.names():
        raise BadUse(f"baseline {settings.method!r} {where}. Use evaluate, which runs where it was registered")


@lru_cache(maxsize=4)
def _open(path: str, written: int) -> Cohort:
    """The cohort, opened once as long as it is not written anew."""
    return Cohort.open(path)


def _written(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


def _last_lines(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-4:]).strip()
