"""A second process of the judge: it has the reference live, and compares, while the first does.

Most of a judgement is Python's own work in the judge's process, which no second thread shares. So a
process is forked from this one before the reference is read, and waits. Where the model is small it
reads the reference itself, has a worker of its own, and takes lives from a queue that both take
from: each of these tests builds its modules, so that it does not matter which worker lives it. What
it finds is named by what plain calls showed, which the first process tells. Neither process runs a
line of the candidate. If the second one ends early, the first makes its tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from refold.judge.ask.request import How, Request
from refold.judge.tests.base import Test
from refold.judge.tests.registry import TESTS
from refold.judge.verdict.naming import Plain
from refold.judge.verdict.purse import Purse
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import ErrorStats, Failure, TestReport
from refold.judge.wire import forkserver, memory
from refold.judge.wire.meter import METER, Cell

_STATE = 64 << 20  # bytes of a state from which on it is held once
_IMPORT = 1.0  # seconds of work, above which the candidate is not imported once more
_SETTLED = "modes"  # the last test that says something of plain calls
_LAST = "isolation"  # looks at all that was done before
Each = Callable[[Session, Test, list[Failure], list[TestReport]], None]


@dataclass(frozen=True)
class _Task:
    lives: list[str]
    apart: list[str]
    call_seconds: float
    folder: str


@dataclass(frozen=True)
class _Found:
    failures: list[Failure]
    reports: list[TestReport]
    found: list[Failure]
    errors: list[ErrorStats]
    notes: list[str]
    assumptions: set[str]
    cells: dict[tuple[str, str], Cell]
    walls: dict[str, float]


class Second:
    """The process, from the side of the first."""

    def __init__(self, pid: int, pipe: Connection, queue: int, into: int, purse: Purse) -> None:
        self.pid, self._pipe, self._queue, self._into = pid, pipe, queue, into
        self._purse = purse
        self._told = self._crowded = False

    def suits(self, session: Session, tests: list[Test]) -> bool:
        """Whether it is of use: small models. Where one process would leave tests out, two have
        twice the budget, and what costs most comes last."""
        light = session.oracle.bytes < _STATE and session.import_effort < _IMPORT
        costs = sum(session.cost(t.calls, t.lives) for t in tests if t.calls and not t.apart)
        self._crowded = costs > session.how.budget
        return light and not session.frugal

    def prove(
        self,
        session: Session,
        tests: list[Test],
        failures: list[Failure],
        reports: list[TestReport],
        each: Each,
    ) -> None:
        """Run tests, here and there; ``each`` runs one."""
        lives = [t for t in tests if t.lives and not t.apart]
        apart = [t for t in tests if t.apart]
        own = [t for t in tests if t not in lives and t not in apart and t.name != _LAST]
        with contextlib.suppress(OSError):
            os.write(self._into, bytes(range(len(lives))))
            task = ([t.name for t in lives], [t.name for t in apart])
            self._pipe.send(_Task(*task, session.call_seconds, session.folder))
        os.close(self._into)
        self._into = -1
        session.purse = self._purse
        late = [t for t in own if self._crowded and t.calls]
        for test in (t for t in own if t not in late):
            each(session, test, failures, reports)
            if test.name == _SETTLED:
                self._tell(session.plain)
        self._tell(session.plain)
        for test in _taken(self._queue, lives):
            each(session, test, failures, reports)
        for test in late:
            each(session, test, failures, reports)
        session.how.say("lives")
        self._came()  # all lives are lived
        for test in (t for t in tests if t.name == _LAST):
            each(session, test, failures, reports)
        found = self._came()
        if isinstance(found, _Found):
            session.processes += 1
            _add(session, found, failures, reports)
        made = {report.name for report in reports}
        for test in (t for t in tests if t.name not in made):
            each(session, test, failures, reports)
        order = {test.name: i for i, test in enumerate(tests)}
        reports.sort(key=lambda report: order[report.name])
        failures.sort(key=lambda failure: order.get(failure.test, len(order)))

    def _tell(self, plain: Plain) -> None:
        if not self._told:
            self._told = True
            with contextlib.suppress(OSError):
                self._pipe.send(plain)

    def _came(self) -> object:
        """What it says next; None if it is gone."""
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        """End it, and its workers with it."""
        self._pipe.close()
        os.close(self._queue)
        if self._into >= 0:
            os.close(self._into)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@contextlib.contextmanager
def begun(
    request: Request,
    how: How,
    server: forkserver.ForkServer,
    begin: Callable[[How], Session],
    each: Each,
) -> Iterator[Second | None]:
    """The process inside of the block, or None where there is none; there ``begin`` makes its
    session. It costs nothing until it is asked."""
    second = _forked(how, server, begin, each) if _wanted(request, how) else None
    try:
        yield second
    finally:
        if second is not None:
            second.close()


def _wanted(request: Request, how: How) -> bool:
    """Quick judgements on the CPU: others have all threads wherever they are."""
    whole = request.only is None and request.small is None and not request.in_memory
    processors = len(os.sched_getaffinity(0))
    return whole and how.quick and request.place.type == "cpu" and processors > 1


def _forked(
    how: How, server: forkserver.ForkServer, begin: Callable[[How], Session], each: Each
) -> Second | None:
    try:
        branch = server.branch()
    except OSError:
        return None
    ours, theirs = Pipe()
    purse = Purse(hands=2)
    queue, into = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            _apart(parent)
            ours.close()
            os.close(into)
            forkserver.only(branch)
            with memory.bounded():
                _serve(theirs, queue, lambda: begin(replace(how, progress=None)), each, purse.of(1))
        except BaseException:  # the first process makes the tests
            os._exit(1)
        os._exit(0)
    branch.close()
    theirs.close()
    second = Second(pid, ours, queue, into, purse)
    # a fork keeps the thread that calls it; whatever lock another held would stay locked
    # (NumPy's own threads end before a fork)
    if len(os.listdir("/proc/self/task")) > 1:
        second.close()
        return None
    return second


def _apart(parent: int) -> None:
    """Do not outlive the first process, which is told of interrupts, and what the reference prints,
    it prints there."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _serve(
    pipe: Connection, queue: int, begin: Callable[[], Session], each: Each, purse: Purse
) -> None:
    try:
        task = pipe.recv()
    except EOFError:
        return
    METER.begin()
    session = begin()
    session.purse = purse
    session.call_seconds, session.folder = task.call_seconds, task.folder
    session.learn = pipe.recv
    failures, reports = list[Failure](), list[TestReport]()
    named = {test.name: test for test in TESTS}
    for test in _taken(queue, [named[name] for name in task.lives]):
        each(session, test, failures, reports)
    pipe.send("lived")
    for name in task.apart:
        each(session, named[name], failures, reports)
    METER.enter("after the tests")
    session.dismiss()
    METER.enter("")
    kept = session.found, session.errors, [*session.notes, *session.room.notes]
    pipe.send(_Found(failures, reports, *kept, session.assumptions, METER.cells, METER.walls))
    with contextlib.suppress(EOFError):
        while True:  # until the first process has looked at how this one runs
            pipe.recv()


def _taken(queue: int, tests: list[Test]) -> Iterator[Test]:
    """Tests that this process takes from those that both may take."""
    while number := os.read(queue, 1):
        yield tests[number[0]]


def _add(
    session: Session, found: _Found, failures: list[Failure], reports: list[TestReport]
) -> None:
    failures += found.failures
    reports += found.reports
    session.found += [f for f in found.found if f not in session.found]
    session.errors += found.errors
    session.notes += found.notes
    session.assumptions |= found.assumptions
    METER.take(found.cells, found.walls)
