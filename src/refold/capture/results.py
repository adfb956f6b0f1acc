"""The containers that forward returns its tensors in."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.capture.values import CaptureError
from refold.ir import Sym

PLAIN = (bool, int, float, str, type(None), Sym)


@dataclass(frozen=True)
class Slot:
    """The place of output number `index` in the result."""

    index: int


def makers(result: Any, module: torch.nn.Module) -> dict[type, str]:
    """Python text that gives each class of container in `result` but tuple, list and dict.

    The text may use Model. Raises CaptureError for what no text can make.
    """
    scope = getattr(type(module).forward, "__globals__", {})
    found: dict[type, str] = {}
    for value in _values(result):
        kind = type(value)
        if kind in (Slot, tuple, list, dict, *PLAIN) or kind in found:
            continue
        text = None
        if kind.__module__ == "torch.return_types":
            text = f"torch.return_types.{kind.__name__}"
        elif kind is OrderedDict or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            text = _global(kind, scope)
        if text is None:
            raise CaptureError(
                f"forward returns a {kind.__name__}; what can be written out are tuples, lists,"
                " dicts, and named tuples and OrderedDict where forward's own file names them"
            )
        found[kind] = text
    return found


def _values(tree: Any) -> Iterator[Any]:
    yield tree
    if isinstance(tree, dict):
        yield from tree
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        for value in tree:
            yield from _values(value)


def _global(kind: type, scope: Mapping[str, Any]) -> str | None:
    """Text that reaches a class through the globals of forward, or None."""
    for name, value in scope.items():
        if value is kind:
            return f"Model.forward.__globals__[{name!r}]"
        if isinstance(value, types.ModuleType) and getattr(value, kind.__name__, None) is kind:
            return f"Model.forward.__globals__[{name!r}].{kind.__name__}"
    return None
