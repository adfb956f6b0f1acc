"""What eager draws, asked of eager: whether a graph draws the same, in the same order.

An export follows the module with tensors that hold no values. Where it says otherwise than PyTorch
on this machine how a value lies, other numbers would be drawn. So the example is run once, and
every draw is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refold.capture import Captured, CaptureError, Example
from refold.capture.owner import draws_nothing
from refold.ir import hint
from refold.ir.seeds import undrawn
from refold.layouts import eagers


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each draw: how many elements of which dtype, and whether they lie row after row."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[Any, ...]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        drawing = torch.Tag.nondeterministic_seeded in func.tags
        if drawing and not draws_nothing(func, args, kwargs or {}):
            self.found.append(_described(args[0]) if args else ())
        return func(*args, **(kwargs or {}))


def _described(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, torch.Tensor):
        return ()
    return tuple(value.shape), value.dtype, value.is_contiguous()


def draws_as_eager(module: torch.nn.Module, example: Example, c: Captured) -> Captured:
    """`c`, which draws what eager draws on the example. Raises CaptureError where it does not."""
    wanted = [
        (tuple(map(hint, n["shape"])), n["dtype"], True) for n in c.graph.nodes() if n.row.draws
    ]
    if not wanted:
        return c
    try:
        with undrawn(), _Draws() as seen:
            eagers(module, example, c)
    except CaptureError:
        raise
    except Exception as error:  # what runs here is a user's model
        raise CaptureError(f"what forward draws could not be looked at ({error})") from error
    if seen.found != wanted:
        raise CaptureError("forward draws other random numbers than what is captured of it")
    return c
