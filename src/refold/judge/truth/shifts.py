"""What the gradient through a softmax's own maximum may err by.

A softmax does not change when its scores are shifted, so who writes it out and takes the maximum
off within the graph adds a sum to the gradient of the largest score that is zero, but for rounding.
It is that of all terms of the row, and of long rows much more than the rounding of the one score.
PyTorch's own backward has no such sum. Nor does a moved run show it: moved scores are shifted, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from refold.judge.worker.mode import Mode

_SOFTMAX = torch.ops.aten._softmax_backward_data.default
_LOG = torch.ops.aten._log_softmax_backward_data.default
_HALF_A_UNIT = 0.5


class Shifts(Mode):
    """Adds half a unit in the last place of a row's terms to the gradient of its largest score:
    one rounding of their sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in (_SOFTMAX, _LOG) or not args[0].dim():
            return result
        slope, output, dim = args[:3]
        if func is _SOFTMAX:
            terms = (slope * output).abs().sum(dim, keepdim=True)
        else:
            alone = slope.sum(dim, keepdim=True).abs()  # times probabilities, whose sum is one
            terms = slope.abs().sum(dim, keepdim=True) + alone
        step = _HALF_A_UNIT * torch.finfo(result.dtype).eps * terms
        return result.scatter_add(dim, output.argmax(dim, keepdim=True), step.to(result.dtype))


@contextlib.contextmanager
def shifted() -> Iterator[None]:
    """Backwards of a softmax err so, attention's, too."""
    with step_by_step(), Shifts():
        yield


def step_by_step() -> contextlib.AbstractContextManager[None]:
    """PyTorch's attention is computed by its steps, by none of its kernels."""
    made: contextlib.AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
    return made
