"""The budget: what tests cost, and what all processes that make tests have spent of it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from refold.judge.ask.request import How
    from refold.judge.truth.oracle import Oracle

_MODELS = 2.5  # eager, the candidate, and now and then float64: calls for each call of a test
_LIFE_SECONDS = (4e-9, 1e-9)  # for each byte of a state: measured on a CPU; by judgement on a GPU
_OVERHEAD = 5e-4  # seconds of a call beside the models' own
# seconds for each byte that goes to a worker, comes back and is compared, beyond some megabytes
_MOVED, _LITTLE = 1e-9, 4 << 20
_SINGLE = 2.0  # seconds of tests of single calls, which two processes take nothing for
_SIZE = 8  # bytes of a number


class Purse:
    """Estimated seconds of work that were spent.

    ``hands``: processes that make tests side by side. A purse that is
    made before a fork is one for both sides: each writes its own number, and reads all.
    """

    def __init__(self, hands: int = 1) -> None:
        self.hands, self._mine = hands, 0
        self._all = memoryview(mmap.mmap(-1, _SIZE * hands)).cast("d")

    def of(self, hand: int) -> Purse:
        """The same purse in another hand, counted from 0."""
        other = Purse.__new__(Purse)
        other.hands, other._mine, other._all = self.hands, hand, self._all
        return other

    @property
    def spent(self) -> float:
        """By all hands."""
        return sum(self._all)

    def take(self, seconds: float) -> None:
        """Count what this hand has spent."""
        self._all[self._mine] += seconds


class Spending:
    """The part of `session.Session` that keeps a budget."""

    how: How
    oracle: Oracle
    purse: Purse
    call_seconds: float
    moved: int
    single: float  # estimated seconds of tests that state no cost

    @property
    def device(self) -> torch.device:
        """Where both sides run."""
        return self.oracle.device

    def affords(self, calls: int, lives: int) -> bool:
        """Whether the budget has room for a test of so many calls of each model, and so many lives
        among them, by an estimate."""
        # two processors do not do twice as much: workers are at work beside either process
        most = self.how.budget * (1 + self.purse.hands) / 2
        return self.purse.spent + self.cost(calls, lives) <= most

    def cost(self, calls: int, lives: int) -> float:
        """Estimated seconds of a test of so many calls of each model; each life builds them, and
        copies, sends and compares what is as large as their state. Of large samples even three are
        megabytes, which cost more than a GPU's calls do."""
        each: float = _LIFE_SECONDS[self.device.type == "cuda"] * self.oracle.bytes
        moved = _MOVED * max(0, self.moved - _LITTLE)
        return calls * (_MODELS * self.call_seconds + _OVERHEAD + moved) + lives * each

    def spend(self, calls: int, lives: int, seconds: float, cases: int = 0) -> None:
        """Take from the budget what a test took, at most its estimate: a busy machine leaves
        nothing out. Tests that state no cost are never left out; where they take long, ``cases``
        says how much, and two processes have so much less for the others, but never less than
        one."""
        if calls:
            self.purse.take(min(self.cost(calls, lives), seconds))
        elif self.purse.hands > 1:
            before = self._over()
            self.single += min(self.cost(cases, 0), seconds)
            self.purse.take(self._over() - before)

    def _over(self) -> float:
        return min(max(0.0, self.single - _SINGLE), self.how.budget)
