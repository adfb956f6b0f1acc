"""`judge`: the whole way from two files to a Verdict."""

from __future__ import annotations

import functools
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from refold.contract import ContractError, Reference, Sets, load
from refold.judge import books, clock, compare, forkserver, wire
from refold.judge.host import Host, Limits, Raised, WorkerDied
from refold.judge.leaves import place
from refold.judge.oracle import Oracle
from refold.judge.outside import Outside
from refold.judge.session import Session
from refold.judge.stopwatch import effort
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.registry import CLOCK_TESTS, TESTS, names
from refold.judge.verdict import (
    Failure,
    Status,
    Task,
    TestReport,
    Timing,
    Verdict,
    headline,
)

Progress = Callable[[str], None]
_SLOW = 0.25  # seconds of one reference call above which only the frugal tests run


def judge(
    ref_path: str | Path,
    cand_path: str | Path,
    *,
    sets: Sets = (),
    device: str | None = None,
    quick: bool = False,
    seed: int = 0,
    only: str | Sequence[str] | None = None,
    timing: bool = True,
    compile_baseline: bool = True,
    finite_only: bool | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
    semantic_sets: Sets | None = None,
    secret: int | None = None,
) -> Verdict:
    """Judge a candidate file against a reference file.

    Args:
        ref_path: has ``Model``, ``get_inputs``, and perhaps ``get_init_inputs``.
        cand_path: has ``ModelNew``; it is imported in a worker process only.
        sets: overrides of module-level constants, applied to the reference and, where it has
            them, to the candidate.
        device: ``cpu`` or ``cuda``; by default CUDA where there is one.
        quick: the documented subset, and a short timing without torch.compile.
        seed: reproduces everything drawn.
        only: names of tests to run; no timing unless one of the clock's tests is named.
        timing: whether to measure at all.
        compile_baseline: time torch.compile as well (never with ``quick``).
        finite_only: accept differences on NaN and infinite inputs; by default as the candidate
            declares by a module-level ``REFOLD_ASSUMES = "finite"``.
        progress: called with a word before each step.
        limits: of the workers.
        semantic_sets: where one reference call at ``sets`` takes longer than a quarter second,
            run the tests that need many calls under these sets instead.
        secret: seed of what no candidate may foresee: some inputs, and the sampled timed calls.
            By default the system draws it; the verdict tells it.

    Raises:
        ContractError: the reference does not keep the contract, or a test's name is unknown.
    """
    began = time.perf_counter()
    say = progress or (lambda _: None)
    chosen = _chosen(only)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ContractError(f"expected a CUDA device for device={device!r}, came none; use cpu")
    candidate = Path(cand_path)
    if not candidate.is_file():
        raise ContractError(f"{candidate}: expected a candidate file, came none; check the path")
    limits = limits or Limits()
    # It imports torch while the reference is read.
    server = forkserver.start(torch.get_num_threads())
    say("reference")
    hidden = secrets.randbits(31) if secret is None else secret
    session = _session(load(ref_path, sets), candidate, place, seed, quick, finite_only, limits)
    session.secret = hidden
    session.outside = Outside.now((Path(ref_path), candidate), (server.pid,))
    failures: list[Failure] = []
    reports: list[TestReport] = []
    measured: Timing | None = None
    small: Session | None = None
    if session.frugal and semantic_sets is not None:
        reference = load(ref_path, semantic_sets)
        small = _session(reference, candidate, place, seed, quick, finite_only, limits)
        small.frugal, small.secret, small.outside = False, hidden, session.outside
    wants_clock = timing and (only is None or bool(set(chosen) & set(CLOCK_TESTS)))
    try:
        for part, tests in _parts(session, small, chosen):
            _prove(part, tests, failures, reports, say)
        if wants_clock and session.host is not None and session.host.alive:
            say("timing")
            session.test = "timed outputs"
            try:
                measured = clock.measure(session, failures, reports, compile_baseline and not quick)
            except WorkerDied as error:
                failures.append(session.died(error))
            except Raised as error:
                failures.append(session.fail(Status.CRASHED, "timed call", f"raised {error}"))
    finally:
        for one in (session, small):
            if one is not None and one.host is not None:
                one.host.close()
    sessions = [s for s in (session, small) if s is not None]
    task = books.classify(small or session) if only is None else Task()
    powered = any(s.powered for s in sessions) or "numerics" not in chosen
    order = list(Status)
    failures.sort(key=lambda f: order.index(f.status))
    assumptions = sorted(set().union(*(s.assumptions for s in sessions)))
    return Verdict(
        status=headline(tuple(failures), powered),
        reference=str(ref_path),
        candidate=str(cand_path),
        device=_device_name(place),
        seed=seed,
        quick=quick,
        sets=dict(session.reference.sets),
        tests=tuple(reports),
        failures=tuple(failures),
        errors=tuple(e for s in sessions for e in s.errors),
        timing=measured,
        assumptions=tuple(assumptions),
        notes=tuple(dict.fromkeys(n for s in sessions for n in s.notes)),
        environment=_environment(session),
        seconds=time.perf_counter() - began,
        secret=hidden,
        task=task,
    )


def _chosen(only: str | Sequence[str] | None) -> list[str]:
    if only is None:
        return names()
    wanted = [only] if isinstance(only, str) else list(only)
    unknown = [n for n in wanted if n not in names()]
    if unknown:
        raise ContractError(
            f"expected the name of a test, came {unknown[0]!r}; tests: {', '.join(names())}"
        )
    return wanted


def _parts(
    session: Session, small: Session | None, chosen: Iterable[str]
) -> list[tuple[Session, list[Test]]]:
    tests = [t for t in TESTS if t.name in set(chosen) and (t.quick or not session.quick)]
    if small is None:
        return [(session, tests)]
    # Each test runs once, at the size where it can; contract at both.
    many = [t for t in tests if not t.frugal or t.name == "contract"]
    return [(small, many), (session, [t for t in tests if t.frugal])]


def _session(
    reference: Reference,
    candidate: Path,
    device: torch.device,
    seed: int,
    quick: bool,
    finite_only: bool | None,
    limits: Limits,
) -> Session:
    oracle = Oracle(reference, seed, device)
    threads = torch.get_num_threads()
    session = Session(
        reference=reference,
        candidate=candidate,
        oracle=oracle,
        device=device,
        seed=seed,
        quick=quick,
        limits=limits,
        finite_only=bool(finite_only),
        threads=threads,
    )
    session.frugal = _call_seconds(session) > _SLOW or oracle.bytes > 1 << 29

    def reload() -> Host:
        return _load_candidate(session, finite_only)

    session.reload = reload
    return session


def _call_seconds(session: Session) -> float:
    """Of the reference on its inputs; a busy machine must not make a small model look large."""
    inputs, oracle = session.file_inputs(), session.oracle
    for name, given in (("get_inputs", inputs), ("get_init_inputs", oracle.init)):
        odd = wire.unknown(given) or wire.named_tuple(given)
        if odd:
            raise ContractError(
                f"{session.reference.path}: expected {name}() to give tensors and plain values, "
                f"came {odd}; the judge can send no other to a worker"
            )
    least = float("inf")
    for i in range(4):
        spent = effort()
        try:
            if i:
                oracle.eager(inputs, oracle.training, session.seed)
            else:
                outputs = oracle.first(inputs).outputs
        except (Exception, SystemExit) as error:
            raise ContractError(
                f"{session.reference.path}: expected Model to take get_inputs(), came "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; fix the reference"
            ) from error
        least = min(least, spent())
        if not _SLOW < least < 8 * _SLOW:
            break
    odd = wire.unknown(outputs)
    if odd or not any(isinstance(v, torch.Tensor | int) for _, v in compare.leaves(outputs)):
        raise ContractError(
            f"{session.reference.path}: expected forward to return tensors and plain values, came "
            f"{odd or type(outputs).__name__}; there is nothing else that the judge can compare"
        )
    return least


def _load_candidate(session: Session, finite_only: bool | None) -> Host:
    host = Host(session.limits, session.threads, place=functools.partial(place, session.device))
    began = time.perf_counter()
    try:
        info = host.request(
            "load",
            session.limits.import_seconds,
            path=str(session.candidate.resolve()),
            class_name="ModelNew",
            sets=dict(session.reference.sets),
            init=session.oracle.init,
            seed=session.seed,
            device=str(session.device),
            threads=session.threads,
            watch=True,
        )
    except BaseException:
        host.close()
        raise
    session.workers = "forked" if host.forked else "started afresh"
    session.import_seconds = time.perf_counter() - began
    session.info = {**info["state"], "flags": info["flags"]}
    for word in info["assumes"]:
        if word == "finite" and finite_only is None:
            session.finite_only = True
        text = "finite: declared by the candidate" if word == "finite" else str(word)
        session.assumptions.add(text)
    return host


def _prove(
    session: Session,
    tests: list[Test],
    failures: list[Failure],
    reports: list[TestReport],
    say: Progress,
) -> None:
    """Run tests; a death of the worker ends a test, not the judgement."""
    session.test = "contract"
    say("import")
    began = time.perf_counter()
    try:
        session.worker()
    except Raised as error:
        kind = Status.WRONG_CONTRACT if error.kind == "ContractError" else Status.CRASHED
        failures.append(session.fail(kind, "import", f"raised {error}"))
    except WorkerDied as error:
        failures.append(session.died(error))
    if session.host is None:
        spent = time.perf_counter() - began
        reports.append(TestReport("contract", "a file that imports", "failed", spent, 1))
        return
    for test in tests:
        if session.frugal and not test.frugal:
            note = "one call takes too long for this test; judge a smaller size with --set as well"
            reports.append(TestReport(test.name, test.catches, "skipped", 0.0, 0, note))
            continue
        say(test.name)
        reports.append(_one(session, test, failures))


def _one(session: Session, test: Test, failures: list[Failure]) -> TestReport:
    session.test = test.name
    before, began, note = session.cases, time.perf_counter(), ""
    found: list[Failure] = []
    outcome = "passed"
    try:
        found.extend(test.run(session))
    except Skip as skip:
        outcome, note = "skipped", str(skip)
    except WorkerDied as error:
        found.append(session.died(error))
    except Raised as error:
        found.append(session.fail(Status.CRASHED, "call", f"raised {error}"))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        # An answer of another form than asked for: the worker is not what it was.
        detail = f"an answer that makes no sense ({type(error).__name__}: {error})"
        found.append(session.fail(Status.CRASHED, "answer", detail))
    if found:
        outcome = "failed"
    failures.extend(found[:20])
    spent = time.perf_counter() - began
    return TestReport(test.name, test.catches, outcome, spent, session.cases - before, note)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name()}"
    return f"cpu: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _environment(session: Session) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": session.threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "workers": session.workers,
        "import_seconds": round(session.import_seconds, 3),
    }
