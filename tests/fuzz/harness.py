"""Asking a worker process about mutated inputs, one by one, and outliving it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# identical: as if nothing had been changed (the bytes are not used). noted: used otherwise, and the record says so.
# samples changed: other samples, which no format can know of. as written: another value that may well be meant.
ALLOWED = ("refused", "identical", "noted", "samples changed", "as written")
FORBIDDEN = ("traceback", "hang", "crash", "memory", "leak", "write outside", "silent change")
PATIENCE = 120.0  # seconds for a case; the slowest takes one


@dataclass(frozen=True)
class Case:
    """What became of one mutated input."""

    kind: str
    number: int
    outcome: str
    change: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind} {self.number}: {self.outcome} after: {self.change}\n{self.words}"


class Harness:
    """A worker process, started again whenever it is lost."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[str] | None = None
        self._place: tempfile.TemporaryDirectory[str] | None = None  # the worker's; it may die and leave it

    def run(self, kind: str, number: int) -> Case:
        """Try one mutated input.

        Parameters
        ----------
        kind
            Of ``fuzz.kinds.KINDS``.
        number
            Which one; the same number is the same damage.
        """
        worker = self._worker or self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{kind} {number}\n")
        worker.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(worker.stdout, selectors.EVENT_READ)
            answered = bool(waiting.select(PATIENCE))
        line = worker.stdout.readline() if answered else ""
        if line:
            return Case(kind, number, **json.loads(line))
        ended = worker.wait(PATIENCE) if answered else None
        self.stop()
        return Case(kind, number, "crash" if answered else "hang", "unknown", f"the worker ended with {ended}")

    def stop(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None
        if self._place is not None:
            self._place.cleanup()
            self._place = None

    def _start(self) -> subprocess.Popen[str]:
        tests = Path(__file__).parents[1]
        paths = [str(tests), *(path for path in sys.path if path)]
        self._place = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", self._place.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return self._worker
