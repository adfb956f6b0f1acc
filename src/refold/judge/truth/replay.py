"""What the float64 run of a reference runs under: wide types, and the random numbers of eager's.

A generator gives other numbers to another dtype: the float64 run would be that of other noise, and
eager's distance from it would be no error. So what random operations drew is recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from refold.judge.draws.noise import Noise
from refold.judge.draws.trees import tensors
from refold.judge.worker.mode import Mode

_SIXTEEN = (torch.float16, torch.bfloat16)
_NARROW = (torch.float32, *_SIXTEEN)
_ASKS = {"float", "half", "bfloat16", "to", "type"}  # functions that name a type by themselves
Draws = list[tuple[Any, tuple[torch.Tensor, ...]]]


class Widen(TorchFunctionMode):
    """Reads explicit requests for narrow floats as requests for float64. What eager copies into 16
    bits is a copy here, too: who writes to the tensor later does not write to that."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name not in _ASKS and not (kwargs and kwargs.get("dtype") in _NARROW):
            return func(*args, **(kwargs or {}))
        kwargs = dict(kwargs or {})
        if name in {"float", "half", "bfloat16"} and args and isinstance(args[0], torch.Tensor):
            return args[0].to(torch.float64, copy=name != "float")
        asked = (kwargs.get("dtype"), *(a for a in args[1:] if isinstance(a, torch.dtype)))
        if name == "to" and any(dtype in _SIXTEEN for dtype in asked):
            kwargs["copy"] = True
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        if name in {"to", "type"}:
            args = tuple(
                torch.float64 if isinstance(a, torch.dtype) and a in _NARROW else a for a in args
            )
        return func(*args, **kwargs)


class Record(Mode):
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


class Replay(Mode):
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


_DOUBLES = (torch.float64, torch.complex128)
_COPIES = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default)


class Rounded(Mode):
    """Moves what each operation computes by some units in float64's last place.

    A model of float64 has no wider truth beside it: where an intermediate result all but cancels,
    what its inputs' last places do says nothing of its own rounding. Whole numbers stay: they are
    counts and masks, which no rounding has made.
    """

    def __init__(self, units: float, noise: Noise, few: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._step, self._noise = units * torch.finfo(torch.float64).eps, noise
        self._few = few  # bits in inputs and states: of such numbers sums and products are exact

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        kept = func in _COPIES or _random(func) or _is_of_others(func)
        if kept or not tensors([*args]):
            return result
        few = self._few and _exact(func, args)
        if isinstance(result, list | tuple):
            return type(result)(self._moved(t, few) for t in result)
        return self._moved(result, few)

    def _moved(self, t: Any, few: bool) -> Any:
        if not isinstance(t, torch.Tensor) or t.dtype not in _DOUBLES or t.layout != torch.strided:
            return t
        real = torch.view_as_real(t) if t.is_complex() else t
        moved = real * (1 + self._step * self._noise.like(real))
        kept = real == real.round()
        if few:
            kept |= _brief(real)
        real.copy_(torch.where(kept, real, moved))
        return t


_FEW = 2.0**12


def _exact(func: Any, args: Any) -> bool:
    """Whether an operation of numbers of few bits may be exact in whichever order it is made: what
    divides by no power of two is not, as an honest form multiplies by its reciprocal."""
    if func.overloadpacket is torch.ops.aten.mean:
        return False
    if func.overloadpacket is torch.ops.aten.div:
        by = torch.as_tensor(args[1]).double()
        return bool((torch.frexp(by).mantissa.abs() == 0.5).all())
    return all(bool(_brief(t).all()) for t in tensors([*args]) if t.dtype in _DOUBLES)


def _brief(t: torch.Tensor) -> torch.Tensor:
    """Which numbers have few bits."""
    fraction = torch.frexp(torch.view_as_real(t) if t.is_complex() else t).mantissa * _FEW
    return fraction == fraction.round()


def _is_of_others(func: Any) -> bool:
    """Whether what an operation gives is memory that was there before."""
    return func._schema.is_mutable or any(r.alias_info for r in func._schema.returns)


def is_double(values: Iterable[torch.Tensor]) -> bool:
    """Whether a model of these states and inputs computes in float64 as it is."""
    return any(t.dtype in _DOUBLES for t in values)


def _random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags
