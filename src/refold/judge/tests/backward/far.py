"""Lives with backwards at values that no ordinary step has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.noise import Noise
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, living, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.worker.steps import Step

_WIDE, _FAR, _PEAK = 4.0, (64.0, 1024.0), 200.0
_SMALL = 14, 44  # powers of a half: rows are shorter then than what keeps from dividing by zero
_BESIDE = 2.0**-10, 2.0**-15  # of a value: how far beside it
_ROUNDED = 2.0**-14  # of gradients: what differs by rounding alone
KINKS = "gradients where inputs or weights are zero are others: functions may have kinks there"


def turning(session: Session, one: Life, label: str) -> Life:
    """The life, whose stamp of gradients holds where the function has a kink: where the reference's
    gradients beside its states and inputs are others, however near. A function that is smooth
    there has one gradient, zeros or not."""

    def turns() -> bool:
        here = life.eager(session, one).seen[label][1]
        for seed in (session.seed + 61, session.seed + 62):
            far, near = (_gradients_beside(session, one, label, seed, step) for step in _BESIDE)
            if far is None or near is None or _jumps(here, far, near):
                return True
        return False

    return replace(one, turns=turns)


def _gradients_beside(
    session: Session, one: Life, label: str, seed: int, step: float
) -> dict[str, Any] | None:
    """The reference's, where states and inputs are moved by about this part of themselves, and
    zeros by this part of the others."""
    noise = Noise(seed)

    def moved(t: torch.Tensor) -> torch.Tensor:
        if not t.is_floating_point() or not t.numel():
            return t
        size = float(t.abs().mean()) or 1.0
        by = step * noise.like(t)
        return torch.where(t == 0, size * by, t * (1 + by)).to(t.dtype)

    states = {n: draws.every(dict(s), moved) for n, s in life.states_of(session, one).items()}
    given = {n: draws.every(v, moved) for n, v in one.inputs.items()}
    seen = life.eager(session, replace(one, inputs=given, own=states)).seen
    found: dict[str, Any] | None = seen[label][1] if label in seen else None
    return found


def _jumps(here: dict[str, Any], far: dict[str, Any], near: dict[str, Any]) -> bool:
    """Whether gradients by name differ from those beside them, and do not come nearer."""
    for name, value in here.items():
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        if not all(isinstance(found.get(name), torch.Tensor) for found in (far, near)):
            return True
        scale = float(value.abs().max())
        first, second = (float((f[name].double() - value).abs().max()) for f in (far, near))
        if not (second <= _ROUNDED * scale or second <= first / 8):
            return True
    return False


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
    sizes = {f"inputs x {_WIDE:g}": _WIDE} | {f"inputs x 2^-{k}": 2.0**-k for k in _SMALL}
    for case, size in sizes.items():
        sized = draws.valued(given, lambda t, size=size: t * size)
        yield Life(case, (*back, numbers, grads), {"x0": sized})
    zeros = draws.valued(given, _zeros)
    stamps = {"gradients": KINKS}
    one = Life("zeros among the inputs", (*back, numbers, grads), {"x0": zeros}, stamps=stamps)
    yield turning(session, one, "gradients")


TESTS: tuple[Test, ...] = (
    living(
        "far gradients",
        "backwards that overflow, or divide by zero, where the forward does not",
        "Gradients of large inputs and of zeros are finite where eager's are; that they are others "
        "at zeros is told; those of tiny inputs are right.",
        _gradients,
        14,
        lives=7,
    ),
)
