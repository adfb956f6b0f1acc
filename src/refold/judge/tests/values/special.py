"""A life of calls on inputs of a special form, for which somebody may have a path of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from refold.judge import draws
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, living
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _sparse(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return t * (torch.rand(t.shape, generator=g) < 1 / 16).to(t.dtype)


def _single(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """One element a row, which is not one."""
    if not t.dim() or not t.numel():
        return t
    at = torch.randint(t.shape[-1], (*t.shape[:-1], 1), generator=g)
    values = 2 + torch.rand(at.shape, generator=g)
    return torch.zeros_like(t).scatter_(-1, at, values.to(t.dtype))


def _whole(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return torch.randint(-999, 1000, t.shape, generator=g).to(t.dtype)


def _permuted(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Each row the first one in another order."""
    if t.dim() < 2 or not t.numel():
        return t
    order = torch.rand(t.shape, generator=g).argsort(-1)
    return t[:1].expand(t.shape).gather(-1, order)


def _halves(t: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """The second half of each row like its first."""
    if not t.dim():
        return t
    half = t.shape[-1] // 2
    return torch.cat([t[..., :half], t[..., :half], t[..., 2 * half :]], dim=-1)


def _levels(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Four values in all."""
    return torch.tensor([-1.5, -0.25, 0.5, 2.0]).to(t.dtype)[torch.randint(4, t.shape, generator=g)]


# few bits where values repeat: sums of them are exact in any order
FORMS: tuple[tuple[str, Change], ...] = (
    ("one value everywhere", lambda t, _: torch.full_like(t, 1.5)),
    ("one value a row", lambda t, g: _levels(t[..., :1] if t.dim() else t, g).expand_as(t).clone()),
    ("mostly zeros", _sparse),
    ("one element a row", _single),
    ("whole numbers", _whole),
    ("four values", _levels),
    ("no value below zero", lambda t, _: t.abs()),
    ("no value above zero", lambda t, _: -t.abs()),
    ("rows that ascend", lambda t, _: t.sort(-1).values if t.dim() else t),
    ("rows that descend", lambda t, _: t.sort(-1, descending=True).values if t.dim() else t),
    ("rows of the same values in another order", _permuted),
    ("two halves alike", _halves),
    ("all within a few units of one", lambda t, _: 1 + t / 2**12),
)


def _special(session: Session) -> Iterator[Life]:
    given = session.inputs()
    if not draws.has_floats(given):
        return
    generator = torch.Generator().manual_seed(session.seed + 91)
    for case, change in FORMS:
        changed = {"x0": draws.mapped(given, lambda t, c=change: c(t, generator))}
        yield Life(case, (*begin(), call("y")), changed, status=Status.WRONG_NUMERICS)


TESTS: tuple[Test, ...] = (
    living(
        "special values",
        "paths for inputs of a special form",
        "Constant, sparse, whole, sorted, repeated inputs and such of a few values.",
        _special,
        16,
        lives=13,
    ),
)
