"""The joint graph of forward and backward, before it is parted: what is compared is kept.

The gradient of a largest element goes to where it lies, which the backward finds by comparing:
`x == amax(x)`, divided by how many there are. The partition may let the backward compute x anew. By
another kernel than the forward's that may differ in its last digit: no element is the largest one
then, and the gradient is 0 / 0. So the backward reads the x that the forward has stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.utils.checkpoint import CheckpointPolicy

_aten: Any = torch.ops.aten
_EXTREMES = (_aten.amax.default, _aten.amin.default, _aten.max.default, _aten.min.default)
_SAME = (  # what has the same elements
    *(_aten.detach.default, _aten.alias.default, _aten.expand.default, _aten.view.default),
    *(_aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.reshape.default),
)


class KeepsCompared(CustomGraphPass):
    """The pass, behind the user's own, one or several. `uuid`: what PyTorch's caches know it by."""

    def __init__(self, before: Any = None) -> None:
        several = isinstance(before, Sequence)
        self.before = tuple(before) if several else () if before is None else (before,)

    def __call__(self, graph: torch.fx.Graph) -> None:
        for given in self.before:
            given(graph)
        keep_compared(graph)

    def uuid(self) -> Any:
        """None, which keeps graphs out of the caches, where one of the user's has none."""
        known = [given.uuid() if hasattr(given, "uuid") else None for given in self.before]
        return None if None in known else ("refold: what is compared is kept", *known)


def keep_compared(graph: torch.fx.Graph) -> int:
    """Mark values that are compared with their own extremes as saved; how many."""
    found = set()
    for node in graph.find_nodes(op="call_function", target=_aten.eq.Tensor):
        a, b = map(_origin, node.args)
        found |= {y for x, y in ((a, b), (b, a)) if _is_extreme_of(x, y)}
    for value in found:
        value.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return len(found)


def with_compared_kept() -> dict[str, Any]:
    """The setting of Inductor's by which it calls the pass."""
    return {"joint_custom_post_pass": KeepsCompared(config.joint_custom_post_pass)}


def _origin(value: Any) -> Any:
    while isinstance(value, torch.fx.Node) and value.target in _SAME:
        value = value.args[0]
    return value


def _is_extreme_of(a: Any, b: Any) -> bool:
    return isinstance(a, torch.fx.Node) and a.target in _EXTREMES and _origin(a.args[0]) is b
