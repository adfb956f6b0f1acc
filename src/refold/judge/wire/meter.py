"""Where the time of a judgement goes: runs of both sides, bytes that move, seconds of each kind.

Seconds are exclusive: what runs inside of something else that is measured is taken from that. A
device is waited for before a run of the reference ends (`truth.oracle`), so that its work stands
where it is asked for; what a comparison starts ends in the comparison, as its answer is a number.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import torch

T = TypeVar("T")
P = ParamSpec("P")
FULL = 64 << 20  # bytes from which on what is moved, or comes out, is called large


@dataclass
class Cell:
    """One kind of work in one test."""

    count: int = 0
    large: int = 0  # of them, with at least `FULL` bytes
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Meter:
    """Of one judgement. Work of other threads than the first that measured is not counted."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    place: str = "before the tests"
    walls: dict[str, float] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=list)  # seconds inside, of each open span
    _thread: int = 0
    _since: float = 0.0

    def begin(self) -> None:
        """Forget everything; a judgement begins."""
        self.cells, self.walls, self._inner = {}, {}, []
        self._thread, self._since = threading.get_ident(), time.perf_counter()
        self.place = "before the tests"

    def enter(self, place: str) -> None:
        """From now on this test, or part of a judgement, does what is done."""
        now = time.perf_counter()
        self.walls[self.place] = self.walls.get(self.place, 0.0) + now - self._since
        self.place, self._since = place, now

    @contextlib.contextmanager
    def span(self, kind: str, size: Callable[[], int] | int = 0) -> Iterator[None]:
        """Time the block as one of a kind; ``size``: bytes, asked for in the end."""
        if threading.get_ident() != self._thread:
            yield
            return
        began = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            inside = self._inner.pop() if self._inner else 0.0
            if self._inner:
                self._inner[-1] += spent
            moved = size if isinstance(size, int) else size()
            self.add(kind, moved, spent - inside)

    def add(self, kind: str, moved: int = 0, seconds: float = 0.0) -> None:
        """One more of a kind."""
        cell = self.cells.setdefault((self.place, kind), Cell())
        cell.count += 1
        cell.large += moved >= FULL
        cell.bytes += moved
        cell.seconds += seconds

    def take(self, cells: dict[tuple[str, str], Cell], walls: dict[str, float]) -> None:
        """Add what another process measured meanwhile."""
        for key, other in cells.items():
            cell = self.cells.setdefault(key, Cell())
            cell.count += other.count
            cell.large += other.large
            cell.bytes += other.bytes
            cell.seconds += other.seconds
        for place, seconds in walls.items():
            self.walls[place] = self.walls.get(place, 0.0) + seconds

    def rows(self) -> list[tuple[str, float, dict[str, Cell]]]:
        """By test, in the order in which they ran: seconds by the wall, and each kind of work."""
        self.enter(self.place)
        names = dict.fromkeys((*self.walls, *(place for place, _ in self.cells)))
        return [
            (
                name,
                self.walls.get(name, 0.0),
                {k: c for (p, k), c in self.cells.items() if p == name},
            )
            for name in names
        ]


METER = Meter()


def spanned(
    kind: str, measure: Callable[..., int] = lambda *_, **__: 0
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose calls are spans; ``measure``: bytes of its arguments."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def timed(*args: P.args, **options: P.kwargs) -> T:
            with METER.span(kind, lambda: measure(*args, **options)):
                return function(*args, **options)

        return timed

    return wrap


def size_of(*trees: Any) -> int:
    """Bytes of the tensors of trees."""
    total = 0
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            total += tree.numel() * tree.element_size()
        elif isinstance(tree, list | tuple):
            total += size_of(*tree)
        elif isinstance(tree, dict):
            total += size_of(*tree.values())
    return total
