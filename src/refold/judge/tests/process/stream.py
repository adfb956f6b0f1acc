"""stream: work that is not finished, or not ordered, when forward returns."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """The output is read at once, then again later; on CUDA under a stream of the caller's."""
    inputs = session.inputs()
    truth = session.truth(inputs)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    for case, draw in (("read at once", 3), ("read at once, again", 4)):
        fresh = session.inputs(draw)
        reply = session.call(fresh, slot="s", settle=0.15)
        session.cases += 1
        if reply["changed_later"]:
            yield session.fail(
                Status.CHEATS, case, "the output went on changing after forward had returned"
            )
            return
    if session.device.type == "cuda":
        for draw in range(3):
            yield from session.check(
                f"caller's own stream ({draw})", session.inputs(draw), Status.CHEATS, stream=True
            )


TEST = Test(
    "stream",
    "a side stream or a thread that is not joined",
    "The work is done, in the caller's order, when forward returns.",
    run,
)
