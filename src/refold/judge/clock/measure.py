"""Fair timing: eager and candidate in two equal workers, alternating, by the parent's own clock.

Everything reported as warm is measured by the parent around a lap of calls, less the round trip of
an empty lap of the trusted worker; cold calls and replayed graphs likewise. What the candidate's
worker claims is only compared with that (`agreement`).
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from refold.judge.clock import agreement, smi, stats
from refold.judge.clock.stopwatch import RoundTrip, lap
from refold.judge.draws.trees import tensors
from refold.judge.verdict.session import INITIAL, SECOND, Session
from refold.judge.verdict.verdict import Failure, Quartiles, Speed, Status, TestReport, Timing
from refold.judge.wire.host import Host, Raised, WorkerDied
from refold.judge.worker.leaves import packed

_CACHE = 64 << 20  # bytes flushed between cold calls; more than a last-level cache
_SETS_BYTES = 256 << 20
_ARENA_BYTES = 256 << 20
_LONG = 1e-3  # seconds of a call on a device, beside which a launch is nothing
_GRAPH_BELOW = 200e-6  # seconds of a call, of which launching may be most
_CUDA_BYTES_PER_S = 16e12  # above the L2 rate of any present device


@dataclass
class _Budget:
    seconds: float
    block: float
    pairs: int
    samples: int


def measure(
    session: Session, failures: list[Failure], reports: list[TestReport], compiled: bool
) -> Timing:
    """Time the candidate against eager; failures of the clock's tests are appended."""
    began = time.perf_counter()
    budget = _Budget(1.5, 0.025, 9, 3) if session.quick else _Budget(8.0, 0.05, 25, 6)
    sets = _input_sets(session)
    found: list[Failure] = []
    before = smi.read(session.device)
    with _trusted(session) as eager:
        candidate = _fresh(session)
        outputs = _outputs(session)
        slots = max(2, min(256, _ARENA_BYTES // max(1, outputs)))
        for host in (eager, candidate):
            host.seal_arena(slots * outputs)
            host.request("lap_inputs", 120, sets=sets, slot=0, flush_bytes=2 * _CACHE)
        first = _first_call(session, candidate)
        trip = RoundTrip(eager)
        run = _Alternation(session, eager, candidate, len(sets), trip, budget)
        run.go()
        run.go_cold()
        session.test = "timed outputs"
        texts = session.outside.complaints(eager.pid)
        found += [session.fail(Status.CHEATS, "outside its process", text) for text in texts]
        timing = run.timing(first, _roofline(session))
        found += _work(session, timing)
        notes = [timing.note] if timing.note else []
        if session.device.type == "cuda":
            events = [statistics.median(side) * 1e6 for side in run.events]
            found += _events(session, timing, events[1] * 1e-6)
            notes.append(f"device events: eager {events[0]:.1f} us, candidate {events[1]:.1f} us")
            notes.append(smi.note(before, smi.read(session.device)))
            notes += _graphs(eager, candidate, timing)
            found += _kernels(session, candidate)

        def renewed() -> agreement.Reported:
            fresh = _fresh(session)
            fresh.seal_arena(slots * outputs)
            for host in (eager, fresh):
                host.request("lap_inputs", 120, sets=sets, slot=0, flush_bytes=0)
            again = _Alternation(session, eager, fresh, len(sets), trip, budget)
            again.go()
            return again.reported()

        wrong, settled = agreement.check(
            session, run.reported(), renewed, timing, trip, outputs, slots, budget.samples
        )
        found += wrong
        if not settled:
            notes.append("too noisy a machine to hold the laps against calls on fresh inputs")
            timing = replace(timing, speed=Speed.AMBIGUOUS)
        baselines: dict[str, Quartiles] = {}
        whynot: dict[str, str] = {}
        if compiled:
            baselines, whynot = _compiled(session, eager, sets, trip, budget)
    failures.extend(found)
    spent = time.perf_counter() - began
    for name, catches in _CATCHES.items():
        outcome = "failed" if any(f.test == name for f in found) else "passed"
        reports.append(
            TestReport(
                name, catches, outcome, spent if name == "timed outputs" else 0.0, budget.samples
            )
        )
    return replace(timing, compiled=baselines, compiled_notes=whynot, note="; ".join(notes))


_CATCHES = {
    "timed outputs": "a fast path for the clock only, deferred work, a false clock",
    "work": "no kernel at all, speed beyond the roofline",
}


@contextlib.contextmanager
def _trusted(session: Session) -> Iterator[Host]:
    """A worker of the same kind with the reference in it, under the same state and mode."""
    with Host(session.limits, session.threads) as host:
        host.request(
            "load",
            session.limits.import_seconds,
            path=str(session.reference.path.resolve()),
            class_name=session.reference.class_name,
            sets=dict(session.reference.sets),
            init=session.oracle.init,
            seed=session.seed,
            device=str(session.device),
            threads=session.threads,
            watch=False,
        )
        if session.base_state != INITIAL:
            state = session.state(session.base_state)
            host.request("load_state", 120, state=state, how="strict")
        yield host


def _fresh(session: Session) -> Host:
    """The candidate in a new worker: a process that served the tests has another heap."""
    session.dismiss()
    return session.enter()


def _input_sets(session: Session) -> list[list[Any]]:
    """Enough draws of the file's inputs to leave the cache, as far as memory allows."""
    if session.frugal:
        return [session.file_inputs(), session.inputs()]  # their truths are known already
    size = sum(t.numel() * t.element_size() for t in tensors(session.file_inputs()))
    wanted = math.ceil(2 * _CACHE / max(size, 1))
    count = max(2, min(wanted, 4 if session.quick else 16, _SETS_BYTES // max(size, 1)))
    return [session.reference.inputs(session.seed + 5000 + i) for i in range(count)]


def _outputs(session: Session) -> int:
    """Bytes that the outputs of a call take in the arena; 0 if there are none."""
    truth = session.truth(session.file_inputs())
    return 0 if truth.eager is None else packed(truth.eager.outputs)[1]


def _cold(host: Host, order: list[int]) -> float:
    """The parent's seconds for a lap whose worker's caches hold nothing of it."""
    host.request("flush", 60)
    return lap(host, order)[0]


def _first_call(session: Session, candidate: Host) -> float:
    """Seconds of the first call after a state was loaded: what folding costs."""
    if session.frugal:
        return lap(candidate, [0, 1])[0]
    seconds = []
    for name in (SECOND, session.base_state) * 2:
        candidate.request("load_state", 120, state=session.state(name), how="strict")
        seconds.append(lap(candidate, [0, 1])[0])
    return min(seconds)


class _Alternation:
    """Randomised ABBA blocks. A is eager, B the candidate; only one of them runs at a time."""

    def __init__(
        self,
        session: Session,
        eager: Host,
        candidate: Host,
        sets: int,
        trip: RoundTrip,
        budget: _Budget,
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

    def reported(self) -> agreement.Reported:
        """What `agreement` holds against calls on fresh inputs."""
        return agreement.Reported(self.hosts, self.sets, self.seconds)

    def go_cold(self) -> None:
        """A few cold calls."""
        # A flush costs more than most calls, and cold numbers decide nothing.
        cold = 1 if self.session.frugal else 2 if self.session.quick else 5
        apart = min(_cold(self.hosts[0], [0, 0]) for _ in range(3))
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


def _roofline(session: Session) -> float:
    """Seconds below which nothing can read the inputs and write the first output."""
    inputs = outputs = 0
    truth = session.truth(session.file_inputs())
    for first in tensors(truth.eager.outputs if truth.eager is not None else [])[:1]:
        outputs = first.numel() * first.element_size()
    if session.powered:
        inputs = sum(t.numel() * t.element_size() for t in tensors(session.file_inputs()))
    return (inputs + outputs) / _rate(session.device)


def _rate(device: torch.device) -> float:
    """Bytes per second that can not be exceeded; on a CPU twice the rate inside its cache."""
    if device.type == "cuda":
        return _CUDA_BYTES_PER_S
    # small enough to stay in one thread: a copy that waits for a thread which the machine holds up
    # would make an honest candidate look impossible
    a = torch.ones(1 << 14)
    b = torch.empty_like(a)
    best = math.inf
    for _ in range(400):
        began = time.perf_counter()
        b.copy_(a)
        best = min(best, time.perf_counter() - began)
    return 2 * torch.get_num_threads() * 2 * a.numel() * 4 / best


def _work(session: Session, timing: Timing) -> list[Failure]:
    session.test = "work"
    # Where eager is faster too, the function need not touch all of that (views, selections).
    bound = timing.roofline_seconds
    if timing.candidate.high >= bound or timing.eager.low < bound:
        return []
    detail = (
        f"{timing.candidate.median:.3g} s a call, but reading the inputs and writing the output "
        f"takes at least {timing.roofline_seconds:.3g} s"
    )
    return [session.fail(Status.CHEATS, "roofline", detail)]


def _events(session: Session, timing: Timing, claimed: float) -> list[Failure]:
    """The parent's clock beside the device events, where launching is a small part of a call."""
    session.test = "timed outputs"
    low = timing.candidate.low
    if low < _LONG or low <= agreement.TOLERANCE * claimed:
        return []
    detail = f"the parent measured {low:.3g} s a call, device events say {claimed:.3g} s"
    return [session.fail(Status.CHEATS, "device events", detail)]


def _kernels(session: Session, candidate: Host) -> list[Failure]:
    session.test = "work"
    names = candidate.request("kernels", 60)
    if names:
        return []
    return [session.fail(Status.CHEATS, "kernels", "one call launches no kernel on the device")]


def _graphs(eager: Host, candidate: Host, timing: Timing) -> list[str]:
    """Times without launch overhead, both sides graphed, where calls are short."""
    if timing.candidate.median > _GRAPH_BELOW:
        return []
    try:
        pair = [_graphed(host) for host in (eager, candidate)]
    except Raised as error:
        return [f"no CUDA-graph times: {error}"]
    return [f"in a CUDA graph: eager {pair[0] * 1e6:.1f} us, candidate {pair[1] * 1e6:.1f} us"]


def _graphed(host: Host) -> float:
    """Seconds per call inside a CUDA graph, by the parent's clock: replays of many less of few."""
    calls, few, many = 20, 10, 210
    host.request("graph", 60, calls=calls)
    walls = {}
    for replays in (few, many):
        laps = []
        for _ in range(5):
            began = time.perf_counter()
            host.request("replay", 60, times=replays)
            laps.append(time.perf_counter() - began)
        walls[replays] = min(laps)
    return max(walls[many] - walls[few], 0.0) / (calls * (many - few))


def _compiled(
    session: Session, eager: Host, sets: list[list[Any]], trip: RoundTrip, budget: _Budget
) -> tuple[dict[str, Quartiles], dict[str, str]]:
    """torch.compile in the trusted worker, after the alternation: its threads would disturb it."""
    found: dict[str, Quartiles] = {}
    why: dict[str, str] = {}
    modes = ["default"] + (["max-autotune"] if session.device.type == "cuda" else [])
    for mode in modes:
        try:
            eager.request("put", 60, slot="compile", inputs=sets[0])
            seconds = eager.request("compile", 300, mode=mode)
            eager.request("lap_inputs", 120, sets=sets, slot=0, flush_bytes=0)
            once = trip.each(lap(eager, [0, 1])[0], 1)
            calls = int(max(1, min(4096, budget.block / once)))
            trip.again()
            walls = [lap(eager, [0, calls])[0] for _ in range(9)]
            found[mode] = stats.quartiles([trip.each(wall, calls) for wall in walls[1:]])
            why[mode] = f"compiled in {seconds:.1f} s"
        except Raised as error:
            why[mode] = str(error)[:200]
        except WorkerDied as error:
            why[mode] = str(error)[:200]
            break
    return found, why
