"""What a user sees while runs go on: a live line in a terminal, a line a run elsewhere. All on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bridgemil.evaluation.estimate import Estimate

if TYPE_CHECKING:
    from bridgemil.learning.loop import Moment


class Progress:
    """Counts runs in units of one; inside a run the stages weigh by their estimated time."""

    def __init__(self, n_runs: int, estimate: Estimate, title: str, show: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        self.show, self.title, self.n_runs = show, title, n_runs
        self.first = estimate.stage1 / estimate.seconds if estimate.seconds else 0.0
        self.expected = estimate.seconds * n_runs
        self.console = Console(stderr=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
        )
        self.bars = Bars(*columns, console=self.console, disable=not (show and self.console.is_terminal))
        self.task = self.bars.add_task(title, total=n_runs, now="")
        self.done, self.begun = 0, time.monotonic()
        self.where, self.skipped, self.fresh = "", 0.0, True

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def start_run(self, where: str) -> None:
        """A run begins: ``seed 0, fold 3``."""
        self.where, self.fresh = where, True
        self.bars.update(self.task, now=where)

    def watch(self, moment: Moment) -> None:
        """An epoch ended."""
        share = moment.epoch / moment.epochs
        inside = self.first * share if moment.phase == "Stage 1" else self.first + (1 - self.first) * share
        if self.fresh:  # what a checkpoint or a stored Stage 1 spared was not done in the time that passed
            step = (self.first if moment.phase == "Stage 1" else 1 - self.first) / moment.epochs
            self.skipped, self.fresh = self.skipped + max(0.0, inside - step), False
        accuracy = "" if moment.accuracy is None else f", validation {moment.accuracy:.0%}"
        epoch = f"{moment.phase} {moment.epoch}/{moment.epochs}, loss {moment.loss:.3f}{accuracy}"
        self.bars.update(self.task, now=f"{self.where}: {epoch}, {self._left(self.done + inside)} left")

    def end_run(self, accuracy: float) -> None:
        """A run ended."""
        self.done += 1
        self.bars.update(self.task, completed=self.done)
        if self.show and not self.console.is_terminal:
            words = f"{self.title}: {self.where}: accuracy {accuracy:.3f} ({self.done}/{self.n_runs} runs, "
            self.console.print(words + f"{self._left(self.done)} left)", markup=False, soft_wrap=True)

    def _left(self, done: float) -> str:
        elapsed = time.monotonic() - self.begun
        seen = done - self.skipped
        total = elapsed / seen if seen > 0 else self.expected / self.n_runs  # the estimate at first
        return duration(max(0.0, (self.n_runs - done) * total))


def duration(seconds: float) -> str:
    """For people: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
