"""How soon what is folded is computed anew, where parameters change again and again.

To look at everything anew costs as much as some calls, up to thirty of a small model. Where it is
done for one call, as by a program that loads weights before each, the original forward costs less.
So each such renewal is judged when the next change is seen: it has paid where the program ran on
for PAID times as long as it took. Behind FREE that have not paid the next one is put off until the
parameters stay as they are for a call, behind one more for three, seven, ...; each that has paid
takes one step back. Whatever a program does, renewals then take about a sixteenth of its time.
"""

import time
from collections.abc import Callable
from typing import Any

_REFOLD_PAID = 16.0  # times its own duration
_REFOLD_FREE = 8  # renewals that have not paid before the first is put off
_REFOLD_PATIENCE = 10  # doublings, at most


class _RefoldPace:
    """When the values of one cache are computed anew.

    level: how many renewals more have not paid than have. took, ended: the seconds of the last one,
    and when it ended. judged: whether it is known if it has paid. held: what tells that parameters
    stay, as the last call that was put off found it; stayed: for how many calls. always: nothing is
    put off, because a CUDA graph may replay what is folded.
    """

    def __init__(self) -> None:
        self.level, self.stayed = 0, 0
        self.took = self.ended = 0.0
        self.judged, self.always = True, False
        self.held: Any = None

    def puts_off(self, holds: Callable[[], Any]) -> bool:
        """Whether the original forward takes this call, which has seen a change. holds: gives what
        tells whether the next one sees another change."""
        if not self.judged:
            self.judged, self.held = True, None
            paid = time.perf_counter() - self.ended >= _REFOLD_PAID * self.took
            most = _REFOLD_FREE + _REFOLD_PATIENCE - 1
            self.level = max(self.level - 1, 0) if paid else min(self.level + 1, most)
        if self.level < _REFOLD_FREE or self.always:
            return False
        held = holds()
        self.stayed = self.stayed + 1 if held == self.held else 0
        self.held = held
        return self.stayed < (1 << (self.level - _REFOLD_FREE + 1)) - 1

    def renewed(self, began: float) -> None:
        """All was looked at anew, from `began` on."""
        self.ended = time.perf_counter()
        self.took, self.judged = self.ended - began, False
