"""Fair timing: eager and the candidate in equal workers, by the parent's own clock.

Warm laps on known inputs give the printed times (`alternate`). Sealed calls, whose inputs are
revealed when the clock starts, say what of them stands (`sealed`, `decide`). No claim of a worker
enters a result, and no number condemns: only a wrong output, a patched function, other processes
that were changed, each seen again in a new worker.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from refold.judge.clock import device, load, outputs, sealed, smi, stats
from refold.judge.clock.alternate import LONG, QUICK, Alternation, Budget
from refold.judge.clock.decide import ROUNDS, Decision, Round, decide
from refold.judge.clock.stopwatch import RoundTrip, lap
from refold.judge.clock.table import Table, fresh, ready, workers
from refold.judge.draws.trees import tensors
from refold.judge.verdict import blame
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import SECOND
from refold.judge.verdict.verdict import Failure, Quartiles, Status, TestReport, Timing
from refold.judge.wire.host import Host, Raised, WorkerDied

_CACHE = 64 << 20  # bytes flushed between cold calls; more than a last-level cache
_SETS_BYTES = 256 << 20
_LARGE = 64 << 20  # bytes of a call's outputs, of which one a round is compared
_CUDA_BYTES_PER_S = 16e12  # above the L2 rate of any present device
_TRANSPORT = 60e-6  # seconds that handing inputs and outputs over takes at least, by judgement
_MOST_CALLS = 24  # of a sealed lap
_DRAWN_BYTES = 64 << 20  # of a round's inputs
_CONTROL_EACH = 3  # rounds, of which one has the second eager
_CATCHES = {
    "timed outputs": "a fast path for the clock only, deferred work, a false clock",
    "work": "no kernel at all",
}


def measure(
    session: Session, failures: list[Failure], reports: list[TestReport], compiled: bool
) -> Timing:
    """Time the candidate against eager; failures of the clock's tests are appended.

    Others prove meanwhile, but none times on the device.

    Raises:
        Starved: memory was exhausted, or others timed too long.
    """
    with session.room.clock(session.threads):
        return _measure(session, failures, reports, compiled)


def _measure(
    session: Session, failures: list[Failure], reports: list[TestReport], compiled: bool
) -> Timing:
    began, before = time.perf_counter(), load.pressure()
    budget = QUICK if session.quick else LONG
    sets = _input_sets(session)
    with contextlib.ExitStack() as stack:
        # nvidia-smi takes seconds on some machines
        beside = stack.enter_context(ThreadPoolExecutor(1))
        before_smi = beside.submit(smi.read, session.device)
        table = workers(session, stack, sets)
        before_smi.result()
        first = _first_call(session, table.candidate)
        trip = RoundTrip(table.eager)
        run = Alternation(session, table.eager, table.candidate, len(sets), trip, budget)
        run.go()
        run.go_cold()
        run.go_on()
        session.test = "timed outputs"
        known = len(session.notes)
        found = list(blame.outside(session, table.eager.pid, table.null.pid))
        moved = any(note.startswith(blame.MOVED) for note in session.notes[known:])
        timing = run.timing(first, _roofline(session))
        rounds, wrong = _sealed(session, table, timing, budget)
        after_smi = beside.submit(smi.read, session.device)  # while nothing is timed
        found += _again(session, table, sets, trip, timing, budget, wrong) if wrong else []
        found += [] if found else _idle(session, table)
        notes = [timing.note] if timing.note else []
        busy = blame.MOVED if moved else load.loaded(before, load.pressure())
        warm = (timing.ratio, timing.ratio_low, timing.ratio_high)
        made = decide(rounds, warm, busy, _impossible(timing), session.seed)
        timing, notes = _told(timing, made, rounds), [*notes, made.note]
        if session.device.type == "cuda":
            events = [statistics.median(side) * 1e6 for side in run.events]
            notes.append(f"device events: eager {events[0]:.1f} us, candidate {events[1]:.1f} us")
            notes += device.graphs(table.eager, table.candidate, timing)
            found += [] if session.quick else device.kernels(session, table.candidate)
            notes.append(smi.note(before_smi.result(), after_smi.result()))
        baselines: dict[str, Quartiles] = {}
        whynot: dict[str, str] = {}
        if compiled:
            baselines, whynot = _compiled(session, table.eager, sets, trip, budget)
    failures.extend(found)
    spent = time.perf_counter() - began
    for name, catches in _CATCHES.items():
        outcome = "failed" if any(f.test == name for f in found) else "passed"
        seconds, count, note = spent, len(rounds), ""
        if name == "work":
            seconds, count, note = 0.0, 1, _no_profile(session)
            outcome = "skipped" if note else outcome
        reports.append(TestReport(name, catches, outcome, seconds, count, note))
    return replace(timing, compiled=baselines, compiled_notes=whynot, note="; ".join(notes))


def _sealed(
    session: Session, table: Table, timing: Timing, budget: Budget
) -> tuple[list[Round], list[Failure]]:
    """Rounds of sealed calls, and outputs of them that are wrong."""
    like = session.file_inputs()
    calls = _calls(session, timing, like, budget)
    draw = random.Random(session.secret)
    why = outputs.incomparable(session)
    if why:
        session.notes.append(f"outputs {why}: those of timed calls are not compared")
    if not table.size:
        return [], []

    def side(host: Host) -> sealed.Side:
        return sealed.Side(host, like, table.size, table.offset, table.seed)

    eager, candidate, null = (side(h) for h in (table.eager, table.candidate, table.null))
    control = None if table.control is None else side(table.control)
    rounds: list[Round] = []
    short = table.size > _LARGE and _too_long(null, session.drawn(session.secret), budget)
    if short:
        session.notes.append(
            f"a sealed call hands {table.size >> 20} MB over: {ROUNDS} rounds would take too long, "
            "one call was looked at"
        )
    began, drawn = time.perf_counter(), session.secret
    while len(rounds) < budget.rounds:
        drawn += 1000
        sets = [session.drawn(drawn + i) for i in range(calls)]
        if not all(sealed.same_form(one, like) for one in sets):
            session.notes.append("inputs of other shapes each time: no sealed calls")
            return [], []
        few = session.frugal or table.size > _LARGE
        keep = draw.sample(range(calls), min(calls, 1 if few else budget.samples))
        keep = [] if why else keep
        sides = [candidate] if short else [eager, candidate]
        draw.shuffle(sides)
        if control is not None and len(rounds) % _CONTROL_EACH == 0 and not short:
            sides.insert(draw.randrange(3), control)
        buffers = [sealed.written(one) for one in sets]
        kept: dict[int, bytearray] = {}
        for one in sides:
            still = one is not candidate
            # whatever the candidate does while it is not called, it does not do it now
            with table.candidate.stopped() if still else contextlib.nullcontext():
                if not short:
                    null.lap(buffers)
                found = one.lap(buffers, () if still else keep)
            kept = kept if still else found
        if not short:
            rounds.append(_round(null, eager, candidate, control if control in sides else None))
        while kept:
            number, raw = kept.popitem()
            wrong = list(outputs.verified(session, f"timed call {number}", sets[number], raw))
            if wrong:
                return rounds, wrong
        spent = time.perf_counter() - began
        if short or spent > (budget.sealed if len(rounds) >= ROUNDS else 3 * budget.sealed):
            break
    if not why and not session.frugal and table.slots > 1:
        sets = [session.drawn(drawn + 500 + i) for i in range(8)]
        row = outputs.in_a_row(
            session, table.candidate, sets, table.size, table.slots, table.seed, draw
        )
        return rounds, list(row)
    return rounds, []


def _too_long(null: sealed.Side, inputs: list[Any], budget: Budget) -> bool:
    """Whether so few rounds as say nothing would fit: a lap of two calls for each of two sides and
    the transport before either, by what two calls of the null model take."""
    began = time.perf_counter()
    null.lap([sealed.written(inputs)])
    null.spans.pop()
    return 4 * ROUNDS * (time.perf_counter() - began) > 3 * budget.sealed


def _round(
    null: sealed.Side, eager: sealed.Side, candidate: sealed.Side, control: sealed.Side | None
) -> Round:
    transport = statistics.median(null.spans[-1] + null.spans[-2])
    last = [one.seconds()[-1] for one in (eager, candidate)]
    return Round(transport, last[0], last[1], control.seconds()[-1] if control else math.nan)


def _calls(session: Session, timing: Timing, like: list[Any], budget: Budget) -> int:
    """Calls of a sealed lap: the warm laps' time, as far as inputs for them can be drawn."""
    each = max(timing.eager.median, timing.candidate.median) + _TRANSPORT
    most = max(1, _DRAWN_BYTES // max(sealed.inputs_size(like), 1))
    return int(max(1, min(_MOST_CALLS, most, budget.block / each)))


def _again(
    session: Session,
    table: Table,
    sets: list[list[Any]],
    trip: RoundTrip,
    timing: Timing,
    budget: Budget,
    wrong: list[Failure],
) -> list[Failure]:
    """The same in a new worker: a wrong output that comes about again is no accident."""
    table.candidate = fresh(session)
    ready(table.candidate, table, sets)
    again = Alternation(session, table.eager, table.candidate, len(sets), trip, budget)
    again.go()
    again.go_on()
    if _sealed(session, table, timing, budget)[1]:
        return wrong
    words = "; a new worker was right"
    return [replace(f, status=Status.NONDETERMINISTIC, detail=f.detail + words) for f in wrong]


def _idle(session: Session, table: Table) -> list[Failure]:
    """Whether the candidate works while nobody calls it, in two workers."""
    if not outputs.idle(table.candidate):
        return []
    table.candidate = fresh(session)
    table.candidate.request("put", 60, slot="idle", inputs=session.file_inputs())
    table.candidate.request("call", 60, slot="idle")
    share = outputs.idle(table.candidate)
    if not share:
        return []
    detail = f"it works {share:.0%} of the time while nobody calls it, in each of two workers"
    return [session.fail(Status.CHEATS, "idle", detail)]


def _impossible(timing: Timing) -> str:
    """Why the candidate's time cannot be: it is below the roofline, and eager's is not. Where
    eager is faster too, the function need not touch all of that (views, selections)."""
    bound = timing.roofline_seconds
    if timing.candidate.high >= bound or timing.eager.low < bound:
        return ""
    return (
        f"{timing.candidate.median:.3g} s a call, but reading the inputs and writing the output "
        f"takes at least {bound:.3g} s"
    )


def _no_profile(session: Session) -> str:
    """Why kernels are not counted, if they are not."""
    if session.device.type != "cuda":
        return "there are kernels on a GPU only"
    return "left out: a profiler takes seconds to start; without --quick it runs" * session.quick


def _told(timing: Timing, made: Decision, rounds: list[Round]) -> Timing:
    return replace(
        timing,
        speed=made.speed,
        ratio=made.ratio,
        ratio_low=made.low,
        ratio_high=made.high,
        headline=made.headline,
        warm=(timing.ratio, timing.ratio_low, timing.ratio_high),
        sealed=made.sealed,
        control=made.control,
        rounds=len(rounds),
    )


def _input_sets(session: Session) -> list[list[Any]]:
    """Enough draws of the file's inputs to leave the cache, as far as memory allows."""
    if session.frugal:
        return [session.file_inputs(), session.inputs()]  # their truths are known already
    first = [session.file_inputs()]  # of large inputs a draw takes a second
    size = sum(t.numel() * t.element_size() for t in tensors(session.file_inputs()))
    wanted = math.ceil(2 * _CACHE / max(size, 1))
    count = max(2, min(wanted, 4 if session.quick else 16, _SETS_BYTES // max(size, 1)))
    first = first if size > _SETS_BYTES else []
    return first + [session.drawn(session.seed + 5000 + i) for i in range(count - len(first))]


def _first_call(session: Session, candidate: Host) -> float:
    """Seconds of the first call after a state was loaded: what folding costs."""
    if session.frugal:
        return lap(candidate, [0, 1])[0]
    seconds = []
    for name in (SECOND, session.base_state) * 2:
        candidate.request("load_state", 120, state=session.state(name), how="strict")
        seconds.append(lap(candidate, [0, 1])[0])
    return min(seconds)


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


def _compiled(
    session: Session, eager: Host, sets: list[list[Any]], trip: RoundTrip, budget: Budget
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
