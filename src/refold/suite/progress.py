"""What is running and when it will end: a live table on a terminal, else a line for each row."""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from refold.suite.here import Running
from refold.suite.rows import FAILED, Row, outcome, why
from refold.suite.summary import over_best, over_eager


class Terminal:
    """Shows a suite while it runs; a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._live = Live(console=self.console, refresh_per_second=4, transient=True)
        self._tasks = self._done = 0
        self._jobs = 1
        self._took: list[float] = []

    def __enter__(self) -> Terminal:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._live.stop()

    def begin(self, tasks: int, had: int, jobs: int) -> None:
        self._tasks, self._done, self._jobs = tasks, had, jobs
        if had:
            self.console.print(f"refold: {had} of {tasks} tasks have rows; going on")

    def row(self, row: Row) -> None:
        self._done += 1
        self._took.append(row["measured"].get("seconds", 0.0))
        self.console.print(
            f"[dim]{self._done}/{self._tasks}[/] {escape(line(row))}",
            highlight=False,
            soft_wrap=True,
        )

    def look(self, running: Sequence[Running], waiting: int) -> None:
        if not self._live.is_started:
            return
        table = Table.grid(padding=(0, 2))
        for job in running:
            spent = time.monotonic() - job.began
            table.add_row(
                escape(job.task.name), f"{spent:.0f} s", escape(job.step), f"[dim]{job.where}[/]"
            )
        if waiting and len(running) < self._jobs:
            table.add_row("[yellow]waiting for a device[/]")
        bar = Table.grid(padding=(0, 2))
        count = f"{self._done} of {self._tasks}"
        done = ProgressBar(self._tasks, self._done, width=40)
        bar.add_row(done, count, self.end(running, waiting))
        self._live.update(Group(table, bar))

    def end(self, running: Sequence[Running], waiting: int) -> str:
        """When it will have ended, if tasks go on to take what they took."""
        left = remaining(
            [time.monotonic() - job.began for job in running], waiting, self._took, self._jobs
        )
        if left is None:
            return ""
        at = datetime.datetime.now() + datetime.timedelta(seconds=left)
        day = "%H:%M" if at.date() == datetime.date.today() else "%a %H:%M"
        return f"ends about {at:{day}}"


def remaining(
    running: Sequence[float], waiting: int, took: Sequence[float], jobs: int
) -> float | None:
    """Seconds until everything has ended; None where no task has ended yet.

    running: how long each of those takes already. took: seconds of those that have ended.
    """
    if not took:
        return None
    each = statistics.fmean(took)
    total = sum(max(each - spent, 0.0) for spent in running) + waiting * each
    return total / max(jobs, 1)


def line(row: Row) -> str:
    """One task in one line."""
    sizes = f" [{row['sizes']}]" if row["sizes"] else ""
    took = f" ({row['measured'].get('seconds', 0.0):.0f} s)"
    told, reason = outcome(row), why(row)
    if told == "ACCEPTED":
        told += f", {over_eager(row):.2f} of eager, {over_best(row):.2f} of the best"
        told += f", {reason}" * bool(reason)
    elif reason:
        told += f": {reason}"
    if row["status"] in FAILED and row["measured"].get("step"):
        told += f" [{row['measured']['step']}]"
    return f"{row['task']}{sizes}: {told}{took}"
