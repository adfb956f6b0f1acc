"""From a session to its verdict: the tests, the clock, and what they found."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from refold.judge.clock import inside as clock_inside
from refold.judge.clock import measure
from refold.judge.second import Second
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives import detours, weights
from refold.judge.tests.registry import CLOCK_TESTS, TESTS
from refold.judge.verdict import blame, hints, task_kinds
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import (
    Failure,
    Status,
    Task,
    TestReport,
    Timing,
    Verdict,
    headline,
)
from refold.judge.wire import forkserver
from refold.judge.wire.host import Raised, WorkerDied
from refold.judge.wire.memory import Starved
from refold.judge.wire.meter import METER

T = TypeVar("T")
# need a process, or a file, of one's own
_ISOLATED = ("isolation", "leaks", "pickle", "constructor")
_FIXED = frozenset(  # load no weights
    {"plain output", "numerics", "shapes", "layout", "hostile values", "aliasing", "cache"}
    | {"poison", "repeat", "stream", "flags", "tails", "one large sample", "batches"}
)


def concluded(
    session: Session,
    small: Session | None,
    began: float,
    module: nn.Module | None = None,
    second: Second | None = None,
) -> Verdict:
    """Run the tests and the clock, and say what they found. ``module``: in memory; ``second``: a
    process that may make some of the tests."""
    request, how = session.request, session.how
    sessions = [s for s in (small, session) if s is not None]
    failures: list[Failure] = []
    reports: list[TestReport] = []
    measured: Timing | None = None
    chosen = set(request.chosen)
    wants_clock = how.timing and (request.only is None or bool(chosen & set(CLOCK_TESTS)))
    try:
        for part, tests in _parts(session, small):
            _prove(part, tests, failures, reports, second)
        if wants_clock and (session.apart or (session.host is not None and session.host.alive)):
            how.say("timing")
            session.test = "timed outputs"
            METER.enter("the clock")
            measured = _clock(session, failures, reports, module)
    finally:
        METER.enter("after the tests")
        for one in sessions:
            one.dismiss()
    session.notes += [f"sandbox: {text}" for text in session.missing or ()]
    for one in sessions:
        failures += [f for f in one.found if f not in failures]
    task = Task()
    if request.only is None:
        task = _own(session, failures, lambda: task_kinds.classify(small or session)) or Task()
    powered = any(s.powered for s in sessions) or "numerics" not in chosen
    order = list(Status)
    failures.sort(key=lambda f: order.index(f.status))
    return Verdict(
        status=headline(tuple(failures), powered),
        reference=str(request.reference),
        candidate=str(request.candidate),
        device=device_name(request.place),
        seed=request.seed,
        quick=how.quick,
        sets=dict(session.reference.sets),
        tests=tuple(reports),
        failures=tuple(failures),
        errors=tuple(e for s in sessions for e in s.errors),
        timing=measured,
        assumptions=tuple(sorted(set().union(*(s.assumptions for s in sessions)))),
        notes=tuple(dict.fromkeys(n for s in sessions for n in (*s.notes, *s.room.notes))),
        environment=_environment(session),
        seconds=time.perf_counter() - began,
        secret=session.secret,
        task=task,
        hints=() if request.in_memory else hints.of(request.candidate),
    )


def _parts(session: Session, small: Session | None) -> list[tuple[Session, list[Test]]]:
    chosen = set(session.request.chosen)
    tests = [t for t in TESTS if t.name in chosen and (t.quick or not session.quick)]
    if session.request.in_memory:
        tests = [t for t in tests if t.name not in _ISOLATED and not t.apart]
    if session.fixed:
        tests = [t for t in tests if t.name in _FIXED]
    if small is None:
        return [(session, _ordered(session, tests))]
    # Each test runs once, at the size where it can; contract at both.
    many = [t for t in tests if not t.frugal or t.name == "contract"]
    return [(small, _ordered(small, many)), (session, [t for t in tests if t.frugal])]


def _ordered(session: Session, tests: list[Test]) -> list[Test]:
    """Where the budget has no room for all, those of weights come first, then those that cost
    little: so the most of them run. Each builds modules of its own, so no order is wrong."""
    estimated = [t for t in tests if t.calls and not t.apart]
    costs = {t.name: session.cost(t.calls, t.lives) for t in estimated}
    if sum(costs.values()) <= session.how.budget:
        return tests
    first = {t.name for t in (*weights.TESTS, *detours.TESTS)}
    order = iter(sorted(estimated, key=lambda t: (t.name not in first, costs[t.name])))
    return [next(order) if t.name in costs else t for t in tests]


def _prove(
    session: Session,
    tests: list[Test],
    failures: list[Failure],
    reports: list[TestReport],
    second: Second | None,
) -> None:
    """Run tests; a death of the worker ends a test, not the judgement."""
    session.test = "contract"
    session.how.say("import")
    began = time.perf_counter()
    try:
        session.room.patiently(session.worker, session.relieve)
    except Starved as error:
        failures.append(session.fail(Status.INCONCLUSIVE, "import", str(error)))
    except Raised as error:
        kind = Status.WRONG_CONTRACT if error.kind == "ContractError" else Status.CRASHED
        failures.append(session.fail(kind, "import", f"raised {error}"))
    except WorkerDied as error:
        failures.append(session.died(error))
    if session.host is None:
        spent = time.perf_counter() - began
        reports.append(TestReport("contract", "a file that imports", "failed", spent, 1))
        return
    if second is not None and second.suits(session, tests):
        second.prove(session, tests, failures, reports, each)
        return
    for test in tests:
        each(session, test, failures, reports)


def each(session: Session, test: Test, failures: list[Failure], reports: list[TestReport]) -> None:
    """Run one test, if it applies and the budget has room for it."""
    if session.frugal and not test.frugal:
        note = "one call takes too long for this test; judge a smaller size with --set as well"
        reports.append(TestReport(test.name, test.catches, "skipped", 0.0, 0, note))
        return
    if session.request.only is None and not session.affords(test.calls, test.lives):
        note = f"left out: budget ({test.calls} calls); --full runs it"
        reports.append(TestReport(test.name, test.catches, "skipped", 0.0, 0, note))
        return
    session.how.say(test.name)
    reports.append(_one(session, test, failures))
    session.spend(test.calls, test.lives, reports[-1].seconds, reports[-1].cases)


def _one(session: Session, test: Test, failures: list[Failure]) -> TestReport:
    session.test = test.name
    METER.enter(test.name)
    if test.apart and (session.host is None or not session.apart):
        session.dismiss()
        session.apart = True
    before, began, note = session.cases, time.perf_counter(), ""
    found: list[Failure] = []
    outcome = "passed"

    def run() -> None:
        found.clear()
        found.extend(test.run(session))

    try:
        # Others may use the device, too: then once more, with all results on the CPU.
        session.room.patiently(run, session.relieve)
    except Skip as skip:
        outcome, note = "skipped", str(skip)
    except WorkerDied as error:
        if test.apart:
            session.assumptions.add(f"{test.name}: its process ends where others refuse or answer")
            session.notes.append(f"{test.name}: {error}")
        else:
            found.append(session.died(error))
    except Starved as error:
        found.append(session.fail(Status.INCONCLUSIVE, "memory", str(error)))
    except Raised as error:
        found.append(session.fail(Status.CRASHED, "call", f"raised {error}"))
    except Exception as error:  # the candidate has no part in it: no other verdict would be right
        found.append(_fault(session, error))
    if found:
        outcome = "failed"
    failures.extend(found[:20])
    spent = time.perf_counter() - began
    return TestReport(test.name, test.catches, outcome, spent, session.cases - before, note)


def _clock(
    session: Session,
    failures: list[Failure],
    reports: list[TestReport],
    module: nn.Module | None,
) -> Timing | None:
    baselines = session.how.compile_baseline and not session.quick

    def work() -> Timing:
        if module is not None:
            return clock_inside.measure(session, module)
        return measure.measure(session, failures, reports, baselines)

    try:
        return _own(session, failures, lambda: session.room.patiently(work, session.relieve))
    except Starved as error:  # equality stays what it is
        session.notes.append(f"not timed: {error}")
    except WorkerDied as error:
        failures.append(session.died(error))
    except Raised as error:
        # eager's worker may have found another file than was judged
        found = list(blame.outside(session))
        failures += found
        if not found:
            failures.append(session.fail(Status.CRASHED, "timed call", f"raised {error}"))
    return None


def _own(session: Session, failures: list[Failure], work: Callable[[], T]) -> T | None:
    """What the parent computes by itself; a fault of its own is a finding about the judge."""
    try:
        return work()
    except (WorkerDied, Raised, Starved):
        raise
    except Exception as error:
        failures.append(_fault(session, error))
        return None


def _fault(session: Session, error: Exception) -> Failure:
    """A fault of the judge. It says nothing of the candidate, and the judgement goes on."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    said = " ".join(str(error).split())[:300]
    detail = f"the judge failed ({type(error).__name__} in {where}: {said}); please report it"
    return session.fail(Status.INCONCLUSIVE, "the judge", detail)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name()}"
    return f"cpu: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _kept(session: Session) -> str:
    """What the candidate's workers are kept to."""
    if session.missing is None:
        return "none"
    return "in part: " + "; ".join(session.missing) if session.missing else "whole"


def _environment(session: Session) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": session.threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "workers": session.workers,
        "hash_seed": forkserver.HASH_SEED,
        "processes": session.processes,
        "sandbox": _kept(session),
        "import_seconds": round(session.import_seconds, 3),
    }
