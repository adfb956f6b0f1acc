"""lattice: integers on which every float32 order is exact and every narrower operand is not."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.rule import beside
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Enforced only where eager itself is exact; the nearest integer must be the right one."""
    inputs, state = draws.lattice(
        session.cut(session.file_inputs()), session.state("initial"), session.seed + 11
    )
    session.add_state("lattice", state)
    truth = session.truth(inputs, "lattice")
    if truth.eager is None or truth.exact is None:
        raise Skip("the reference does not take integers of this size")
    pairs = list(
        zip(tensors(truth.eager.outputs), tensors(beside.whole(truth.exact.outputs)), strict=True)
    )
    floats = [(a, b) for a, b in pairs if a.is_floating_point()]
    if not floats or not all(
        a.dtype == torch.float32
        and torch.equal(a.to(b), b)
        and torch.equal(b, b.round())
        and int((b.abs() > 4096).sum()) * 2 > b.numel()
        for a, b in floats
    ):
        raise Skip("eager is not exact on the lattice (not a linear operator)")
    reply = session.call(inputs, "lattice")
    session.cases += 1
    got = [t for t in tensors(reply["outputs"]) if t.is_floating_point()]
    for a, (_, b) in zip(got, floats, strict=False):
        if a.shape == b.shape and not torch.equal(a.to(b).round(), b):
            wrong = a.to(b).round() != b
            flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
            yield session.fail(
                Status.WRONG_NUMERICS,
                "lattice",
                f"{int(wrong.sum())} of {b.numel()} integers are wrong, the first "
                f"{float(a.reshape(-1)[flat])} for {float(b.reshape(-1)[flat])}: "
                "an operand or an accumulator is narrower than float32",
            )


TEST = Test(
    "lattice",
    "downcast operands inside summation noise",
    "On integers that float32 adds exactly, the candidate is exact where eager is.",
    run,
)
