"""Calls as they are made, of a module and of its fast twin: what tests of calls share."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from refold import introspect, pipeline
from refold.capture import Example
from refold.derive import Options, derive
from torch_target import TorchTarget


def reasons(module: nn.Module, *args: Any, **kwargs: Any) -> list[str]:
    """Why the original is kept."""
    found = derive(module, Example(args, kwargs), DEVICE, Options(measure=False))
    return [d.mode.kept for d in found if d.mode.kept]


def fast_of(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """The fast twin of a module, of which each mode is fast."""
    found = derive(module, Example(args, kwargs), DEVICE, Options(measure=False))
    assert all(d.mode.kept is None for d in found), [d.mode.kept for d in found]
    text = pipeline._emit(module, "# Model is bound by the test.", "It", found, TorchTarget())
    assert text is not None
    return pipeline.bind_for_class(text, module)


_, DEVICE = pipeline.target_for("cpu")


def alike(a: Any, b: Any) -> None:
    """The same classes, fields and values, all the way down."""
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        return
    if isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            alike(a[k], b[k])
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            alike(x, y)
    held = getattr(a, "__dict__", None) or {
        k: getattr(a, k) for k in getattr(type(a), "__slots__", ()) if k != "__weakref__"
    }
    if held and type(a).__module__ not in ("builtins", "torch"):
        others = getattr(b, "__dict__", None) or {k: getattr(b, k) for k in held}
        assert held.keys() == others.keys()
        for k in held:
            alike(held[k], others[k])
    elif not isinstance(a, (dict, tuple, list)):
        assert a == b


def check(fast: nn.Module, module: nn.Module, *args: Any, taken: bool = True, **kwargs: Any) -> Any:
    """One call of both, which agree; taken: by the fast path. Gives the fast module's result."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = introspect.fallback_reason(fast, Example(args, kwargs))
        assert (found is None) == taken, found
        expected = copy.deepcopy(module)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        got = fast(*args, **kwargs)
    alike(got, expected)
    return got


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 6)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 6)))


class Pair(NamedTuple):
    x: Any
    y: Any


class Takes(Base):
    def forward(self, x: Any, *more: Any, scale: float = 2.0, mask: Any = None, **rest: Any) -> Any:
        tensors = [v for v in pytree.tree_leaves((x, more, mask, rest)) if torch.is_tensor(v)]
        tensors += [x.x] if hasattr(x, "x") else []
        if isinstance(x, Pair):
            scale = 3.0
        return sum(torch.relu(self.fc(v)) * (k + scale) for k, v in enumerate(tensors))
