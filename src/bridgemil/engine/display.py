"""What a user sees of a grid: a live table in a terminal, a line a run elsewhere. All on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bridgemil.engine.forecast import Forecast, duration
from bridgemil.engine.plan import Job
from bridgemil.engine.scheduler import Event
from bridgemil.errors import plain

if TYPE_CHECKING:
    from rich.table import Table

    from bridgemil.learning.loop import Progress
    from bridgemil.runs import RunStore

MOST_ROWS = 16


def say_auditing(cohort: str) -> None:
    """Say on standard error that a cohort is being audited, which takes seconds.

    Parameters
    ----------
    cohort
        Its name.
    """
    sys.stderr.write(plain(f"auditing {cohort} …\n"))


class Display:
    """Counts and running runs, and the time left by a forecast that every finished run corrects."""

    def __init__(self, forecast: Forecast, store: RunStore) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.forecast, self.store = forecast, store
        self.counts = {"done": forecast.runs - len(forecast.jobs), "failed": 0, "lost": 0}
        self.moments: dict[str, Progress] = {}
        self.began: dict[str, float] = {}  # when each of the running runs was first seen
        self.drawn = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def tell(self, event: Event) -> None:
        """Something happened."""
        if event.kind == "epoch" and event.moment is not None:
            self.moments[event.job.identity] = event.moment
            return
        self.moments.pop(event.job.identity, None)
        if event.kind in self.counts:
            self.counts[event.kind] += 1
        self.began.pop(event.job.identity, None)
        if event.kind == "done":
            self.forecast.finished(event.job, float(self.store.metadata(event.job.identity)["seconds"]))
        elif event.kind == "failed":
            self.forecast.finished(event.job)
        words = {
            "failed": f"failed: {event.words.splitlines()[-1] if event.words else ''}",
            "lost": f"lost ({event.words or 'with its node'}); run again",
        }
        line = f"[{self.counts['done']}/{self.forecast.runs}] {event.job}: {words.get(event.kind, event.kind)}"
        if not self.console.is_terminal or event.kind == "failed":
            self.console.print(f"{line}, {self._left()} left", markup=False, soft_wrap=True)

    def show(self, running: Sequence[Job], waiting: int) -> None:
        """Draw, at most twice a second."""
        now = time.monotonic()
        for job in running:
            self.began.setdefault(job.identity, now)
        if self.console.is_terminal and now - self.drawn > 0.5:
            self.drawn = now
            self.live.update(self._table(running, waiting), refresh=True)

    def _left(self) -> str:
        now = time.monotonic()
        return duration(self.forecast.left({identity: now - began for identity, began in self.began.items()}))

    def _table(self, running: Sequence[Job], waiting: int) -> Table:
        from rich.table import Table

        counts = (
            f"{self.counts['done']} done, {self.counts['failed']} failed, {len(running)} running, {waiting} waiting"
        )
        now = ("now", "loss", "validation") if self.moments else ()  # a Ray worker says nothing before its end
        table = Table("run", *now, title=f"{counts}; about {self._left()} left", expand=True)
        for job in running[:MOST_ROWS]:
            moment = self.moments.get(job.identity)
            if moment is None:
                table.add_row(str(job))
                continue
            accuracy = "" if moment.accuracy is None else f"{moment.accuracy:.0%}"
            table.add_row(str(job), f"{moment.phase} {moment.epoch}/{moment.epochs}", f"{moment.loss:.3f}", accuracy)
        return table
