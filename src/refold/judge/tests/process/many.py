"""Very many calls: errors that are rare, memory that is not given back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from refold.judge.clock import arena
from refold.judge.clock.stopwatch import effort_of
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives import outlast
from refold.judge.tests.lives.common import begin, inputs
from refold.judge.truth.copies import duplicate
from refold.judge.truth.truth import Run
from refold.judge.verdict import alongside
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Host, Raised
from refold.judge.wire.memory import open_files, resident, running_threads
from refold.judge.worker.calls import held

_OTHER = 1000  # calls in the other mode
_CALLS, _SECONDS = 6000, 2.0  # of work, where it is one of many tests
_ALONE = 30.0  # seconds of the reference's calls, where it is not
_INPUTS, _LAP = 4, 250
_BYTES = 32 << 20  # of a lap's outputs
_GROWTH = (1, 3, 7)  # parts of all calls after which memory is read
_MOST = 400  # calls of a part; fewer where calls take long
_PACE = 8  # calls that tell how long one takes
_SHOWN = 2 << 20  # bytes of inputs and outputs in a part, of which a leak shows
_LONGEST = 40.0  # seconds of work for all calls, where it is one of many tests
_KEPT = 40  # calls, of which an honest module keeps a few inputs at most
_OPEN = 300  # files, or threads, of which no honest process of a model has so many
_LITTLE = 512  # bytes that a call may keep, or a part of large ones: fragments look so
_AGAIN = 3  # times that growth by little has to show once more
_LEAST = 4096  # bytes of a call's inputs and outputs, of which a leak shows
_IMPORT, _STATE = 1.0, 64 << 20  # seconds, bytes, above which no second worker takes calls

Came = tuple[str, int, bytes]  # a case, which of the inputs it is of, and the outputs' bytes


def _volume(session: Session) -> Iterator[Failure]:
    """Outputs of known inputs, each held against one that was verified."""
    mode = session.oracle.training
    if not (session.random or session.remembers(not mode)):
        far = {"do": "farthest", "inputs": "x0", "label": "the farthest of many"}
        far |= outlast.many(session, _OTHER, _SECONDS / 8)
        case = f"in {'eval' if mode else 'train'} mode"
        status = Status.NONDETERMINISTIC
        one = Life(case, (*begin(not mode), far), inputs(session, 1), status=status)
        yield from alongside.every(session, [one])
    truths = [session.truth(session.inputs(i)) for i in range(_INPUTS)]
    if any(t.eager is None for t in truths) or session.random or session.remembers(mode):
        raise Skip("outputs are not the same each time")
    runs = [t.eager for t in truths if t.eager is not None]
    sizes = {arena.size_of(run.outputs) for run in runs}
    if len(sizes) > 1 or not all(sizes) or any(run.changed for run in runs):
        raise Skip("inputs are written to, or outputs have a size of their own each time")
    (size,) = sizes
    if _side_by_side(session):
        # This thread waits for the one, another thread for the other; what came is compared when
        # both are done, as that may ask the worker for more.
        with ThreadPoolExecutor(1) as pool, _another(session, mode) as host:
            with contextlib.suppress(Skip):
                session.growing = pool.submit(_growth, session, *_leaking(session))
            seen: Iterable[Came] = list(_laps(session, host, runs, size))
    else:
        seen = _laps(session, session.enter(), runs, size)
    for case, which, raw in seen:
        eager = truths[which].eager
        assert eager is not None
        got = arena.outputs(raw, eager.outputs)
        wrong = list(session.compared(case, got, truths[which], Status.NONDETERMINISTIC))
        if wrong:
            yield from wrong
            return
    session.entered("", written=True)


def _laps(session: Session, host: Host, runs: list[Run], size: int) -> Iterator[Came]:
    """Calls on known inputs, of whose outputs each that came for the first time is given."""
    # who asks for this test alone waits for so many calls of any candidate
    most = min(_CALLS, int(_ALONE / max(session.call_seconds, 1e-6))) if session.alone else _CALLS
    short = int(_SECONDS / 4 / max(session.call_seconds, 1e-6))
    slots = max(1, min(_LAP, short, _BYTES // size))
    host.seal_arena(slots * size)
    sets = [session.inputs(i) for i in range(_INPUTS)]
    host.request("lap_inputs", 120, sets=sets, slot=size, flush_bytes=0)
    known: dict[int, set[bytes]] = {i: set() for i in range(len(runs))}
    spent = effort_of(host)
    for done in range(0, max(most, 1), slots):
        if done and not session.alone and spent() > _SECONDS:
            break
        arena.spoil(host, size, slots)
        order = [(done + i) % _INPUTS for i in range(slots)]
        host.request("lap", 120, order=order, store=True)
        session.cases += 1
        for i, which in enumerate(order):
            raw = bytes(arena.read(host, i, size))
            if raw in known[which]:
                continue
            if len(known[which]) < _LAP:
                known[which].add(raw)
            yield f"call {done + i + 1} of many", which, raw


def _side_by_side(session: Session) -> bool:
    """Whether another worker may take these calls while the present one makes those of `leaks`:
    where both are to be done and neither waits for a device, or for a file that takes long to
    import."""
    both = {"volume", "leaks"} <= set(session.request.chosen)
    short = session.import_seconds < _IMPORT and session.oracle.bytes < _STATE
    cheap = session.device.type == "cpu" and session.affords(sum(t.calls for t in TESTS[:2]), 0)
    return both and short and cheap and not (session.alone or session.request.in_memory)


@contextlib.contextmanager
def _another(session: Session, training: bool) -> Iterator[Host]:
    """A second worker with the candidate, in the state and mode of the first."""
    assert session.reload is not None
    with session.reload() as host:
        state = session.state(session.base_state)
        host.request("load_state", session.limits.call_seconds, state=state, how="strict")
        host.request("move", how="train" if training else "eval")
        yield host
        session.ask_guard(host)


def _leaks(session: Session) -> Iterator[Failure]:
    """Memory after more and more calls on new inputs."""
    measured, session.growing = session.growing, None
    found = _growth(session, *_leaking(session)) if measured is None else measured.result()
    session.entered("", written=True)
    session.cases += 1
    for what, before, count, calls in found.open:
        detail = f"{count} {what} are open; before {calls} calls there were {before}"
        yield session.fail(Status.CRASHED, f"{what} left behind", detail)
    if found.slope > min(found.little, found.size / 2):
        detail = (
            f"each call keeps {found.slope:.0f} bytes; its inputs and outputs are {found.size}: "
            "memory grows without end"
        )
        yield session.fail(Status.CRASHED, f"after {found.calls} calls", detail)


def _leaking(session: Session) -> tuple[Host, int]:
    """The worker with inputs that it is to be called on, and the bytes of a call."""
    given = session.inputs()
    truth = session.truth(given)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    held = [*tensors(given), *tensors(truth.eager.outputs)]
    size = sum(t.numel() * t.element_size() for t in held)
    if size < _LEAST or size * _least(size) * _GROWTH[-1] > 1 << 30:
        raise Skip("inputs are too small, or too large, for a leak to show")
    host = session.enter()
    host.request("put", 60, slot="leak", inputs=given)
    return host, size


def _least(size: int) -> int:
    return max(16, -(-_SHOWN // size))


@dataclass(frozen=True)
class Growth:
    """Bytes that each of the last calls kept; files and threads that calls left: of what kind, how
    many before, how many after so many calls."""

    slope: float
    little: float
    size: int
    calls: int
    open: list[tuple[str, int, int, int]]


def _growth(session: Session, host: Host, size: int) -> Growth:
    """What the worker's calls leave. It asks that worker alone, in whatever thread."""
    least, sizes = _least(size), list[tuple[int, int]]()
    spent = effort_of(host)
    host.request("fresh_calls", 120, slot="leak", count=_PACE)
    pace = max(spent() / _PACE, 1e-6)
    if pace * least * _GROWTH[-1] > _LONGEST and not session.alone:
        raise Skip("the candidate's calls take too long for as many as a leak needs to show")
    most = min(_MOST, (1 << 30) // size // _GROWTH[-1])
    if not session.alone:
        most = min(most, int(_LONGEST / 4 / pace / _GROWTH[-1]))
    part, done = max(least, most), 0
    before, left = _held_open(host.pid), list[tuple[str, int, int, int]]()

    def called(count: int) -> None:
        # of work: a busy machine takes several times as long
        patience = 120 + 20 * pace * count
        used = int(host.request("fresh_calls", patience, slot="leak", count=count))
        sizes.append((used, resident(host.pid) if session.device.type == "cpu" else 0))

    def slope_of(count: int) -> float:
        return max(now - then for now, then in zip(sizes[-1], sizes[-2], strict=True)) / count

    for parts in _GROWTH:
        called(parts * part - done)
        done = parts * part
        if parts == _GROWTH[0]:
            left = _left_open(session, before, _held_open(host.pid), part)
    last = part * (_GROWTH[-1] - _GROWTH[-2])
    slope, little = slope_of(last), max(_LITTLE, size / 64)
    for _ in range(_AGAIN):  # what has an end comes to it; a page more or less is chance
        if not little < slope <= size / 2:
            break
        called(last)
        done += last
        slope = min(slope, slope_of(last))
    return Growth(slope, little, size, done, left)


def _held_open(pid: int) -> dict[str, int]:
    return {"files": open_files(pid), "threads": running_threads(pid)}


def _left_open(
    session: Session, before: dict[str, int], after: dict[str, int], calls: int
) -> list[tuple[str, int, int, int]]:
    """Files and threads that calls leave behind; the tests before made thousands of calls."""
    most = sys.maxsize if session.request.in_memory else _OPEN
    grown = [k for k, v in after.items() if v - before[k] >= calls / 2 or v > most]
    return [(what, before[what], after[what], calls) for what in grown]


def _held(session: Session) -> Iterator[Failure]:
    """Inputs that outlive the call, the caller's reference and the outputs."""
    given = session.inputs()
    if session.truth(given).eager is None or not tensors(given):
        raise Skip("the reference does not take its inputs, or has none")
    size = sum(t.numel() * t.element_size() for t in tensors(given))
    if size * _KEPT > 256 << 20:
        raise Skip("inputs are too large for so many to be kept")
    host = session.enter()
    host.request("put", 60, slot="held", inputs=given)
    for grad in (False, True):
        with session.oracle.kept():
            theirs = held(session.oracle.model, duplicate(given, session.device), _KEPT, grad)
        try:
            mine = int(host.request("held", 120, slot="held", count=_KEPT, grad=grad))
        except Raised:  # other tests say so
            continue
        session.cases += 1
        if theirs < _KEPT <= mine:
            where = "with gradients" if grad else "without gradients"
            detail = f"the inputs of all {_KEPT} calls are alive when nobody holds them any more"
            yield session.fail(Status.CRASHED, f"calls {where}", detail)
        elif mine > theirs:
            session.assumptions.add("inputs of its last calls are kept alive")
    session.entered("", written=True)


TESTS: tuple[Test, ...] = (
    Test(
        "volume",
        "errors of one call in thousands",
        "Thousands of calls on known inputs give what a verified one gave, in either mode.",
        _volume,
        calls=600,
    ),
    Test(
        "leaks",
        "inputs or outputs that are kept for ever, little by little, too",
        "Memory, open files and threads stay the same over thousands of calls on new inputs.",
        _leaks,
        calls=1100,
    ),
    Test(
        "kept inputs",
        "inputs that live on when nobody holds them",
        "Of forty calls, with gradients and without, not all inputs are kept; some are told.",
        _held,
        calls=80,
    ),
)
