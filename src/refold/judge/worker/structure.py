"""In a life: the ways in which programs change what a module is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from refold.judge.wire import plain


class Unfit(LookupError):
    """The part is none that can be changed in this way."""


class _Twice(nn.Module):
    """A layer that somebody adds behind another."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Two times the value's tanh."""
        return torch.tanh(value) * 2.0


def _list(part: nn.Module) -> nn.Sequential | nn.ModuleList:
    if not isinstance(part, nn.Sequential | nn.ModuleList) or not len(part):
        raise Unfit("no list of layers")
    return part


def _larger(part: nn.Module) -> nn.Module:
    """A copy whose floating parameters are one and a half times as large."""
    made = copy.deepcopy(part)
    with torch.no_grad():
        for p in made.parameters():
            if p.is_floating_point():
                p.mul_(1.5)
    return made


def _put(module: nn.Module, path: str, new: nn.Module) -> None:
    if not path:
        raise Unfit("the whole module is no part of another")
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, new)


def _appended(module: nn.Module, path: str, _: str) -> None:
    layers = _list(module.get_submodule(path))
    layers.append(_larger(layers[-1]))


def _dropped(module: nn.Module, path: str, _: str) -> None:
    del _list(module.get_submodule(path))[-1]


def _replaced(module: nn.Module, path: str, _: str) -> None:
    _put(module, path, _larger(module.get_submodule(path)))


def _widened(module: nn.Module, path: str, _: str) -> None:
    """One that gives three numbers more, as a head for more classes does."""
    made = copy.deepcopy(module.get_submodule(path))
    size = next((n for n in ("out_features", "out_channels") if hasattr(made, n)), "")
    if not size or getattr(made, "groups", 1) != 1 or getattr(made, "transposed", False):
        raise Unfit("no layer whose outputs are rows of its weight")
    for name, old in list(made._parameters.items()):
        if old is not None:
            more = torch.cat([old.detach(), old.detach()[:3] * 0.5])
            setattr(made, name, nn.Parameter(more, requires_grad=old.requires_grad))
    setattr(made, size, len(_weight(made)))
    _put(module, path, made)


def _removed(module: nn.Module, path: str, _: str) -> None:
    _put(module, path, nn.Identity())


def _wrapped(module: nn.Module, path: str, _: str) -> None:
    """As adapters do that are put around a layer."""
    _put(module, path, nn.Sequential(module.get_submodule(path), _Twice()))


def _shared(module: nn.Module, path: str, other: str) -> None:
    _put(module, path, module.get_submodule(other))


def _tied(module: nn.Module, path: str, other: str) -> None:
    mine, theirs = (_weight(module.get_submodule(p)) for p in (path, other))
    if mine.shape != theirs.shape:
        raise Unfit("weights of other shapes")
    module.get_submodule(path).weight = module.get_submodule(other).weight


def _weight(part: nn.Module) -> torch.Tensor:
    found = part._parameters.get("weight")
    if found is None:
        raise Unfit("no weight")
    return found


def _without_bias(module: nn.Module, path: str, _: str) -> None:
    part = module.get_submodule(path)
    if part._parameters.get("bias") is None:
        raise Unfit("no bias")
    part.bias = None  # type: ignore[assignment]


def _another_bias(module: nn.Module, path: str, _: str) -> None:
    part = module.get_submodule(path)
    if "bias" not in part._parameters:
        raise Unfit("no bias")
    weight = _weight(part)
    of_rows = weight.dim() == 1 or isinstance(part, nn.Linear)
    if not of_rows:
        raise Unfit("no bias for each row of a weight")
    new = torch.linspace(-1.0, 1.0, weight.shape[0], device=weight.device).to(weight.dtype)
    part.bias = nn.Parameter(new)


class _Patch:
    """Twice what the forward of the part's class gives."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _scaled(type(self.part).forward(self.part, *args, **kwargs))


def _patched(module: nn.Module, path: str, _: str) -> None:
    """A forward of the instance's own, as monkey patches are."""
    part = module.get_submodule(path)
    part.forward = _Patch(part)


def _scaled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value * 2 if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)([_scaled(v) for v in value])
    return value if plain.record(value) is None else plain.refilled(value, _scaled)


def _hooked(module: nn.Module, path: str, _: str) -> None:
    module.get_submodule(path).register_forward_hook(_after)


def _after(_: nn.Module, __: Any, output: Any) -> Any:
    return _scaled(output)


def _swapped(module: nn.Module, path: str, _: str) -> None:
    """`torch.utils.swap_tensors` of each parameter with another."""
    for p in list(module.get_submodule(path).parameters(recurse=False)):
        new = nn.Parameter(p.detach() * 0.75, requires_grad=p.requires_grad)
        torch.utils.swap_tensors(p, new)  # type: ignore[no-untyped-call]


def _normed(module: nn.Module, path: str, _: str) -> None:
    part = module.get_submodule(path)
    if not isinstance(part, nn.Linear) or _weight(part).shape[1] < 2:
        raise Unfit("no linear layer")
    torch.nn.utils.parametrizations.weight_norm(part)


def _constant(module: nn.Module, path: str, _: str) -> None:
    """A parameter that becomes a buffer, as frozen weights do."""
    part = module.get_submodule(path)
    weight = _weight(part).detach().clone() * 1.25
    del part.weight
    part.register_buffer("weight", weight)


Way = Callable[[nn.Module, str, str], None]
WAYS: dict[str, Way] = {
    "layer appended": _appended,
    "layer dropped": _dropped,
    "part replaced": _replaced,
    "part widened": _widened,
    "part removed": _removed,
    "part wrapped": _wrapped,
    "part shared": _shared,
    "weights tied": _tied,
    "bias removed": _without_bias,
    "another bias": _another_bias,
    "forward patched": _patched,
    "hook on a part": _hooked,
    "tensors swapped": _swapped,
    "weight norm": _normed,
    "weight made a buffer": _constant,
}
