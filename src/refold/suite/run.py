"""The suite's loop: tasks that have no row are started where there is room, rows are kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from refold.suite.here import Running
from refold.suite.rows import Record, Row
from refold.suite.tasks import Ask, Task

_LOOK = 0.1  # seconds


class Place(Protocol):
    """Where tasks run: this machine (`Here`), or a cluster. jobs: so many side by side."""

    jobs: int

    def start(self, task: Task) -> bool:
        """Start a task, if there is room for it."""
        ...

    def running(self) -> Sequence[Running]:
        """What runs now."""
        ...

    def finished(self) -> Iterator[tuple[Task, Row]]:
        """The rows of tasks that have ended since the last time."""
        ...

    def close(self) -> None:
        """End all that runs."""
        ...


class Show(Protocol):
    """Who is told of it."""

    def begin(self, tasks: int, had: int, jobs: int) -> None:
        """So many tasks, of which so many have rows; so many run side by side."""
        ...

    def look(self, running: Sequence[Running], waiting: int) -> None:
        """What runs; waiting: how many tasks have not begun."""
        ...

    def row(self, row: Row) -> None:
        """A task has ended."""
        ...


def run(
    tasks: Sequence[Task],
    ask: Ask,
    record: Record,
    place: Place,
    show: Show,
    anew: Collection[str] = (),
) -> None:
    """Run what has no row yet, in order; each row is kept when it is there. anew: names of tasks
    that run although they have one.

    Whatever ends this function, nothing that it started goes on.
    """
    every = [(t, ask.key(t)) for t in tasks]
    left = deque((t, key) for t, key in every if t.name in anew or not record.has(t, key))
    keys = {t.name: key for t, key in left}
    show.begin(len(tasks), len(tasks) - len(left), place.jobs)
    try:
        while left or place.running():
            while left and place.start(left[0][0]):
                left.popleft()
            for task, row in place.finished():
                row = {"task": task.name, "key": keys[task.name], **row}
                record.add(row)
                show.row(row)
            show.look(place.running(), len(left))
            time.sleep(_LOOK)
    finally:
        place.close()
