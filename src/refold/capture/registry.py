"""What the ATen handlers share: the registry, and checks.

A handler takes `out` (the result's true shape and dtype; a list for several results) and the call's
arguments, tensors as `Value`. It raises `Unsupported` for a form that the table does not express;
the call then stays whole, as PyTorch runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from refold.capture.values import Unsupported, Value, value
from refold.ir import Dim, Node

Out = tuple[tuple[Dim, ...], torch.dtype]
_Handler = TypeVar("_Handler", bound=Callable[..., Any])
HANDLERS: dict[str, Callable[..., Any]] = {}
OF_DEVICES: set[str] = set()  # operators that compute something else on another kind of device


def handles(*names: str, by_device: bool = False) -> Callable[[_Handler], _Handler]:
    """Register a handler under the names of its ATen operators. by_device: it is also given
    `device`, the kind of device on which they run."""

    def register(function: _Handler) -> _Handler:
        for name in names:
            if name in HANDLERS:
                raise ValueError(f"two handlers for aten.{name}")
            HANDLERS[name] = function
        OF_DEVICES.update(names if by_device else ())
        return function

    return register


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Unsupported(what)


def result(node: Node, out: Out) -> Value:
    need(node.dtype == out[1], f"dtype {out[1]}")
    return value(node, out[0])
