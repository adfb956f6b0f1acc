"""modes: train and eval, running statistics, gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from refold.judge.compare import compare
from refold.judge.host import Raised
from refold.judge.session import Session
from refold.judge.tests.base import Test
from refold.judge.verdict import Failure, Status

INFERENCE_ONLY = "inference only: no gradients where the reference has them"


def run(session: Session) -> Iterator[Failure]:
    """Outputs and buffers in each mode, then gradients in the file's own."""
    inputs = session.inputs()
    for training in (True, False):
        name = "train" if training else "eval"
        yield from session.check(name, inputs, Status.WRONG_MODE, training=training)
        yield from _buffers(session, name, training)
    yield from _gradients(session)


def _buffers(session: Session, name: str, training: bool) -> Iterator[Failure]:
    inputs = session.inputs()
    truth = session.truth(inputs, training=training)
    if truth.eager is None or truth.exact is None or not truth.eager.buffers:
        return
    host = session.worker()
    state = session.base_state
    host.request("load_state", state=session.state(state), how="strict")
    session.entered(state)
    session.call(inputs, training=training)
    after = host.request("state")
    for key, value in truth.eager.buffers.items():
        if key not in after:
            continue
        session.cases += 1
        spread = session.spread_of(truth, key)
        for result in compare(key, after[key], value, truth.exact.buffers[key], spread):
            if not result.agrees:
                yield session.fail(
                    Status.WRONG_MODE,
                    f"{key} after a call in {name} mode",
                    result.reason,
                    result.worst,
                )


def _gradients(session: Session) -> Iterator[Failure]:
    inputs = session.inputs()
    truth = session.truth(inputs, grad=True)
    if truth.eager is None or truth.exact is None or not truth.eager.grads:
        return
    session.cases += 1
    try:
        reply = session.call(inputs, grad=truth.cotangents)
    except Raised as error:
        if "does not require grad" in str(error) or error.kind == "NotImplementedError":
            session.assumptions.add(INFERENCE_ONLY)
        else:
            yield session.fail(Status.CRASHED, "gradients", f"raised {error}")
        return
    yield from session.compared("output with gradients wanted", reply["outputs"], truth)
    grads = reply.get("grads", {})
    wanted = truth.eager.grads
    if not grads:
        session.assumptions.add(INFERENCE_ONLY)
        return
    for name, value in wanted.items():
        if name not in grads:
            if not bool(torch.any(value != 0)):
                continue
            yield session.fail(Status.WRONG_MODE, f"gradient of {name}", "missing")
            continue
        spread = session.spread_of(truth, name)
        for result in compare(name, grads[name], value, truth.exact.grads[name], spread):
            if not result.agrees:
                yield session.fail(
                    Status.WRONG_MODE, f"gradient of {name}", result.reason, result.worst
                )


TEST = Test(
    "modes",
    "train or eval ignored, running statistics, wrong gradients",
    "Both modes, the buffers after a call, and gradients where the reference has them.",
    run,
)
