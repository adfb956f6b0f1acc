"""What the forward of an emitted file starts, counted as it runs: kernels by their calls, what
PyTorch is asked for by its functions. Nothing is compiled, and kernels compute nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from refold import introspect, pipeline
from refold.codegen.launch import Launch
from refold.emit.source import Source
from refold.plan import Group
from torch_target import TorchTarget

_FREE = {"new_empty_strided"}  # gives memory, and writes none


class CountingTarget(TorchTarget):
    """Kernels that note that they were started."""

    def launch(self, group: Group, name: str) -> Launch:
        return lambda scope: [f"_refold_started.append({group.family!r})"]

    def build(self, groups: Sequence[tuple[str, Group]], source: Source) -> str:
        return f"{super().build(groups, source)}{_STARTED}"


_STARTED = """\

_refold_started = []


def _refold_pack(x):
    _refold_started.append("pack")
    return x


_refold_pack_transposed = _refold_hi_lo_float16 = _refold_hi_lo_bfloat16 = _refold_pack
"""


class Calls(TorchFunctionMode):
    """Names of PyTorch's functions that write memory: all but those whose result lies in the memory
    of what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        given = _memory((args, kwargs))
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        if name in _FREE:
            return result
        if not _memory(result) <= given or (name.endswith("_") and not name.endswith("__")):
            self.names.append(name)
        return result


def _memory(values: Any) -> set[int]:
    """Which memory tensors lie in."""
    leaves = tree_leaves(values)
    return {v.untyped_storage()._cdata for v in leaves if isinstance(v, torch.Tensor)}


def started(text: str, module: nn.Module, inputs: Sequence[Any], training: bool) -> Counter[str]:
    """What a call of the fast forward starts, by the names of kernels' families and of functions.

    text: of a file for a `CountingTarget`. Raises AssertionError where the original is taken.
    """
    fast = pipeline.bind_for_class(text, copy.deepcopy(module))
    fast.train(training)
    with torch.no_grad():
        found = introspect.fallback_reason(fast, inputs)
        assert found is None, found
        for space, caches in introspect.programs(fast):
            for mode in ("train" if training else "eval", "both"):
                if mode in space["_refold_file"].modes:
                    prepare = space.get(f"_refold_prepare_{mode}") or space["_refold_prepare"]
                    given = inspect.signature(fast.forward).bind(*inputs)
                    given.apply_defaults()
                    values = given.arguments.values()
                    ready = prepare(fast, caches, mode, *values)
                    space["_refold_started"].clear()
                    with Calls() as calls:  # forward itself would take the original then
                        space[f"_refold_{mode}"](fast, ready, *values)
                    return Counter([*space["_refold_started"], *calls.names])
    raise AssertionError("the text has no program for this mode")
