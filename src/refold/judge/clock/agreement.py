"""Does the clock tell the truth: outputs of timed calls, and timed calls on inputs never seen.

The number that is reported comes from laps over rotating inputs whose outputs are dropped. Here the
same calls run beside them on inputs drawn for this purpose, once each, with their outputs taken:
work that was kept back, remembered or skipped costs its full time then. Eager does the same, so
that what fresh inputs and taken outputs cost by themselves is measured, not guessed.

A process that has slept gets a processor at once and for a few milliseconds; a longer lap is held
up by whoever else wants it. So laps are short, those on known and on fresh inputs have as many
calls and alternate, and of each round the least of both count.

The least times of all rounds acquit, where eager's fresh calls cost no more than they can: a busy
machine makes laps longer, never shorter. To condemn, the lower quartile of the rounds' excess must
be more than nothing by its bootstrap interval, with all allowed that eager's fresh calls cost and
as much again of what they can not cost; and so it must again in new workers, each of which is first
timed on known inputs as the one before. Where neither comes about, the machine is too noisy and the
speed is called ambiguous. Work that was skipped in the laps that are reported costs its time in
every round.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.contract import seed_everything
from refold.judge.clock import stats
from refold.judge.clock.stopwatch import RoundTrip, lap
from refold.judge.draws.trees import tensors
from refold.judge.truth.oracle import digest
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status, Timing
from refold.judge.wire.host import Host
from refold.judge.worker.leaves import packed

TOLERANCE = 1.2  # clocks and laps must agree within 20 %
_WORKERS = 3  # each of which must be found to have skipped work
_UNDECIDED = 2  # workers of which nothing can be said: the machine is too noisy
_LOOKS = (12, 24, 48)  # rounds after which one may be condemned: each look is a chance to err
_CLAIMS = 30
_SURE = 0.8  # of an interval, for one worker of several
_SECONDS = 16.0  # of a worker, after which no further round begins
_FEW_ROUNDS = 3
_APART, _DEVICE_APART = 20e-6, 80e-6  # a copy's fixed costs; with a transfer and a synchronisation
_BYTES_PER_S = 2e9
_FRESH_BYTES = 64 << 20
_FRESH_CALLS, _LAPS = 48, 6  # of a round
_SHORT, _SHORT_OF_EAGER = 1e-3, 2.5e-3  # seconds of a lap that is not held up each time
_ROUND_SECONDS, _CLAIM_SECONDS = 0.5, 0.1
_IDLE = 0.25  # of one processor; under load a spinner gets a share only
_GRAIN = 5e-6  # seconds a call: what the loop around a call costs differs by as much


@dataclass(frozen=True)
class Reported:
    """Workers of eager and the candidate, with ``sets`` input sets in each, and seconds a call of
    their laps on those."""

    hosts: tuple[Host, Host]
    sets: int
    seconds: tuple[Sequence[float], Sequence[float]]


@dataclass
class _Side:
    """One worker's walls: of each round the least of ``laps`` laps of ``calls`` calls on known
    inputs whose outputs are dropped, and of as many on fresh inputs whose outputs are taken."""

    host: Host
    sets: int
    laps: int
    calls: int
    seen: float  # least seconds a call of the laps that are reported
    usual: float  # their upper quartile: the machine may have been busier or less busy then
    walls: list[tuple[float, float]] = field(default_factory=list)

    def round(
        self, sets: list[list[Any]], size: int, draw: random.Random, samples: int, seed: int | None
    ) -> list[tuple[int, bytes]]:
        """Measure once more on ``sets``; of a call by itself, and of ``samples`` calls of each lap,
        the fastest first, the set and the outputs' bytes. ``seed``: of each call, where outputs
        are random."""
        given = {"slot": size, "flush_bytes": 0, "seed": seed, "keep": self.sets}
        self.host.request("lap_inputs", 120, sets=sets, **given)
        lap(self.host, [self.sets], store=True)
        alone = (0, os.pread(self.host.arena, size, 0))  # read as soon as it had returned
        known, fresh, data = [], [], list[list[tuple[int, bytes]]]()
        for first in range(1, 1 + self.laps * self.calls, self.calls):
            known.append(lap(self.host, [draw.randrange(self.sets), self.calls, self.sets])[0])
            os.pwrite(self.host.arena, b"\xff" * min(size * self.calls, 1 << 20), 0)
            order = [self.sets + first + i for i in range(self.calls)]
            fresh.append(lap(self.host, order, store=True)[0])
            # at once: whatever is still to be written comes too late
            picks = draw.sample(range(self.calls), min(self.calls, samples))
            data.append([(first + i, os.pread(self.host.arena, size, i * size)) for i in picks])
        self.walls.append((min(known), min(fresh)))
        data.insert(0, data.pop(fresh.index(min(fresh))))
        return [alone, *(one for of_lap in data for one in of_lap)]

    def rounds(self) -> list[tuple[float, float]]:
        """Seconds a call, dropped and fresh, of each round; a lap's fixed costs are in both."""
        return [(known / self.calls, fresh / self.calls) for known, fresh in self.walls]

    def least(self, trip: RoundTrip) -> tuple[float, float]:
        """Seconds a call, dropped and fresh, of the least walls."""
        known, fresh = (min(each) for each in zip(*self.rounds(), strict=True))
        return min(self.seen + trip.seconds / self.calls, known), fresh


def check(
    session: Session,
    reported: Reported,
    renewed: Callable[[], Reported],
    timing: Timing,
    trip: RoundTrip,
    size: int,
    slots: int,
    samples: int,
) -> tuple[list[Failure], bool]:
    """Failures of the test ``timed outputs``, and whether the machine let the question be settled.

    ``renewed`` times a new worker with the candidate. ``size`` bytes have the outputs of a call,
    ``slots`` of them fit the arena.
    """
    session.test = "timed outputs"
    found = _idle(session, reported.hosts[1])
    if found or not size:
        return found, True
    laps = _Laps(session, timing, trip, size, slots, samples)
    condemned = undecided = 0
    while True:
        found, doubt = laps.judged(reported)
        if found or not doubt.detail:
            break
        condemned, undecided = condemned + doubt.condemns, undecided + (not doubt.condemns)
        if condemned == _WORKERS:
            detail = f"{doubt.detail}; so it was in each of {condemned} workers"
            found = [session.fail(Status.CHEATS, "parent's clock", detail)]
        if found or undecided == _UNDECIDED:
            break
        reported = renewed()
    settled = bool(found) or not (condemned or undecided)
    return found or _worker_clock(session, reported.hosts[1], timing, trip, laps.calls[1]), settled


def _idle(session: Session, candidate: Host) -> list[Failure]:
    """Whether the candidate works while nobody calls it: that makes eager look slow.

    It stands still while eager is timed; this says that it had to.
    """
    share = 0.0
    for _ in range(3):
        time.sleep(0.1)
        before, began = candidate.cpu_seconds(), time.perf_counter()
        time.sleep(0.2)
        share = (candidate.cpu_seconds() - before) / (time.perf_counter() - began)
        if share < _IDLE:
            return []
    detail = f"it uses {share:.0%} of a processor while nobody calls it"
    return [session.fail(Status.CHEATS, "idle", detail)]


@dataclass(frozen=True)
class _Doubt:
    """What speaks against a candidate, if anything, and whether it suffices."""

    detail: str = ""
    condemns: bool = False


class _Laps:
    """Rounds of laps on known and on fresh inputs, of eager and the candidate."""

    def __init__(
        self,
        session: Session,
        timing: Timing,
        trip: RoundTrip,
        size: int,
        slots: int,
        samples: int,
    ) -> None:
        self.session, self.trip, self.size = session, trip, size
        inputs = session.file_inputs()
        self.seed = session.seed + 7 if stochastic(session, inputs) else None
        why = "depend on the calls before" if session.remembers(session.oracle.training) else ""
        eager_run = session.truth(inputs).eager
        if eager_run is not None and any(eager_run.others):
            why = "depend on random numbers that are not PyTorch's"
        if why:
            session.notes.append(f"outputs {why}: those of timed calls are not compared")
        self.comparable = not why
        self.calls, self.laps = _counts(session, timing, inputs, slots)
        self.samples = 1 if session.frugal else (samples + 1) // 2
        self.draw = random.Random(session.secret)
        self.drawn = 0

    def judged(self, reported: Reported) -> tuple[list[Failure], _Doubt]:
        """Wrong outputs of timed calls, and whether these workers' laps agree."""
        session = self.session
        sides = [
            _Side(host, reported.sets, self.laps, n, min(seconds), stats.quartiles(seconds).high)
            for host, seconds, n in zip(reported.hosts, reported.seconds, self.calls, strict=True)
        ]
        looks, began = (3,) if session.frugal else _LOOKS, time.perf_counter()
        for i in range(looks[-1]):
            self.trip.again()
            sets = self._sets()
            for j in (1, 0) if i % 2 else (0, 1):
                with reported.hosts[1 - j].stopped():
                    data = sides[j].round(sets, self.size, self.draw, self.samples, self.seed)
                if j and self.comparable:
                    # each costs a run in float64: later ones of laps that decide
                    found = _verify(session, sets, data[:2] if i else data, self.size)
                    if found:
                        return found, _Doubt()
            # At first as if fresh inputs and taken outputs cost nothing: what they cost eager is
            # known when the least of a few rounds is.
            most = _dearest(session, self.size)
            early = i + 1 < _FEW_ROUNDS and not session.frugal
            eager, candidate = (side.least(self.trip) for side in sides)
            if _excess(eager, candidate, 0.0 if early else most) <= 0:
                return [], _Doubt()
            late = i + 1 >= looks[0] and time.perf_counter() - began > _SECONDS
            condemned = (late or i + 1 in looks) and self._condemned(sides, most)
            if condemned or late:
                break
        return [], _Doubt(_said(eager, candidate), condemned)

    def _sets(self) -> list[list[Any]]:
        """New inputs for a round."""
        self.drawn += 1000
        first = self.session.secret + self.drawn
        return [
            self.session.reference.inputs(first + j) for j in range(1 + max(self.calls) * self.laps)
        ]

    def _condemned(self, sides: Sequence[_Side], most: float) -> bool:
        rounds = [(*a, *b) for a, b in zip(*(side.rounds() for side in sides), strict=True)]
        usual = [side.usual + self.trip.seconds / side.calls for side in sides]

        def excess(drawn: Sequence[tuple[float, ...]]) -> float:
            return typical_excess(drawn, (usual[0], usual[1]), most)

        return stats.bootstrap(rounds, self.session.seed, excess, _SURE)[0] > 0


def _dearest(session: Session, size: int) -> float:
    """Seconds beyond which a fresh input and a taken output of ``size`` bytes cannot cost a call:
    what eager shows beyond it is noise, and no allowance."""
    moved = size + sum(t.numel() * t.element_size() for t in tensors(session.file_inputs()))
    return moved / _BYTES_PER_S + (_DEVICE_APART if session.device.type == "cuda" else _APART)


def _excess(eager: tuple[float, float], candidate: tuple[float, float], most: float) -> float:
    """Seconds a call by which the candidate's fresh calls cost more than is allowed."""
    apart = min(max(eager[1] - eager[0], 0.0), most)
    return candidate[1] - TOLERANCE * (candidate[0] + apart) - _GRAIN


def typical_excess(
    rounds: Sequence[tuple[float, ...]], usual: tuple[float, float], most: float
) -> float:
    """The lower quartile of the rounds' excess, with all allowed that fresh inputs and taken
    outputs cost eager by theirs, and as much again of what is more than ``most``.

    ``rounds`` has seconds a call of eager, dropped and fresh, and of the candidate. ``usual``: what
    calls cost in the laps that are reported, of eager and the candidate. The candidate's known
    calls cost no more than that, but by as much as eager's have become slower since.
    """
    low = len(rounds) // 4
    slower = sorted(known for known, *_ in rounds)[len(rounds) // 2] / usual[0]
    seen = usual[1] * max(slower, 1.0)
    each = [b - TOLERANCE * min(a, seen) for _, _, a, b in rounds]
    apart = max(sorted(fresh - known for known, fresh, *_ in rounds)[low], 0.0)
    allowed = apart + max(apart - most, 0.0)
    return sorted(each)[low] - TOLERANCE * allowed - _GRAIN


def _counts(
    session: Session, timing: Timing, inputs: list[Any], slots: int
) -> tuple[tuple[int, int], int]:
    """Calls of a lap, of eager and of the candidate, and laps of a round."""
    if session.frugal:
        return (1, 1), 2
    each = [max(side.low, 1e-6) for side in (timing.eager, timing.candidate)]
    held = sum(t.numel() * t.element_size() for t in tensors(inputs))
    most = max(2, min(_FRESH_CALLS, _FRESH_BYTES // max(held, 1), int(_ROUND_SECONDS / max(each))))
    calls = [
        max(1, min(most // _LAPS, slots, int(short / one)))
        for one, short in zip(each, (_SHORT_OF_EAGER, _SHORT), strict=True)
    ]
    return (calls[0], calls[1]), max(2, min(_LAPS, most // max(calls)))


def _said(eager: tuple[float, float], candidate: tuple[float, float]) -> str:
    """What fresh calls cost beyond dropped ones, beside what the same costs eager."""
    return (
        f"calls on new inputs whose outputs are taken cost {candidate[1]:.3g} s each, calls on "
        f"known inputs whose outputs are dropped {candidate[0]:.3g} s; eager's cost "
        f"{eager[1]:.3g} s and {eager[0]:.3g} s"
    )


def _worker_clock(
    session: Session, candidate: Host, timing: Timing, trip: RoundTrip, calls: int
) -> list[Failure]:
    """The worker's claims beside the parent's clock; of several laps the closest counts."""
    if session.frugal or not timing.clock > TOLERANCE:
        return []
    sums, laps = [], max(calls, 2)
    per = max(1, round(_CLAIM_SECONDS / max(timing.candidate.median * laps, 1e-6)))
    for _ in range(_CLAIMS):
        wall, claims = lap(candidate, [0, laps * per])
        each = trip.each(wall, laps * per)
        claimed = claims[0] / (laps * per)
        sums.append(each / max(claimed, 1e-12))
        if sums[-1] <= TOLERANCE or each - claimed < _GRAIN:
            return []
        time.sleep(0.01)
    detail = f"the parent measured at least {min(sums):.2f} times what the worker claims"
    return [session.fail(Status.CHEATS, "worker's clock", detail)]


def _verify(
    session: Session, sets: list[list[Any]], data: list[tuple[int, bytes]], size: int
) -> list[Failure]:
    for index, raw in data:
        truth = session.truth(sets[index])
        if truth.eager is None or truth.exact is None:
            continue
        parts, end = packed(truth.eager.outputs)
        if end > size:
            continue  # a selection by value, larger than that of the file's inputs
        came, got = bytearray(raw), []
        for start, eager in parts:
            there = memoryview(came)[start : start + eager.numel() * eager.element_size()]
            flat = torch.frombuffer(there, dtype=torch.uint8) if len(there) else torch.empty(0)
            got.append(flat.view(eager.dtype).reshape(eager.shape) if len(there) else eager)
        outputs = _replaced(truth.eager.outputs, iter(got))
        found = list(session.compared(f"timed call {index}", outputs, truth, Status.CHEATS))
        if found:
            return found
    return []


def _replaced(tree: Any, came: Iterator[torch.Tensor]) -> Any:
    """The tree with its tensors replaced."""
    if isinstance(tree, torch.Tensor):
        return next(came)
    if isinstance(tree, list | tuple):
        return type(tree)(_replaced(v, came) for v in tree)
    if isinstance(tree, dict):
        return {k: _replaced(v, came) for k, v in tree.items()}
    return tree


def stochastic(session: Session, inputs: list[Any]) -> bool:
    """Whether the reference's outputs are random."""
    mode = session.oracle.training
    truth = session.truth(inputs)
    if session.device.type == "cpu" and truth.eager is not None:
        seed_everything(session.seed + 7)
        return truth.eager.random != digest(torch.get_rng_state())
    runs = [session.oracle.eager(inputs, mode, session.seed + i).outputs for i in (0, 1)]
    a, b = ([digest(t) for t in tensors(r)] for r in runs)
    return a != b
