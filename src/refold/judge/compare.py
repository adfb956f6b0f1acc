"""The numerical rule: error against float64 beside eager's own.

A candidate's row passes if its root mean square error and its largest error are each at most K
times eager's plus two units in the last place of that row's scale. Where rows are too short for an
error of their own (fewer than POOL elements), eager's error is pooled over the output. Not-a-number
and infinities have to stand where eager has them, with the same signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

K = {torch.float32: 16.0, torch.float64: 16.0, torch.float16: 3.0, torch.bfloat16: 3.0}
POOL = 64


@dataclass(frozen=True)
class Difference:
    """ratio: error as a multiple of what is allowed. numerics: False for a wrong shape or kind."""

    ratio: float
    detail: str
    numerics: bool = True


def tensors(tree: Any, path: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a tree with their paths."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, (tuple, list)):
        for i, v in enumerate(tree):
            yield from tensors(v, f"{path}[{i}]")
    elif isinstance(tree, dict):
        for k, v in tree.items():
            yield from tensors(v, f"{path}[{k!r}]")


def structure(tree: Any) -> Any:
    """The tree with tensors replaced by their shape and dtype."""
    if isinstance(tree, torch.Tensor):
        return ("tensor", tuple(tree.shape), tree.dtype)
    if isinstance(tree, (tuple, list)):
        return (type(tree).__name__, *(structure(v) for v in tree))
    if isinstance(tree, dict):
        return ("dict", *((k, structure(v)) for k, v in tree.items()))
    return tree


def compare(got: Any, eager: Any, truth: Any) -> Difference:
    """The worst difference between a candidate's outputs and the truth, beside eager's."""
    if structure(got) != structure(eager):
        return Difference(
            float("inf"), f"expected {structure(eager)}, got {structure(got)}", numerics=False
        )
    worst = Difference(0.0, "")
    triples = zip(tensors(got), tensors(eager), tensors(truth), strict=True)
    for (path, g), (_, e), (_, t) in triples:
        found = _compare(path, g, e, t)
        if not found.ratio <= worst.ratio:
            worst = found
    return worst


def _compare(path: str, g: torch.Tensor, e: torch.Tensor, t: torch.Tensor) -> Difference:
    if not g.is_floating_point():
        equal = torch.equal(g, e)
        return Difference(0.0 if equal else float("inf"), "" if equal else f"{path} differs")
    if g.numel() == 0:
        return Difference(0.0, "")
    g64, e64, t64 = g.double(), e.double(), t.double()
    for name, mask in (("NaN", torch.isnan), ("inf", torch.isposinf), ("-inf", torch.isneginf)):
        differs = mask(g64) != mask(e64)
        if differs.any():
            at = tuple(int(i) for i in differs.nonzero()[0])
            return Difference(
                float("inf"),
                f"{path}{list(at)} is {g64[at].item():g} where eager has {e64[at].item():g}"
                f" ({name})",
            )
    usable = e64.isfinite() & t64.isfinite()
    zero = torch.zeros((), dtype=torch.float64)
    width = g.shape[-1] if g.dim() else 1
    ge = torch.where(usable, g64 - t64, zero).reshape(-1, width).abs()
    ee = torch.where(usable, e64 - t64, zero).reshape(-1, width).abs()
    scale = torch.where(usable, t64, zero).reshape(-1, width).abs().amax(1)
    unit = torch.finfo(g.dtype).eps
    floor = 2 * unit * scale
    rms_g, rms_e = ge.square().mean(1).sqrt(), ee.square().mean(1).sqrt()
    max_g, max_e = ge.amax(1), ee.amax(1)
    if width < POOL:
        rms_e = torch.maximum(rms_e, ee.square().mean().sqrt())
        max_e = torch.maximum(max_e, ee.square().mean().sqrt())
    k = K.get(g.dtype, 16.0)
    tiny = torch.finfo(torch.float64).tiny
    ratios = torch.maximum(
        rms_g / (k * rms_e + floor).clamp_min(tiny), max_g / (k * max_e + floor).clamp_min(tiny)
    )
    row = int(ratios.argmax())
    column = int(ge[row].argmax())
    flat = row * width + column
    return Difference(
        float(ratios[row]),
        f"{path} element {flat}: {g64.flatten()[flat]:.9g}, float64 {t64.flatten()[flat]:.9g},"
        f" eager {e64.flatten()[flat]:.9g}",
    )


def relative_error(got: Any, truth: Any) -> float:
    """norm(got - truth) / norm(truth) over all floating outputs, finite elements only."""
    above = below = 0.0
    for (_, g), (_, t) in zip(tensors(got), tensors(truth), strict=True):
        if g.is_floating_point() and g.numel():
            d, t64 = g.double() - t.double(), t.double()
            fine = d.isfinite() & t64.isfinite()
            above += float(d[fine].square().sum())
            below += float(t64[fine].square().sum())
    return float((above / below) ** 0.5) if below else float(above > 0)
