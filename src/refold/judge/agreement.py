"""Does the clock tell the truth: outputs of timed calls, and timed calls on inputs never seen.

The number that is reported comes from laps over rotating inputs whose outputs are dropped. Here the
same calls run on inputs drawn for this purpose, once each, with their outputs taken: work that was
kept back, remembered or skipped costs its full time then. Eager does the same beside it, so that
what fresh inputs and taken outputs cost by themselves is measured, not guessed.

Everything is measured again, on fresh inputs, before a candidate is condemned. The least times
acquit, where eager's fresh calls cost no more than they can: a busy machine makes laps longer,
never shorter. To condemn, the lower quartiles of a dozen rounds must lie beyond what is allowed by
their bootstrap interval as well, with all allowed that eager's show. Where neither comes about, the
machine is too noisy and the speed is called ambiguous. Work that was skipped in the laps that are
reported costs its time in every round.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.contract import seed_everything
from refold.judge import stats
from refold.judge.host import Host
from refold.judge.leaves import packed
from refold.judge.oracle import digest, tensors
from refold.judge.session import Session
from refold.judge.stopwatch import RoundTrip, lap
from refold.judge.verdict import Failure, Status, Timing

TOLERANCE = 1.2  # clocks and laps must agree within 20 %
_ROUNDS = 60
_SECONDS = 25.0  # after which no further round begins
_FEW_ROUNDS = 5
_APART, _DEVICE_APART = 20e-6, 80e-6  # a copy's fixed costs; with a transfer and a synchronisation
_BYTES_PER_S = 2e9
_FRESH_BYTES = 64 << 20
_FRESH_CALLS = 48
_LAP_SECONDS = 0.5
_IDLE = 0.25  # of one processor; under load a spinner gets a share only
_GRAIN = 5e-6  # seconds a call: what the loop around a call costs differs by as much


@dataclass
class _Side:
    """One worker's walls, of each round one of calls on known inputs whose outputs are dropped and
    two laps of ``counts`` calls on fresh inputs whose outputs are taken."""

    host: Host
    counts: tuple[int, int]
    seen: float  # least seconds a call of the laps that are reported
    walls: list[tuple[float, float, float]] = field(default_factory=list)

    def round(
        self,
        sets: list[list[Any]],
        size: int,
        draw: random.Random,
        samples: int,
        seed: int | None,
    ) -> list[tuple[int, bytes]]:
        """Measure once more on ``sets``; of some calls the set and the outputs' bytes. ``seed``:
        of each call, where outputs are random."""
        fewer, more = self.counts
        lap(self.host, [0, 1])  # it may have stood still, and its caches too
        known = lap(self.host, [0, more])[0]
        self.host.request("lap_inputs", 120, sets=sets, slot=size, flush_bytes=0, seed=seed)
        fresh, data = [], []
        for first, calls in ((1, fewer), (1 + fewer, more)):
            lap(self.host, [0], store=True)
            os.pwrite(self.host.arena, b"\xff" * min(size * calls, 1 << 20), 0)
            fresh.append(lap(self.host, list(range(first, first + calls)), store=True)[0])
            with self.host.stopped():
                for pick in draw.sample(range(calls), min(calls, samples)):
                    data.append((first + pick, os.pread(self.host.arena, size, pick * size)))
        self.walls.append((known, fresh[0], fresh[1]))
        return data

    def least(self, trip: RoundTrip) -> tuple[float, float]:
        """Seconds a call, dropped and fresh, of the least walls."""
        known, *fresh = (min(walls) for walls in zip(*self.walls, strict=True))
        fewer, more = self.counts
        # of two laps, so that a lap's fixed costs cancel
        slope = max(fresh[1] - fresh[0], 0.0) / (more - fewer)
        return min(self.seen, trip.each(known, more)), slope

    def rounds(self, trip: RoundTrip) -> list[tuple[float, float]]:
        """Seconds a call, dropped and fresh, of each round."""
        more = self.counts[1]
        return [(trip.each(known, more), trip.each(fresh, more)) for known, _, fresh in self.walls]


def check(
    session: Session,
    eager: Host,
    candidate: Host,
    timing: Timing,
    trip: RoundTrip,
    size: int,
    slots: int,
    samples: int,
) -> tuple[list[Failure], bool]:
    """Failures of the test ``timed outputs``, and whether the machine let the question be settled.

    ``size`` bytes have the outputs of a call, ``slots`` of them fit the arena.
    """
    session.test = "timed outputs"
    found = _idle(session, candidate)
    if found or not size:
        return found, True
    found, calls, settled = _fresh_laps(
        session, eager, candidate, timing, trip, size, slots, samples
    )
    found = found or _worker_clock(session, candidate, timing, trip, calls)
    return found, settled


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


def _fresh_laps(
    session: Session,
    eager: Host,
    candidate: Host,
    timing: Timing,
    trip: RoundTrip,
    size: int,
    slots: int,
    samples: int,
) -> tuple[list[Failure], int, bool]:
    """Failures, the calls of the longer lap, and whether the rounds came to an end by evidence."""
    inputs = session.file_inputs()
    seed = session.seed + 7 if stochastic(session, inputs) else None
    why = "depend on the calls before" if session.remembers(session.oracle.training) else ""
    eager_run = session.truth(inputs).eager
    if eager_run is not None and any(eager_run.others):
        why = "depend on random numbers that are not PyTorch's"
    if why:
        session.notes.append(f"outputs {why}: those of timed calls are not compared")
    counts = _counts(session, timing, inputs, slots)
    draw = random.Random(session.secret)
    samples = 1 if session.frugal else samples  # each costs a run in float64
    sides = (
        _Side(eager, counts, min(timing.samples_eager)),
        _Side(candidate, counts, min(timing.samples_candidate)),
    )
    began, detail = time.perf_counter(), ""
    enough = 3 if session.frugal else 12
    for i in range(enough if session.frugal else _ROUNDS):
        if i >= enough and time.perf_counter() - began > _SECONDS:
            break
        first = session.secret + 1000 * (i + 1)
        sets = [session.reference.inputs(first + j) for j in range(1 + sum(counts))]
        trip.again()
        for side in sides if i % 2 else sides[::-1]:
            data = side.round(sets, size, draw, samples, seed)
            if side.host is candidate and not why:
                found = _verify(session, sets, data, size)
                if found:
                    return found, counts[1], True
        # At first as if fresh inputs and taken outputs cost nothing: what they cost eager is known
        # when the least of a few rounds is.
        most = _dearest(session, size) if i >= _FEW_ROUNDS or session.frugal else 0.0
        detail = _disagreement(sides, trip, most)
        if not detail:
            return [], counts[1], True
        if i + 1 >= enough:
            # By all rounds, not only by the best of them, and by all that fresh inputs and taken
            # outputs cost eager in them: on a busy machine that is more than it should be.
            rounds = [(*a, *b) for a, b in zip(*(s.rounds(trip) for s in sides), strict=True)]
            if stats.bootstrap(rounds, session.seed, _typical_excess)[0] > 0:
                return [session.fail(Status.CHEATS, "parent's clock", detail)], counts[1], True
    return [], counts[1], False


def _dearest(session: Session, size: int) -> float:
    """Seconds beyond which a fresh input and a taken output of ``size`` bytes cannot cost a call:
    what eager shows beyond it is noise, and no allowance."""
    moved = size + sum(t.numel() * t.element_size() for t in tensors(session.file_inputs()))
    return moved / _BYTES_PER_S + (_DEVICE_APART if session.device.type == "cuda" else _APART)


def _excess(eager: tuple[float, float], candidate: tuple[float, float], most: float) -> float:
    """Seconds a call by which the candidate's fresh calls cost more than is allowed."""
    apart = min(max(eager[1] - eager[0], 0.0), most)
    return candidate[1] - TOLERANCE * (candidate[0] + apart) - _GRAIN


def _typical_excess(rounds: Sequence[tuple[float, ...]]) -> float:
    """The excess of lower quartiles: what disturbs a lap makes it longer."""
    columns = [sorted(column)[len(rounds) // 4] for column in zip(*rounds, strict=True)]
    return _excess((columns[0], columns[1]), (columns[2], columns[3]), math.inf)


def _counts(session: Session, timing: Timing, inputs: list[Any], slots: int) -> tuple[int, int]:
    """Calls of the shorter and of the longer lap."""
    if session.frugal:
        return 1, 2
    each = max(timing.candidate.median, timing.eager.median, 1e-6)
    held = sum(t.numel() * t.element_size() for t in tensors(inputs))
    most = min(_FRESH_CALLS, slots, _FRESH_BYTES // max(held, 1), int(_LAP_SECONDS / each))
    more = max(2, most * 3 // 4)
    return max(1, more // 4), more


def _disagreement(sides: tuple[_Side, _Side], trip: RoundTrip, most: float) -> str:
    """What fresh calls cost beyond dropped ones, less what the same costs eager; or nothing."""
    eager, candidate = (side.least(trip) for side in sides)
    if _excess(eager, candidate, most) <= 0:
        return ""
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
    per = max(1, round(_LAP_SECONDS / 5 / max(timing.candidate.median * laps, 1e-6)))
    for _ in range(_ROUNDS // 2):
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
