"""Lives with backwards at values that no ordinary step has."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from refold.judge import draws
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, living, trained
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.worker.steps import Step

_WIDE, _FAR, _PEAK = 4.0, (64.0, 1024.0), 200.0
KINKS = "gradients where inputs or weights are zero are others: functions may have kinks there"


def _peaked(t: torch.Tensor) -> torch.Tensor:
    t = t.clone(memory_format=torch.contiguous_format)
    if t.dim():
        t[..., 0] += _PEAK
    return t


def _zeros(t: torch.Tensor) -> torch.Tensor:
    """Every second sample, and of the others every third element: as of padding, or behind a
    relu."""
    t = t.clone(memory_format=torch.contiguous_format)
    if t.dim() > 1:
        t[::2] = 0
    t.view(-1)[::3] = 0
    return t


def _gradients(session: Session) -> Iterator[Life]:
    """Values are compared where none is lost; farther away, whether they are numbers at all: of
    what is next to nothing, honest forms keep other digits."""
    given, names = session.inputs(), trained(session)
    if not draws.has_numbers(given):
        return
    back: list[Step] = [*begin(), call("y", grad=True, want=True, see=False)]
    back += [{"do": "backward", "of": "y"}]
    numbers: Step = {"do": "finite", "names": names, "of": "y", "label": "which are finite"}
    grads: Step = {"do": "grads", "names": names, "of": "y", "label": "gradients"}
    far = {f"inputs x {s:g}": draws.valued(given, lambda t, s=s: t * s) for s in _FAR}
    far |= {f"one peak of {_PEAK:g} a row": draws.valued(given, _peaked)}
    for case, changed in far.items():
        yield Life(case, (*back, numbers), {"x0": changed})
    wide = draws.valued(given, lambda t: t * _WIDE)
    yield Life(f"inputs x {_WIDE:g}", (*back, numbers, grads), {"x0": wide})
    zeros = draws.valued(given, _zeros)
    stamps = {"gradients": KINKS}
    yield Life("zeros among the inputs", (*back, numbers, grads), {"x0": zeros}, stamps=stamps)


TESTS: tuple[Test, ...] = (
    living(
        "far gradients",
        "backwards that overflow, or divide by zero, where the forward does not",
        "Gradients of large inputs and of zeros are finite where eager's are; that they are others "
        "at zeros is told.",
        _gradients,
        10,
        lives=5,
    ),
)
