"""What eager's errors say: whether it has kept its digits, and how large they are."""

from __future__ import annotations

from typing import Any

import torch

from refold.judge.draws.trees import inexact
from refold.judge.rule import beside, compare
from refold.judge.truth import runs
from refold.judge.truth.truth import Truth

_POWER = 2.0**-10  # of a row's scale: where eager errs by more, it has lost the values


def has_power(truth: Truth, outputs: Any = None) -> bool:
    """Whether eager's floating outputs, or others than its, are within 2^-10 of float64's. Where
    they are so as it ran, nobody need ask whether its errors are jumps."""
    if truth.plain is None or truth.wide is None:
        return False
    if _near(truth.plain.outputs if outputs is None else outputs, truth.wide.outputs):
        return True
    exact = truth.exact
    assert truth.eager is not None and exact is not None
    return outputs is None and _near(truth.eager.outputs, exact.outputs)


def _near(outputs: Any, truth: Any) -> bool:
    pairs = zip(compare.leaves(outputs), compare.leaves(beside.whole(truth)), strict=True)
    for (_, mine), (_, exact) in pairs:
        if isinstance(mine, torch.Tensor) and inexact(mine) and mine.numel():
            finite = exact[torch.isfinite(exact)].abs()
            scale = float(finite.max()) if finite.numel() else 0.0
            if not runs.distance(mine, exact)[0] <= _POWER * scale:
                return False
    return True


def errors(eager: Any, exact: Any) -> dict[str, float]:
    """Mean squares of eager's errors, of each output of few elements, where its largest is one."""
    found = {}
    for (name, a), (_, b) in zip(compare.leaves(eager), compare.leaves(exact), strict=True):
        numbers = isinstance(b, torch.Tensor) and (b.is_floating_point() or b.is_complex())
        if numbers and 0 < b.numel() < 4096:
            error, scale = (a.to(b) - b).abs(), b.abs().max()
            found[name] = float((error / scale).square().mean())
    return found
