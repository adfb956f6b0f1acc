"""memory: out-of-bounds reads and writes around the inputs."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge import draws
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.process import sanitizer
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Inputs lie between guard bands of NaN, then of large values; both must not be touched.

    On CUDA one small call also runs under compute-sanitizer, where that is installed.
    """
    inputs = session.inputs()
    if not draws.has_numbers(inputs) or session.truth(inputs).eager is None:
        raise Skip("no floating inputs")
    for fill in (float("nan"), 3.0e4):
        truth = session.truth(inputs)
        # Laid in the worker: bytes around a tensor do not travel.
        session.enter().request("put", slot="g", inputs=inputs, bed=fill)
        reply = session.call(inputs, slot="g", put=False)
        yield from session.compared(f"guard bands of {fill}", reply["outputs"], truth)
        if truth.eager is not None and set(reply["changed"]) - set(truth.eager.changed):
            yield session.fail(
                Status.MUTATES, f"guard bands of {fill}", "memory around an input was written"
            )
    error = sanitizer.memcheck(session)
    if error:
        yield session.fail(Status.CRASHED, "compute-sanitizer", error)


TEST = Test(
    "memory",
    "out-of-bounds reads and writes",
    "Guard bands around the inputs are neither read into the result nor written.",
    run,
)
