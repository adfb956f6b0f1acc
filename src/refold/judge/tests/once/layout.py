"""layout: kernels that read strided or misaligned inputs as if they were contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """Transposed, sliced, padded, shifted, expanded and overlapping inputs: all, and one at a
    time."""
    if not tensors(session.inputs()):
        raise Skip("no tensors among the inputs")
    for case, inputs in draws.layouts(session.inputs()):
        yield from session.check(case, inputs)
    truth = session.truth(session.inputs())
    if draws.slices(session.inputs()) and truth.eager is not None and not truth.eager.changed:
        yield from session.check("slices of one tensor", session.inputs(), sliced=True)


TEST = Test(
    "layout",
    "strides, offsets and alignment ignored",
    "Transposed, sliced, expanded, overlapping and misaligned inputs, images with channels last "
    "and slices of one tensor give the same answers.",
    run,
)
