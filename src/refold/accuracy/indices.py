"""Whether a call looks outside of a tensor, asked before it is made.

On a GPU an index outside of its tensor ends all work of the process there. Arguments that are made
up, or moved, must never lead to one: a model may take 1 from its labels, or round what it looks up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_INDICES = frozenset({"index", "indices"})


class Within(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls inside raise IndexError before they look outside of a tensor."""

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        check_indices(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def looks_up(target: Any) -> bool:
    """Whether an operator looks up places by numbers."""
    return not _INDICES.isdisjoint(_names(target))


def check_indices(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises IndexError where a call is about to look outside of a tensor. PyTorch's names of its
    arguments say what they are. On a GPU this waits for the numbers."""
    names = _names(target)
    if _INDICES.isdisjoint(names) or "mask" in names:  # what a mask hides may lie anywhere
        return
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    for numbers, least, size in _looked_up(given):
        if numbers.numel() and bool(((numbers < least) | (numbers >= size)).any()):
            raise IndexError(f"{target} of arguments that are made up looks outside of its tensor")


def _names(target: Any) -> list[str]:
    if not isinstance(target, torch._ops.OpOverload):
        return []
    return [a.name for a in target._schema.arguments]


def _looked_up(given: Mapping[str, Any]) -> Iterator[tuple[torch.Tensor, int, int]]:
    """The numbers of a call that say places; the least one that may be, and how many places there
    are."""
    indices = given.get("indices")
    if isinstance(indices, (list, tuple)):
        axis = 0  # of several, where negative numbers count from the end
        for numbers in indices:
            is_mask = numbers is not None and numbers.dtype in (torch.bool, torch.uint8)
            if numbers is not None and not is_mask:
                size = given["self"].shape[axis]
                yield numbers, -size, size
            axis += numbers.dim() if is_mask else 1
        return
    numbers = indices if indices is not None else given.get("index")
    if not isinstance(numbers, torch.Tensor) or numbers.dtype.is_floating_point:
        return
    if "num_weights" in given:
        yield numbers, 0, int(given["num_weights"])
    elif "weight" in given:
        yield numbers, 0, given["weight"].shape[0]
    elif "dim" in given and isinstance(given.get("self"), torch.Tensor):
        shape = given["self"].shape
        yield numbers, 0, shape[given["dim"]] if shape else 1
