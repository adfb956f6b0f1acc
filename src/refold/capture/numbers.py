"""What stands for a float that varies while torch.export follows forward: a tensor of float64
without dimensions, which has to count as the Python number that it is.

Beside tensors with dimensions it does by itself. Beside another one without, as the loss that it
weighs, PyTorch takes the wider of both dtypes, where a number takes the tensor's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


def as_numbers(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """Lets tensors without dimensions among these, and what is computed of them alone, count as
    numbers."""
    numbers = [v for v in values if _is_float(v) and v.dim() == 0]
    return _AsNumbers(numbers) if numbers else nullcontext()


class _AsNumbers(TorchFunctionMode):
    def __init__(self, numbers: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.held = {id(t): t for t in numbers}  # so that no other tensor gets the place of one

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        others = [t for t in tensors if id(t) not in self.held]
        if len(others) == len(tensors):
            return function(*args, **kwargs)
        if not others:
            made = function(*args, **kwargs)
            for value in pytree.tree_leaves(made):
                if _is_float(value) and value.dim() == 0:
                    self.held[id(value)] = value
            return made
        floats = [t for t in others if _is_float(t)]
        kinds = {t.dtype for t in floats}
        if len(kinds) == 1 and all(t.dim() == 0 for t in floats):
            (kind,) = kinds
            args, kwargs = pytree.tree_map(lambda v: self._beside(v, kind), (args, kwargs))
        return function(*args, **kwargs)

    def _beside(self, value: Any, kind: torch.dtype) -> Any:
        return value.to(kind) if id(value) in self.held else value


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
