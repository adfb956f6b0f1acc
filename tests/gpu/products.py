"""What tests of products share: operands, results, and their error against float64."""

from __future__ import annotations

import torch

from .library import Product, Split
from .machine import DEVICE


def mode_of(name: str) -> str:
    return name.split("_")[0]


def make(rows: int, cols: int, depth: int, positive: bool = False) -> tuple[torch.Tensor, ...]:
    g = torch.Generator(DEVICE).manual_seed(rows * 7919 + cols * 31 + depth)
    draw = torch.rand if positive else torch.randn
    return tuple(draw(n, depth, generator=g, device=DEVICE) for n in (rows, cols))


def empty(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"), device=DEVICE)


def error(out: torch.Tensor, ref: torch.Tensor, *terms: torch.Tensor) -> float:
    """Relative to the largest of `ref` and the terms that it is a sum of, which may cancel."""
    assert torch.isfinite(out).all()
    largest = max(float(t.double().norm()) for t in (ref, *terms))
    return float((out.double() - ref).norm()) / largest


def sides(name: str, x: torch.Tensor, w: torch.Tensor) -> tuple[Split, Split]:
    """Both operands as the kernel of that name reads them."""
    mode = mode_of(name)
    if mode != "direct":
        return Split(x, mode), Split(w, mode)
    rows, depth = x.shape
    room = empty(rows, (depth + 3) // 4 * 4)  # NaN beyond a row's end, where nothing may read
    room[:, :depth] = x
    return Split(room[:, :depth], mode), Split(w, "ieee")


def plain(name: str, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = empty(x.shape[0], w.shape[0])
    Product(f"plain_{name}", *sides(name, x, w), (), (out,))()
    return out
