"""Which operations a reference computes in float64 by itself: no unit of float32 moves them.

Who widens a phase before the sum does so for its digits. The float64 run of moved inputs would
lose them: it would take for rounding what eager does not round. So of such a reference not inputs
and weights are moved, but what each operation takes that eager computes in a narrower type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from refold.judge.draws.noise import Noise
from refold.judge.draws.trees import tensors
from refold.judge.worker.mode import Mode

_WIDE = (torch.float64, torch.complex128)
_COPIES = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default)
Places = frozenset[tuple[Any, int]]  # operators, each with the number of its call in a run


class Widths(Mode):
    """Finds the calls of operators that compute in float64; none of a model that does throughout
    (``double``)."""

    def __init__(self, double: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._double = double
        self._counts: Counter[Any] = Counter()
        self._wide: set[tuple[Any, int]] = set()

    @property
    def wide(self) -> Places:
        """What was found. Copies and operators that only view count for nothing."""
        return frozenset() if self._double else frozenset(self._wide)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _computes(func, args):
            found = result if isinstance(result, list | tuple) else (result,)
            held = [*tensors([*args]), *(t for t in found if isinstance(t, torch.Tensor))]
            if any(t.dtype in _WIDE for t in held):
                self._wide.add((func, self._counts[func]))
            self._counts[func] += 1
        return result


class Operands(Mode):
    """Moves what each operation takes by ``step`` times a normal number, relative; not what the
    calls ``wide`` take."""

    def __init__(self, step: float, noise: Noise, wide: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._step, self._noise, self._not = step, noise, wide
        self._counts: Counter[Any] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if _computes(func, args):
            place = func, self._counts[func]
            self._counts[func] += 1
            if place not in self._not:
                written = [bool(a.alias_info and a.alias_info.is_write) for a in _taken(func)]
                kept = [*written, *[False] * len(args)]
                args = tuple(
                    a if keep else self._moved(a) for a, keep in zip(args, kept, strict=False)
                )
        return func(*args, **(kwargs or {}))

    def _moved(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._moved(v) for v in value)
        if not isinstance(value, torch.Tensor) or value.dtype not in _WIDE:
            return value
        if value.layout != torch.strided:
            return value
        return value * (1 + self._step * self._noise.like(value))


def _taken(func: Any) -> list[Any]:
    found: list[Any] = func._schema.arguments
    return found


def _computes(func: Any, args: Any) -> bool:
    """Whether an operator computes numbers from numbers."""
    views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
    return func not in _COPIES and not views and bool(tensors([*args]))
