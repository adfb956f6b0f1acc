"""What the float64 run of a reference runs under: wide types, and the random numbers of eager's.

A generator gives other numbers to another dtype: the float64 run would be that of other noise, and
eager's distance from it would be no error. So what random operations drew is recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
Draws = list[tuple[Any, tuple[torch.Tensor, ...]]]


class Widen(TorchFunctionMode):
    """Reads explicit requests for narrow floats as requests for float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        name = getattr(func, "__name__", "")
        if name in {"float", "half", "bfloat16"} and args and isinstance(args[0], torch.Tensor):
            return args[0].to(torch.float64)
        if name in {"to", "type"}:
            args = tuple(
                torch.float64 if isinstance(a, torch.dtype) and a in _NARROW else a for a in args
            )
        return func(*args, **kwargs)


class Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what each random operation gave, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws: Draws = []

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _random(func):
            found = result if isinstance(result, list | tuple) else (result,)
            self.draws.append((func, tuple(t.detach().clone() for t in found)))
        return result


class Replay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives each random operation what the recorded one gave, in this run's dtype."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._draws = iter(draws)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _random(func):
            return result
        drawn = next(self._draws, None)
        found = result if isinstance(result, list | tuple) else (result,)
        if drawn is None or drawn[0] is not func or len(drawn[1]) != len(found):
            return result
        if any(a.shape != b.shape for a, b in zip(found, drawn[1], strict=True)):
            return result
        if func is torch.ops.aten.native_dropout.default:  # its first result is no draw
            keep = 1.0 - float(args[1]) if args[2] is not False else 1.0
            mask = drawn[1][1]
            found[0].copy_(args[0] * mask / keep if keep else torch.zeros_like(args[0]))
            found[1].copy_(mask)
            return result
        for here, there in zip(found, drawn[1], strict=True):
            here.copy_(there)
        return result


def _random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags
