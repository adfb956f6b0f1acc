"""Warm laps: eager and the candidate alternate on inputs that both know, outputs dropped.

Everything is measured by the parent around a lap of calls, less the round trip of an empty lap of
the trusted worker. These numbers are printed; whether they stand, the sealed calls decide.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import dataclass

from refold.judge.clock import stats
from refold.judge.clock.stopwatch import RoundTrip, lap
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Timing
from refold.judge.wire.host import Host


@dataclass(frozen=True)
class Budget:
    """Seconds of the warm laps, of a block, pairs of blocks; the sealed calls' seconds, rounds and
    verified outputs of a round."""

    seconds: float
    block: float
    pairs: int
    sealed: float
    rounds: int
    samples: int


QUICK = Budget(1.0, 0.02, 9, 1.5, 15, 2)
LONG = Budget(8.0, 0.05, 25, 10.0, 45, 3)


_MORE_CALLS, _AT_ONCE, _MORE_SECONDS = 400, 20, 0.5  # calls that are not timed


def _cold(host: Host, order: list[int]) -> float:
    """The parent's seconds for a lap whose worker's caches hold nothing of it."""
    host.request("flush", 60)
    return lap(host, order)[0]


class Alternation:
    """Randomised ABBA blocks. A is eager, B the candidate; only one of them runs at a time."""

    def __init__(
        self,
        session: Session,
        eager: Host,
        candidate: Host,
        sets: int,
        trip: RoundTrip,
        budget: Budget,
    ) -> None:
        self.session, self.budget, self.trip = session, budget, trip
        self.hosts = (eager, candidate)
        self.sets = sets
        self.random = random.Random(session.seed)
        self.seconds: tuple[list[float], list[float]] = ([], [])
        self.claims: list[float] = []
        self.events: tuple[list[float], list[float]] = ([], [])
        self.ratios: list[float] = []
        self.cold: tuple[list[float], list[float]] = ([], [])

    def go(self) -> None:
        """Warm up and alternate within the budget."""
        calls = [self._warm(side) for side in (0, 1)]
        began, blocks = time.perf_counter(), list[tuple[list[float], list[float]]]()
        while len(blocks) < self.budget.pairs:
            self.trip.again()
            order = (0, 1, 1, 0) if self.random.random() < 0.5 else (1, 0, 0, 1)
            block: tuple[list[float], list[float]] = ([], [])
            for side in order:
                # Whatever the other side does while it is not called, it does not do it now.
                with self.hosts[1 - side].stopped():
                    block[side].append(self._block(side, calls[side]))
            blocks.append(block)
            if time.perf_counter() - began > self.budget.seconds and len(blocks) >= 3:
                break
        for block in blocks:  # only now, by the least round trip of all
            each = [[self.trip.each(w, calls[side]) for w in block[side]] for side in (0, 1)]
            for side in (0, 1):
                self.seconds[side].extend(each[side])
            self.ratios.append(sum(each[0]) / sum(each[1]))

    def go_on(self) -> None:
        """Calls of the candidate that nobody times. Beside other work few are timed, and what goes
        wrong after hundreds of calls has to do so before outputs are compared."""
        until = time.perf_counter() + _MORE_SECONDS
        each = min(lap(self.hosts[1], self._order(1))[0] for _ in range(3))
        for _ in range(_MORE_CALLS // _AT_ONCE):
            if time.perf_counter() + _AT_ONCE * each > until:
                break
            lap(self.hosts[1], self._order(_AT_ONCE))

    def go_cold(self) -> None:
        """A few cold calls."""
        # A flush costs more than most calls, and cold numbers decide nothing.
        few = self.session.frugal or self.session.quick
        cold = 1 if few else 5
        apart = min(_cold(self.hosts[0], [0, 0]) for _ in range(1 if few else 3))
        for side in (0, 1, 1, 0):
            host = self.hosts[side]
            self.cold[side].extend(_cold(host, self._order(1)) - apart for _ in range(cold))
        eager, candidate = ([max(s, 1e-9) for s in one] for one in self.cold)
        self.cold = (eager, candidate)

    def _order(self, calls: int) -> list[int]:
        start = self.random.randrange(self.sets)
        return [start, calls]

    def _warm(self, side: int) -> int:
        """Call until two laps agree within a tenth; returns calls per block."""
        last, calls = math.inf, 1
        for _ in range(8):
            wall = lap(self.hosts[side], self._order(calls))[0]
            seconds = max(wall - self.trip.seconds, 1e-7)
            each = seconds / calls
            if each > self.budget.seconds / 8:
                return 1
            if abs(each - last) < 0.1 * last and seconds > self.budget.block / 4:
                break
            last = each
            calls = int(min(4096, max(1, self.budget.block / each, calls)))
        return max(1, min(4096, round(self.budget.block / each)))

    def _block(self, side: int, calls: int) -> float:
        lap(self.hosts[side], self._order(1))  # it stood still: what that costs is not the call's
        wall, claims = lap(self.hosts[side], self._order(calls))
        self.events[side].append(claims[1] / calls)
        if side == 1:
            self.claims.append(self.trip.each(wall, 1) / max(claims[0], 1e-12))
        return wall

    def timing(self, first: float, roofline: float) -> Timing:
        """What was measured."""
        low, high = stats.bootstrap(self.ratios, self.session.seed)
        eager, candidate = (stats.quartiles(s) for s in self.seconds)
        gain = eager.median - candidate.median
        few = len(self.ratios) < 5
        return Timing(
            speed=stats.decide(low, high),
            ratio=statistics.median(self.ratios),
            ratio_low=low,
            ratio_high=high,
            eager=eager,
            candidate=candidate,
            eager_cold=stats.quartiles(self.cold[0]),
            candidate_cold=stats.quartiles(self.cold[1]),
            clock=statistics.median(self.claims) if self.claims else math.nan,
            roofline_seconds=roofline,
            first_call_seconds=first,
            break_even_calls=max(0.0, first - candidate.median) / gain if gain > 0 else math.inf,
            samples_eager=tuple(self.seconds[0]),
            samples_candidate=tuple(self.seconds[1]),
            note=f"only {len(self.ratios)} blocks: one call is long" if few else "",
        )
