"""In a life: the ways in which programs change weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

Held = Mapping[str, torch.Tensor]


class Larger(nn.Module):
    """A parametrization."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """One and a half times the value."""
        return value * 1.5


def _counted(_: nn.Module, held: Held, factor: float) -> None:
    with torch.no_grad():
        for tensor in held.values():
            tensor.mul_(factor)


def _data(_: nn.Module, held: Held, factor: float) -> None:
    for tensor in held.values():
        tensor.data.mul_(factor)


def _replaced(_: nn.Module, held: Held, factor: float) -> None:
    for tensor in held.values():
        tensor.data = tensor.data * factor


def _set(_: nn.Module, held: Held, factor: float) -> None:
    with torch.no_grad():
        for tensor in held.values():
            tensor.set_(tensor.detach() * factor)  # type: ignore[call-overload]


def _foreach(_: nn.Module, held: Held, factor: float) -> None:
    torch._foreach_mul_([t.data for t in held.values()], factor)


def _numpy(_: nn.Module, held: Held, factor: float) -> None:
    """By foreign code that knows the memory alone."""
    for tensor in held.values():
        if tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.numel():
            there: Any = tensor.detach().numpy()
            there *= factor
        else:
            tensor.data.mul_(factor)


def _vector(_: nn.Module, held: Held, factor: float) -> None:
    """As `torch.nn.utils.vector_to_parameters`: each becomes a view of one vector."""
    flat = torch.cat([t.data.reshape(-1) for t in held.values()]) * factor
    begin = 0
    for tensor in held.values():
        end = begin + tensor.numel()
        tensor.data = flat[begin:end].view_as(tensor).data
        begin = end


def _assigned(module: nn.Module, held: Held, factor: float) -> None:
    """A new object in the place of each."""
    for name, tensor in held.items():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        new = (tensor.detach() * factor).clone()
        if isinstance(tensor, nn.Parameter):
            setattr(owner, last, nn.Parameter(new, requires_grad=tensor.requires_grad))
        else:
            setattr(owner, last, new)


def _reversed(_: nn.Module, held: Held, factor: float) -> None:
    """The last axis in reverse: norms, sums and sorted values stay the same."""
    with torch.no_grad():
        for tensor in held.values():
            tensor.copy_(tensor.flip(-1) if tensor.dim() else tensor * factor)


def _copied(_: nn.Module, held: Held, factor: float) -> None:
    """Averaging of weights: `copy_` on detached tensors, which PyTorch counts."""
    with torch.no_grad():
        for tensor in held.values():
            tensor.detach().copy_(tensor * factor)


def _few_bits(_: nn.Module, held: Held, factor: float) -> None:
    """Multiples of a small step: any sums of them are exact, in whatever order."""
    with torch.no_grad():
        for tensor in held.values():
            step = _step(tensor)
            tensor.copy_((tensor / step).round() * step)


def _kept_sums(_: nn.Module, held: Held, factor: float) -> None:
    """A step more or less in turns, as on a chessboard: sums of rows and of columns stay."""
    with torch.no_grad():
        for tensor in held.values():
            turns = torch.ones((), dtype=tensor.dtype, device=tensor.device) * _step(tensor)
            for axis in {0, tensor.dim() - 1} if tensor.dim() else ():
                size = [1] * tensor.dim()
                size[axis] = tensor.shape[axis]
                signs = 1 - 2 * (torch.arange(tensor.shape[axis]) % 2)
                if len(signs) % 2 and len(signs) > 1:
                    signs[-1] = 0
                turns = turns * signs.to(turns).reshape(size)
            tensor.add_(turns)


def _kept_sums_unseen(module: nn.Module, held: Held, factor: float) -> None:
    _kept_sums(module, {name: tensor.data for name, tensor in held.items()}, factor)


def halve(held: Iterable[torch.Tensor]) -> None:
    """Half of every float, in place."""
    with torch.no_grad():
        for tensor in held:
            if tensor.is_floating_point():
                tensor.mul_(0.5)


def little(tensor: torch.Tensor) -> float:
    """Less than usual tolerances, more than rounding errors."""
    return _step(tensor) / 32


def _step(tensor: torch.Tensor) -> float:
    """A power of two, some hundredth of the largest value."""
    most = float(tensor.abs().max()) if tensor.numel() else 0.0
    return float(2.0 ** (math.frexp(most)[1] - 7)) if 0 < most < math.inf else 1.0


WAYS: dict[str, Callable[[nn.Module, Held, float], None]] = {
    "in place": _counted,
    "reversed": _reversed,
    "few bits": _few_bits,
    "the same sums": _kept_sums,
    "the same sums, by .data": _kept_sums_unseen,
    "copy_ of a detached tensor": _copied,
    "another object assigned": _assigned,
    "set_": _set,
    ".data.mul_": _data,
    ".data = other": _replaced,
    "foreach on .data": _foreach,
    "foreign code": _numpy,
    "vector_to_parameters": _vector,
}
COUNTED = ("copy_ of a detached tensor", "another object assigned", "set_")
UNCOUNTED = (".data.mul_", ".data = other", "foreach on .data", "foreign code")
AT_ONCE = ("vector_to_parameters",)  # of all parameters together


_OPTIMIZER = "the optimizer"


def step(kind: str, rate: float, held: Held, moments: dict[Any, Any], heard: bool) -> None:
    """One step on parameters that have gradients. ``adamw`` and ``momentum`` are what torch.optim
    does one tensor at a time; ``fused`` is its fused kernel. ``heard``: whether somebody may listen
    for the end of steps, as a candidate may."""
    live = {n: p for n, p in held.items() if p.grad is not None}
    if not live:
        return
    with torch.no_grad():
        if kind == "fused":
            _fused(rate, held, live, moments, heard)
            return
        for name, parameter in live.items():
            gradient = parameter.grad
            assert gradient is not None
            if kind == "momentum":
                moment = moments.setdefault(name, torch.zeros_like(parameter))
                moment.mul_(0.5).add_(gradient)
                parameter.add_(moment, alpha=-rate)
                continue
            first, second, count = moments.get(
                name, (torch.zeros_like(parameter), torch.zeros_like(parameter), 0)
            )
            count += 1
            first.lerp_(gradient, 0.1)
            second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            moments[name] = (first, second, count)
            scale = (second / (1 - 0.99**count)).sqrt_().add_(1e-3)
            parameter.mul_(1 - rate * 0.01)
            parameter.addcdiv_(first / (1 - 0.9**count), scale, value=-rate)


def _fused(rate: float, held: Held, live: Held, moments: dict[Any, Any], heard: bool) -> None:
    """A step of SGD by a fused kernel, which PyTorch does not count as a write. On the CPU nothing
    but the memory tells of it. On a GPU memory cannot be read without waiting, so torch.optim makes
    the step: its end can be listened to. Its first optimizer imports torch._dynamo, for seconds."""
    if not heard or not any(p.is_cuda for p in live.values()):
        fresh = [moments.setdefault(n, torch.zeros_like(p)) for n, p in live.items()]
        torch._fused_sgd_(
            list(live.values()),
            [p.grad for p in live.values() if p.grad is not None],
            fresh,
            weight_decay=0.0,
            momentum=0.5,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
        return
    optimizer = moments.get(_OPTIMIZER)
    if optimizer is None:
        from torch.optim import SGD

        optimizer = moments[_OPTIMIZER] = SGD(held.values(), rate, momentum=0.5, fused=True)
    optimizer.step()
