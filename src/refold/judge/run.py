"""`judge`: the whole way from two files to a Verdict."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from refold.contract import Sets, load
from refold.judge import second
from refold.judge.ask.given import Given, duplicate, positional
from refold.judge.ask.request import How, Request, asked
from refold.judge.conclude import concluded, device_name, each
from refold.judge.draws.trees import every
from refold.judge.tests.once import recorded
from refold.judge.verdict import begin, inside, patience
from refold.judge.verdict.room import Room
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import (
    Failure,
    Status,
    Verdict,
)
from refold.judge.wire import forkserver, memory
from refold.judge.wire.host import Host
from refold.judge.wire.memory import Starved
from refold.judge.wire.meter import METER
from refold.judge.wire.outside import Outside
from refold.judge.worker import flags
from refold.judge.worker.leaves import state_of


def judge(ref_path: Any, cand_path: Any, *args: Any, **options: Any) -> Verdict:
    """Judge a candidate file against a reference file; or two modules in memory, see
    `judge_modules`.

    Args:
        ref_path: has ``Model``, ``get_inputs``, and perhaps ``get_init_inputs``.
        cand_path: has ``ModelNew``; it is imported in a worker process only.
        options: the fields of `ask.request.Request` and of `ask.request.How`;
            ``semantic_sets`` stands for ``small``.

    Raises:
        ContractError: the reference does not keep the contract, or a test's name is unknown.
    """
    if isinstance(ref_path, nn.Module):
        return judge_modules(ref_path, cand_path, *args, **options)
    return answer(*asked(ref_path, cand_path, *args, **options))


def answer(request: Request, how: How) -> Verdict:
    """The verdict on a request."""
    began = time.perf_counter()
    METER.begin()
    # It imports torch while the reference is read.
    server = forkserver.start(torch.get_num_threads())
    how.say("reference")
    request = _sealed(request)
    room = Room(request.place, how.say)

    def begin(how: How) -> Session:
        return _begun(request, request.sets, how, Room(request.place))

    with (
        second.begun(request, how, server, begin, each) as beside,
        memory.bounded() if request.place.type == "cpu" else contextlib.nullcontext(),
    ):
        return _answered(request, how, room, server.pid, began, beside)


def _answered(
    request: Request,
    how: How,
    room: Room,
    server: int,
    began: float,
    beside: second.Second | None,
) -> Verdict:
    try:
        session = room.patiently(lambda: _begun(request, request.sets, how, room))
        session.recorded = [] if request.inputs is None else recorded.read(request.inputs)
        watched = (server,) if beside is None else (server, beside.pid)
        session.outside = Outside.now((request.reference, request.candidate), watched)
        small: Session | None = None
        if session.frugal and request.small is not None:
            sizes = request.small
            small = room.patiently(lambda: _begun(request, sizes, how, room))
            small.frugal, small.outside = False, session.outside
        with room.memory(session.wanted), _sandbox(request, session, small):
            return concluded(session, small, began, second=beside)
    except Starved as error:
        return _without_room(request, how, error, began)


@contextlib.contextmanager
def _sandbox(request: Request, *sessions: Session | None) -> Iterator[None]:
    """A folder for the candidate's workers, removed in the end."""
    if not request.sandbox:
        yield
        return
    folder = tempfile.mkdtemp(prefix="refold-sandbox-")
    try:
        for one in sessions:
            if one is not None:
                one.folder = folder
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begun(request: Request, sets: Sets, how: How, room: Room) -> Session:
    with patience.within(how.limits.import_seconds, request.reference):
        reference, numbers = flags.imported(lambda: load(request.reference, sets))
        session = begin.session(reference, request, how, room)
        session.numbers = numbers
        return session


def _without_room(request: Request, how: How, error: Starved, began: float) -> Verdict:
    """No verdict: the reference itself found no memory."""
    case, seed = "before any test", request.seed
    return Verdict(
        status=Status.INCONCLUSIVE,
        reference=str(request.reference),
        candidate=str(request.candidate),
        device=device_name(request.place),
        seed=seed,
        quick=how.quick,
        sets={},
        tests=(),
        failures=(Failure("memory", Status.INCONCLUSIVE, case, str(error), seed),),
        errors=(),
        timing=None,
        assumptions=(),
        notes=(),
        environment={},
        seconds=time.perf_counter() - began,
    )


def judge_modules(
    reference: nn.Module, candidate: nn.Module, *args: Any, **options: Any
) -> Verdict:
    """Judge a module against another, on the arguments of one call and on what is drawn from them.

    Everything runs in this process: nothing is isolated, a candidate that ends the process ends
    it, and the clock says so. Neither module is changed. Where their states have other names, they
    are judged as they are, under no other weights.

    Args:
        reference: taken for right.
        candidate: another form of it: compiled, fused by hand, quantized.
        args: of one call.
        options: keyword arguments of the call; and of the judge ``quick`` (default True),
            ``full``, ``seed``, ``only``, ``timing``, ``finite_only``, ``progress``.

    Raises:
        ContractError: forward does not take the arguments, or a test's name is unknown.
    """
    began = time.perf_counter()
    METER.begin()
    words = {"quick", "full", "seed", "only", "timing", "finite_only", "progress"}
    own = {k: options.pop(k) for k in list(options) if k in words}
    given = positional(reference, args, options)
    names = [Path(f"<{type(m).__name__}>") for m in (reference, candidate)]
    device = next((t.device for t in state_of(reference).values()), torch.device("cpu")).type
    asks, how = asked(*names, in_memory=True, device=device, **{"quick": True, **own})
    request = _sealed(asks)
    taken = Given(reference, [_local(v) for v in given], request.seed)
    session = begin.session(taken, request, how)  # type: ignore[arg-type]
    place = session.device

    def make(_: Any = None) -> nn.Module:
        return duplicate(candidate).to(place)

    session.reload = lambda: _inside(session, make)
    session.workers = "this process"
    session.notes.append(inside.NOTE)
    mine, theirs = (set(m.state_dict()) for m in (make(), session.oracle.model))
    session.fixed = mine != theirs
    if session.fixed:
        session.assumptions.add("the weights as they are: states have other names")
    return concluded(session, None, began, make())


def _inside(session: Session, make: Callable[..., nn.Module]) -> Host:
    worker = inside.Inside(make, session.device)
    session.info = {**worker.request("describe"), "flags": []}
    return worker.host()


def _local(value: Any) -> Any:
    return every(value, lambda t: t.detach().cpu())


def _sealed(request: Request) -> Request:
    """With a secret."""
    hidden = secrets.randbits(31) if request.secret is None else request.secret
    return replace(request, secret=hidden)
