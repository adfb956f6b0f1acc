"""reload: weights baked or folded at some moment and not followed afterwards."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.layouts import otherwise_laid
from refold.judge.draws.trees import inexact
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.once.contract import stale_or_wrong
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL, PERTURBED, SECOND
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised


def run(session: Session) -> Iterator[Failure]:
    """load_state_dict, in-place update, optimizer step, deepcopy, .to() and back, assign, weights
    that lie otherwise in memory."""
    if not session.oracle.bytes:
        raise Skip("no parameters or buffers")
    inputs = session.inputs()
    session.call(inputs)  # whatever is folded at the first call is folded now
    ways = [("load_state_dict", SECOND, "strict"), ("in-place update", PERTURBED, "inplace")]
    if not session.quick:
        ways.append(("load_state_dict(assign=True)", SECOND, "assign"))
    old = session.base_state
    for name, state, how in ways:
        host = session.worker()
        try:
            host.request(
                "load_state", state=session.state(state), how=how, unsaved=session.unsaved()
            )
            session.entered(state)
            reply = session.call(inputs, state)
        except Raised as error:
            yield session.fail(Status.CRASHED, name, f"raised {error}")
            continue
        yield from stale_or_wrong(session, name, reply["outputs"], inputs, state, old)
        old = state
    yield from _step(session)
    yield from _laid_otherwise(session)
    moves = [("deepcopy", "deepcopy")]
    if all(not inexact(v) or v.dtype == torch.float32 for v in _values(session)):
        moves.append((".to(float64) and back", "there_and_back"))
    for name, how in moves:
        session.enter(PERTURBED).request("move", how=how)
        host = session.worker()
        host.request(
            "load_state", state=session.state(SECOND), how="strict", unsaved=session.unsaved()
        )
        session.entered(SECOND)
        try:
            reply = session.call(inputs, SECOND)
        except Raised as error:
            yield session.fail(Status.CRASHED, name, f"raised {error}")
            continue
        case = f"{name}, then load_state_dict"
        found = list(stale_or_wrong(session, case, reply["outputs"], inputs, SECOND, PERTURBED))
        if found and how == "deepcopy" and not _copy_is_whole(session, inputs):
            session.notes.append(f"no power: reload, {case}: eager's copy reads the original, too")
            found = []
        yield from found
        if how == "deepcopy" and not session.remembers(session.oracle.training):
            session.worker().request("move", how="original")
            session.entered(PERTURBED)
            case = "the original, after its copy took other weights"
            yield from session.check(case, inputs, Status.MUTATES, state=PERTURBED)


def _step(session: Session) -> Iterator[Failure]:
    names = [n for n, p in session.oracle.model.named_parameters() if p.is_floating_point()]
    if not names or session.oracle.writes:
        return  # of parameters that a forward writes, the call before decides what is stepped
    rate = 2.0**-6
    start = session.state(PERTURBED)
    moved = {k: v - rate if k in names else v for k, v in start.items()}
    session.add_state("stepped", moved)
    inputs = session.inputs()
    session.call(inputs, PERTURBED)
    session.worker().request("step", names=names, rate=rate)
    session.entered("stepped", written=session.remembers(session.oracle.training))
    reply = session.call(inputs, "stepped")
    yield from stale_or_wrong(
        session, "optimizer step", reply["outputs"], inputs, "stepped", PERTURBED
    )
    host = session.worker()
    host.request(
        "load_state", state=session.state(INITIAL), how="strict", unsaved=session.unsaved()
    )
    session.entered(INITIAL)
    reply = session.call(inputs, INITIAL)
    yield from stale_or_wrong(
        session, "back to the first state", reply["outputs"], inputs, INITIAL, "stepped"
    )


def _laid_otherwise(session: Session) -> Iterator[Failure]:
    """Weights in other strides, as ``to(memory_format=...)`` leaves them; others loaded."""
    if not any(p.dim() > 1 for p in session.oracle.model.parameters()):
        return
    inputs = session.inputs()
    for how, case, state, old in (
        ("strides", "weights in other strides", PERTURBED, INITIAL),
        ("", "weights in other strides, then load_state_dict", SECOND, PERTURBED),
        ("shifted", "weights that begin at odd places", SECOND, PERTURBED),
    ):
        if how:
            session.enter(state).request("move", how=how)
        try:
            reply = session.call(inputs, state)
        except Raised as error:
            yield session.fail(Status.CRASHED, case, f"raised {error}")
            continue
        found = list(stale_or_wrong(session, case, reply["outputs"], inputs, state, old))
        numbers = found and all(f.status is Status.WRONG_NUMERICS for f in found)
        if numbers and not _eager_agrees(session, inputs, state):
            session.notes.append(f"no power: reload, {case}: eager's digits hang on it, too")
            continue
        yield from found
    # who takes the original for such weights shall not do so in the tests to come
    session.worker().request("move", how="contiguous")


def _eager_agrees(session: Session, inputs: list[Any], state: str) -> bool:
    """Whether eager, its weights in other strides, would pass: a convolution may take another
    algorithm then."""
    truth = session.truth(inputs, state)
    session.oracle_enter(state)
    parameters = list(session.oracle.model.parameters())
    kept = [p.data for p in parameters]
    try:
        for p in parameters:
            p.data = otherwise_laid(p.data)
        run = session.oracle.eager(inputs, session.oracle.training, session.seed + 7)
        return session.agrees(run.outputs, truth)
    finally:
        for p, data in zip(parameters, kept, strict=True):
            p.data = data
        session.add_state(state, session.state(state))  # the call may have moved buffers


def _copy_is_whole(session: Session, inputs: list[Any]) -> bool:
    """Whether eager's own copy gives what its weights say. A copy of a module that holds a function
    over one of its parts calls the original's part: it is no copy of that. What such a copy gives
    when either is changed, lives compare with eager's copy."""
    truth, oracle = session.truth(inputs, SECOND), session.oracle
    session.oracle_enter(PERTURBED)
    kept = oracle.model
    try:
        oracle.model = copy.deepcopy(kept)
        oracle.load(session.state(SECOND))
        run = oracle.eager(inputs, oracle.training, session.seed + 7)
        return session.agrees(run.outputs, truth)
    finally:
        oracle.model = kept
        session.add_state(PERTURBED, session.state(PERTURBED))  # the call may have moved buffers


def _values(session: Session) -> list[torch.Tensor]:
    return list(session.state(INITIAL).values())


TEST = Test(
    "reload",
    "weights baked or folded and not followed",
    "After load_state_dict, in-place updates, an optimizer step, deepcopy and .to(), the new "
    "weights count, however they lie in memory.",
    run,
)
