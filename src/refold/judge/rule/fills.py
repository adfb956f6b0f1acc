"""Constants that a mask fills in (-1e9, the least of a dtype): they set no row's scale.

Beside one of them two units in the last place are more than everything else in the row, and any
answer would pass there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

LEAST = 1e4  # smaller constants leave room enough for an error to show
_APART = 4096.0  # times the largest of all other elements
_ENDLESS = (float("inf"), float("-inf"))
_SEVERAL = 2  # distinct constants at most


def removed(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, also: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """All without such constants: zero there, and of the candidate what it is beside them."""
    more = [t.to(eager.device) for t in also]
    for _ in range(_SEVERAL):
        low, high = (float(end) for end in torch.aminmax(eager))
        if low != low or low in _ENDLESS or high in _ENDLESS:
            finite = torch.where(torch.isfinite(eager), eager, 0.0)
            low, high = (float(end) for end in torch.aminmax(finite))
        value = low if -low > high else high
        if abs(value) < LEAST:
            break
        if abs(value) == torch.finfo(eager.dtype).max:
            exact, *more = (_narrowed(t, eager) for t in (exact, *more))
        fill = (eager == value) & (exact.to(eager.dtype) == value)
        others = torch.where(fill, 0.0, eager)
        known = torch.where(torch.isfinite(others), others, 0.0)
        top = max(abs(float(end)) for end in torch.aminmax(known))
        if int(fill.sum()) < 2 or not top * _APART < abs(value):
            break
        beside = got - torch.where(fill, value, 0.0).to(got.dtype)
        close = beside.abs() <= 2 * torch.finfo(got.dtype).eps * abs(value)
        got = torch.where(fill, torch.where(close, 0.0, beside), got)
        eager = others
        exact, *more = (torch.where(fill, 0.0, t) for t in (exact, *more))
    return got, eager, exact, more


def _narrowed(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """The least of float64 stands for that of float32, where eager has it."""
    size = torch.finfo(eager.dtype).max
    same = (eager.abs() == size) & (exact.abs() >= size) & (exact.sign() == eager.sign())
    return torch.where(same, eager.to(exact.dtype), exact)
