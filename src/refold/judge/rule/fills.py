"""Constants that a mask fills in (-1e9, the least of a dtype): they set no row's scale.

Beside one of them two units in the last place are more than everything else in the row, and any
answer would pass there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from refold.judge.rule.beside import Exact, piece, slices

LEAST = 1e4  # smaller constants leave room enough for an error to show
_APART = 4096.0  # times the largest of all other elements
_SEVERAL = 2  # distinct constants at most


@dataclass(frozen=True)
class Fills:
    """The constants of one output. ``narrowed``: the least of float64 stands for that of float32,
    where eager has it."""

    values: tuple[float, ...] = ()
    narrowed: bool = False

    def removed(
        self, got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A part without them: zero there, and of the candidate what it is beside them."""
        if self.narrowed:
            exact = _narrowed(exact, eager)
        for value in self.values:
            fill = _filled(eager, exact, value)
            beside = got - torch.where(fill, value, 0.0).to(got.dtype)
            close = beside.abs() <= 2 * torch.finfo(got.dtype).eps * abs(value)
            got = torch.where(fill, torch.where(close, 0.0, beside), got)
            eager, exact = (torch.where(fill, 0.0, t) for t in (eager, exact))
        return got, eager, exact


def found(eager: torch.Tensor, exact: Exact) -> Fills:
    """The constants of an output, at most two."""
    fills = Fills()
    for _ in range(_SEVERAL):
        value = _outermost(eager, exact, fills)
        if abs(value) < LEAST:
            break
        narrowed = fills.narrowed or abs(value) == torch.finfo(eager.dtype).max
        fills = Fills(fills.values, narrowed)
        count, top = 0, 0.0
        for at in slices(eager.numel(), eager.device):
            own, truth = _part(eager, exact, fills, at)
            fill = _filled(own, truth, value)
            count += int(fill.sum())
            top = max(top, *_ends(torch.where(fill, 0.0, own)))
        if count < 2 or not top * _APART < abs(value):
            break
        fills = Fills((*fills.values, value), narrowed)
    return fills


def _outermost(eager: torch.Tensor, exact: Exact, fills: Fills) -> float:
    """The finite value that is furthest from zero."""
    if not fills.values:
        low, high = (float(end) for end in torch.aminmax(eager))
        if low - low == 0.0 == high - high:  # both finite
            return low if -low > high else high
    value = 0.0
    for at in slices(eager.numel(), eager.device):
        own, _ = _part(eager, exact, fills, at)
        low, high = (float(end) for end in torch.aminmax(_finite(own)))
        value = max(value, high, low, key=abs)
    return value


def _part(
    eager: torch.Tensor, exact: Exact, fills: Fills, at: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    own, truth = piece(eager, at), piece(exact, at)
    return fills.removed(own, own, truth)[1:]


def _ends(t: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(_finite(t))
    return abs(float(low)), abs(float(high))


def _finite(t: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(t), t, 0.0)


def _filled(eager: torch.Tensor, exact: torch.Tensor, value: float) -> torch.Tensor:
    return (eager == value) & (exact.to(eager.dtype) == value)


def _narrowed(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """The least of float64 stands for that of float32, where eager has it."""
    size = torch.finfo(eager.dtype).max
    same = (eager.abs() == size) & (exact.abs() >= size) & (exact.sign() == eager.sign())
    return torch.where(same, eager.to(exact.dtype), exact)
