"""What PyTorch leaves open: which of several equal values ``topk`` or ``sort`` gives first.

The reference runs once more and takes the last of equal values where it took the first. A whole
number that comes out otherwise is free: an honest order may be any. What ``argmax``, ``max`` and a
stable sort give of equal values is said, and stays exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from refold.judge.draws.trees import inexact
from refold.judge.rule import compare, rows
from refold.judge.worker.mode import Mode

_OPEN = ("topk", "sort", "kthvalue", "median", "nanmedian", "mode")
_AXES = {"topk": 2, "kthvalue": 2}  # where the axis stands among the arguments; else second


class Otherwise(Mode):
    """Inside the block equal values come in the other order; ``met``: whether any could."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.met = False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = dict(kwargs or {})
        name = str(getattr(func, "overloadpacket", func)).rpartition(".")[2]
        found = func(*args, **given)
        pair = isinstance(found, tuple) and len(found) == 2
        if name not in _OPEN or not pair or given.get("stable") or not args[0].dim():
            return found
        self.met = True
        at = _AXES.get(name, 1)
        axis = given.get("dim", args[at] if len(args) > at else -1)
        values, index = func(args[0].flip(axis), *args[1:], **given)
        return type(found)((values, args[0].shape[axis] - 1 - index))


def settled(results: list[rows.Comparison], eager: Any, other: Any) -> list[rows.Comparison]:
    """The results, those of whole numbers right where all that is wrong is open."""
    theirs, others = dict(compare.leaves(eager)), dict(compare.leaves(other))
    found = []
    for result in results:
        value, again = theirs.get(result.name), others.get(result.name)
        if (
            not result.agrees
            and result.wrong is not None
            and isinstance(value, torch.Tensor)
            and isinstance(again, torch.Tensor)
            and not inexact(value)
            and value.shape == again.shape == result.wrong.shape
            and not bool((result.wrong & (value == again).to(result.wrong.device)).any())
        ):
            result = replace(result, reason="", worst=None, wrong=None)
        found.append(result)
    return found
