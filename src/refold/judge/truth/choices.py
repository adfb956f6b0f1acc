"""What PyTorch leaves open: which of several equal values ``topk`` or ``sort`` gives first.

The reference runs some times more and takes others of equal values: the last where it took the
first, and then in orders that are drawn, as one other run may give the same by chance. A whole
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


_ORDERS = 8


class Otherwise(Mode):
    """Inside the block equal values come in another order, 0 being the other way round; ``met``:
    whether any could."""

    def __init__(self, order: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.met, self.order = False, order

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
        order = self._drawn(args[0].shape[axis]).to(args[0].device)
        values, index = func(args[0].index_select(axis, order), *args[1:], **given)
        return type(found)((values, order[index]))

    def _drawn(self, size: int) -> torch.Tensor:
        if self.order == 0:
            return torch.arange(size).flip(0)
        return torch.randperm(size, generator=torch.Generator().manual_seed(self.order))


def settled(
    results: list[rows.Comparison], eager: Any, run: Callable[[], Any]
) -> list[rows.Comparison]:
    """The results, those of whole numbers right where all that is wrong is open. ``run``: what the
    reference gives, to compare with ``eager``; None where it gives nothing."""
    for order in range(_ORDERS):
        with Otherwise(order) as other:
            again = run()
        if not other.met or again is None:
            break
        results = _settled(results, eager, again)
        if all(r.agrees for r in results):
            break
    return results


def _settled(results: list[rows.Comparison], eager: Any, other: Any) -> list[rows.Comparison]:
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
        ):
            left = result.wrong & (value == again).to(result.wrong.device)
            if bool(left.any()):
                result = replace(result, wrong=left)
            else:
                result = replace(result, reason="", worst=None, wrong=None)
        found.append(result)
    return found
