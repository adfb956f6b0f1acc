"""layout: kernels that read strided or misaligned inputs as if they were contiguous."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


def run(session: Session) -> Iterator[Failure]:
    """Transposed, sliced, padded, shifted and expanded inputs: all, and one at a time."""
    if not tensors(session.inputs()):
        raise Skip("no tensors among the inputs")
    for case, inputs in draws.layouts(session.inputs()):
        yield from session.check(case, inputs)


TEST = Test(
    "layout",
    "strides, offsets and alignment ignored",
    "Transposed, sliced, expanded and misaligned inputs give the same answers.",
    run,
)
