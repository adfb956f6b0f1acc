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
    for together, lay in draws.TOGETHER.items():
        inputs = lay(session.inputs())
        truth = session.truth(inputs) if inputs else None
        if truth is not None and truth.eager is not None and not truth.eager.changed:
            yield from session.check(together, inputs, together=together)


TEST = Test(
    "layout",
    "strides, offsets and alignment ignored",
    "Transposed, sliced, expanded, overlapping and misaligned inputs, images with channels last, "
    "slices of one tensor and tensors that begin at one address give the same answers.",
    run,
)
