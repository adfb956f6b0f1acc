"""mutation: writes to inputs, parameters, buffers or the random state beyond the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.trees import tensors
from refold.judge.rule.compare import compare
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.once.modes import agree
from refold.judge.truth.copies import duplicate
from refold.judge.truth.truth import Truth
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.worker.leaves import form, versions

_OTHERS = ("Python", "NumPy")


def run(session: Session) -> Iterator[Failure]:
    """One call; everything else must be as the reference leaves it."""
    inputs = session.inputs()
    truth = session.truth(inputs)
    if truth.eager is None or truth.exact is None:
        raise Skip("the reference does not take its inputs")
    host = session.enter()
    if not session.frugal:
        host.request("load_state", state=session.state(session.base_state), how="strict")
        session.entered(session.base_state)
    reply = session.call(inputs)
    session.cases += 1
    for index in set(reply["changed"]) - set(truth.eager.changed):
        yield session.fail(Status.MUTATES, f"input {index}", "the call changed its input")
    for index in set(truth.eager.changed) - set(reply["changed"]):
        yield session.fail(
            Status.MUTATES, f"input {index}", "the reference changes this input, the call did not"
        )
    if sorted(reply["changed"]) == sorted(truth.eager.changed):
        yield from _written(session, truth, reply["written"])
    yield from _forms(session, inputs, reply)
    if reply["random"] != truth.eager.random:
        yield session.fail(
            Status.MUTATES, "random state", "the generator is not where the reference leaves it"
        )
    for whose, mine, theirs in zip(_OTHERS, reply["others"], truth.eager.others, strict=True):
        if mine != theirs:
            text = "moves" if theirs else "leaves alone"
            detail = f"the reference {text} {whose}'s generator, the call does the opposite"
            yield session.fail(Status.MUTATES, f"random state of {whose}", detail)
    if session.frugal:
        return
    after = host.request("state")
    state = session.state(session.base_state)
    for name, old in state.items():
        if name not in after:
            continue  # the contract test says so
        value = truth.eager.buffers.get(name, old)
        if after[name].dtype == value.dtype and torch.equal(after[name], value):
            continue  # most often: weights that nothing has touched, and there may be billions
        if torch.equal(value, old) and not torch.equal(after[name].to(old.dtype), old):
            if bool((torch.isnan(value) == torch.isnan(after[name])).all()) and torch.equal(
                torch.nan_to_num(value), torch.nan_to_num(after[name])
            ):
                continue
            yield session.fail(Status.MUTATES, name, "the call changed it, the reference does not")
            continue
        exact = truth.exact.buffers.get(name)
        if exact is None:
            exact = value.double() if value.is_floating_point() else value
        kind = Status.WRONG_MODE if name in truth.eager.buffers else Status.MUTATES
        given = (after[name], value, exact, kind, "after the call: ")
        yield from agree(session, name, truth, name, *given)
    if reply["forms"][0] == reply["forms"][1]:
        session.entered("")
        yield from _views(session, inputs, truth)


def _forms(session: Session, inputs: list[Any], reply: dict[str, Any]) -> Iterator[Failure]:
    """Arguments lie as they did and want what they wanted: containers, strides, versions."""
    mine_before, mine_after = reply["forms"]
    writes = [i for i, moved in enumerate(reply["counted"]) if moved and i not in reply["changed"]]
    if mine_before == mine_after and not writes:
        return
    session.oracle_enter(session.base_state)
    given = duplicate(inputs, session.device)
    with torch.no_grad(), session.oracle.kept():
        before, counts = form(given), versions(tensors(given))
        session.oracle.model(*given)
        after, moved = form(given), versions(tensors(given))
    if before == after and mine_before != mine_after:
        detail = f"the call changed an argument from {mine_before} to {mine_after}"
        yield session.fail(Status.MUTATES, "arguments", detail[:400])
    for i in writes:
        if i < len(counts) and counts[i] == moved[i]:
            detail = "the call writes to its input, though it leaves the same values there"
            yield session.fail(Status.MUTATES, f"input {i}", detail)


def _views(session: Session, inputs: list[Any], truth: Truth) -> Iterator[Failure]:
    """Memory of which only views are given, that nobody else holds, is still the caller's."""
    reply = session.call(inputs, slot="v", views=True)
    session.cases += 1
    yield from session.compared("views of the inputs", reply["outputs"], truth, Status.MUTATES)
    assert truth.eager is not None
    for index in set(reply["changed"]) - set(truth.eager.changed):
        detail = "the call changed memory of which it was given a view"
        yield session.fail(Status.MUTATES, f"input {index}", detail)


def _written(session: Session, truth: Truth, came: list[torch.Tensor]) -> Iterator[Failure]:
    """What the reference writes into its inputs, by the error rule."""
    assert truth.eager is not None and truth.exact is not None
    order = dict(zip(truth.exact.changed, truth.exact.written, strict=True))
    pairs = zip(truth.eager.changed, truth.eager.written, came, strict=True)
    for index, value, got in pairs:
        exact = order.get(index, value)
        for result in compare(f"input {index}", got, value, exact, None, session.finite_only):
            if not result.agrees:
                detail = f"after the call: {result.reason}"
                yield session.fail(Status.MUTATES, f"input {index}", detail, result.worst)


TEST = Test(
    "mutation",
    "writes to inputs, parameters, buffers or the random state",
    "A call changes nothing that the reference does not change, and what it does, alike.",
    run,
    frugal=True,
)
