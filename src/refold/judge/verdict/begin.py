"""How a session begins: the reference is tried, the candidate is loaded into a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from refold.contract import ContractError, Reference
from refold.judge.ask.request import How, Request
from refold.judge.clock.stopwatch import effort, effort_of
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import compare
from refold.judge.truth.oracle import Oracle
from refold.judge.truth.runs import distance
from refold.judge.verdict.room import Room, starving, wanted
from refold.judge.verdict.session import Session
from refold.judge.wire import sent
from refold.judge.wire.host import Host
from refold.judge.worker import flags

_LOST = 2.0**-6  # of the outputs' scale, by which two runs differ that one seed does not fix
_FEW = 0.1  # of exact values that may be ties
_SLOW = 0.25  # seconds of one reference call above which only the frugal tests run
_HOPELESS = 64  # times that: no second call is tried
_MANY = 1 << 29  # bytes of a state above which only those run


def session(reference: Reference, request: Request, how: How, room: Room | None = None) -> Session:
    """A session on a reference, its candidate not loaded yet.

    Raises:
        ContractError: the reference does not take its own inputs, or takes or gives what no
            worker can be sent.
    """
    oracle = Oracle(reference, request.seed, request.place)
    one = Session(
        reference=reference,
        request=request,
        how=how,
        oracle=oracle,
        finite_only=bool(request.finite_only),
        threads=torch.get_num_threads(),
    )
    one.room = room or Room(request.place, how.say)
    worked, one.call_seconds = _call_seconds(one)
    one.large = worked > _SLOW
    if one.samples is not None:
        one.call_seconds = oracle.call_seconds(one.cut(one.file_inputs()))
        worked = min(worked, one.call_seconds)
    one.frugal = worked > _SLOW or oracle.bytes > _MANY
    if not one.frugal:
        _repeated(one)
    one.reload = lambda extra=None: _load_candidate(one, extra)
    return one


def _call_seconds(session: Session) -> tuple[float, float]:
    """Of the reference on its inputs: of work (a busy machine must not make a small model look
    large), and by the wall."""
    inputs, oracle = session.file_inputs(), session.oracle
    sent.check_arguments(session.reference.path, inputs, oracle.init)
    least = passed = float("inf")
    for i in range(4):
        spent, began = effort(), time.perf_counter()
        try:
            if i:
                oracle.eager(inputs, oracle.training, session.seed)
            else:
                outputs = oracle.first(inputs).outputs
        except (Exception, SystemExit) as error:
            if starving(error):
                raise
            raise ContractError(
                f"{session.reference.path}: expected Model to take get_inputs(), came "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; fix the reference"
            ) from error
        least, passed = min(least, spent()), min(passed, time.perf_counter() - began)
        # A first call may start a device, compile, or fill tables; others may hold the processors
        # for as long as one call passes: either says little of the others.
        hopeless = (8 if i else _HOPELESS) * _SLOW
        if not any(_SLOW < seconds < hopeless for seconds in (least, passed)):
            break
    sent.check_results(session.reference.path, outputs)
    session.wanted = _wanted(session, inputs, outputs)
    session.find_cut(outputs)
    # the first call paid for much that the others do not; of fewer samples see `session`
    if passed < _SLOW and session.samples is None:
        passed = min(passed, oracle.call_seconds(inputs))
    return least, passed


def _repeated(session: Session) -> None:
    """Refuse a reference that answers otherwise under one seed: nobody could be held to it."""
    oracle, given = session.oracle, session.cut(session.file_inputs())
    try:
        runs = [oracle.eager(given, oracle.training, session.seed + 7).outputs for _ in range(2)]
    except Exception as error:  # it runs on its inputs, as was tried
        if starving(error):
            raise
        return
    for (name, a), (_, b) in zip(*map(compare.leaves, runs), strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _others(a, b):
            raise ContractError(
                f"{session.reference.path}: expected the same outputs under the same seed, came "
                f"others in {name} of a second run; draw by the generators of PyTorch, NumPy or "
                "Python's random, which are seeded, and keep in buffers what a call leaves"
            )


def _others(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two runs differ by more than the order of their sums."""
    if a.shape != b.shape:
        return True
    if not inexact(a):
        return int((a != b).sum()) > _FEW * a.numel()
    usual, _ = distance(a, b)
    scale = torch.view_as_real(b.resolve_conj()) if b.is_complex() else b
    finite = scale[torch.isfinite(scale)].double().abs()
    return bool(finite.numel()) and usual > _LOST * float(finite.max())


def _wanted(session: Session, inputs: list[Any], outputs: Any) -> int:
    """Bytes that the judgement takes, by estimate."""
    oracle = session.oracle
    results = sum(t.numel() * t.element_size() for t in [*tensors(inputs), *tensors(outputs)])
    # of temporaries the CPU tells nothing
    forward = 2 * results
    if session.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(session.device)
        before = torch.cuda.memory_allocated(session.device)
        oracle.eager(inputs, oracle.training, session.seed)
        forward = torch.cuda.max_memory_allocated(session.device) - before
    return wanted(session.device, forward, results, oracle.bytes)


def _load_candidate(session: Session, extra: Mapping[str, str] | None = None) -> Host:
    host = Host(session.limits, session.threads, extra=extra, place=session.oracle.place.of)
    began, spent = time.perf_counter(), effort_of(host)
    try:
        if session.folder:
            # before its first line: the answer is the judge's own
            given = {"folder": session.folder, "device": str(session.device)}
            session.missing = host.request("sandbox", session.limits.import_seconds, **given)
            if not host.forked:
                session.missing.append("threads that were there before are not kept to it")
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
            switches=flags.set_by_files(),
            numbers=session.numbers,
        )
    except BaseException:
        host.close()
        raise
    if not extra:
        session.workers = "forked" if host.forked else "started afresh"
    session.import_seconds = time.perf_counter() - began
    session.import_effort = spent()
    session.info = {**info["state"], **{k: info[k] for k in ("flags", "generator")}}
    if info.get("hushed"):
        session.assumptions.add("all warnings of its process are ignored from its import on")
    for word in info["assumes"]:
        if word == "finite" and session.request.finite_only is None:
            session.finite_only = True
        text = "finite: declared by the candidate" if word == "finite" else str(word)
        session.assumptions.add(text)
    return host
