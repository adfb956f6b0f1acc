"""In the worker: what a call of the candidate meets: filled memory, another stream, dirty heaps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

Tree = Any


def forward(model: nn.Module, inputs: list[Any], nan_fill: bool) -> Tree:
    """One call; with ``nan_fill`` fresh tensors are NaN."""
    if not nan_fill:
        return model(*inputs)
    was = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    # the public setter imports the compiler, which takes seconds
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        return model(*inputs)
    finally:
        torch._C._set_deterministic_algorithms(was, warn_only=warn)


@contextlib.contextmanager
def stream(other: bool, device: torch.device) -> Iterator[None]:
    """The block runs under a stream of the caller's own, on CUDA, if it is to be an ``other``."""
    if not other or device.type != "cuda":
        yield
        return
    make: Any = torch.cuda.Stream
    side = make()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    side.synchronize()


def churn(value: float, device: torch.device) -> None:
    """Leave ``value`` in freed memory of many sizes, where the next allocation will find it."""
    held = [torch.full((1 << k,), value, device=device) for k in range(4, 19) for _ in range(4)]
    del held
