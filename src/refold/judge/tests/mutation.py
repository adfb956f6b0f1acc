"""mutation: writes to inputs, parameters, buffers or the random state beyond the reference's."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from refold.judge.compare import compare
from refold.judge.session import Session
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict import Failure, Status


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
    if reply["random"] != truth.eager.random:
        yield session.fail(
            Status.MUTATES, "random state", "the generator is not where the reference leaves it"
        )
    if session.frugal:
        return
    after = host.request("state")
    expected = dict(session.state(session.base_state))
    exact = {k: v.double() if v.is_floating_point() else v for k, v in expected.items()}
    for name, value in truth.eager.buffers.items():
        if name in expected:
            expected[name], exact[name] = value, truth.exact.buffers[name]
    for name, value in expected.items():
        if name not in after:
            continue  # the contract test says so
        old = session.state(session.base_state)[name]
        if torch.equal(value, old) and not torch.equal(after[name].to(old.dtype), old):
            if bool((torch.isnan(value) == torch.isnan(after[name])).all()) and torch.equal(
                torch.nan_to_num(value), torch.nan_to_num(after[name])
            ):
                continue
            yield session.fail(Status.MUTATES, name, "the call changed it, the reference does not")
            continue
        spread = session.spread_of(truth, name)
        for result in compare(name, after[name], value, exact[name], spread):
            if not result.agrees:
                kind = Status.WRONG_MODE if name in truth.eager.buffers else Status.MUTATES
                yield session.fail(kind, name, f"after the call: {result.reason}", result.worst)


TEST = Test(
    "mutation",
    "writes to inputs, parameters, buffers or the random state",
    "A call changes nothing that the reference does not change, and what it does, alike.",
    run,
    frugal=True,
)
