"""The joint graph of forward and backward, before it is parted: what is compared is kept, and what
is written over.

The gradient of a largest element goes to where it lies, which the backward finds by comparing:
`x == amax(x)`, divided by how many there are. The partition may let the backward compute x anew. By
another kernel than the forward's that may differ in its last digit: no element is the largest one
then, and the gradient is 0 / 0. So the backward reads the x that the forward has stored.

A buffer that the forward writes in the end, a queue of keys for example, is another one when the
backward comes. Inductor takes clones of it for what they are copies of. So a backward that needs
the buffer as it was reads a copy. So does one that needs what forward took a clone of: the program
may write it before the backward comes, and the partition would let that read the argument itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
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


_CLONED = "refold_cloned"  # in the meta of an argument that forward clones


class MarksCloned(CustomGraphPass):
    """The pass before PyTorch's, which take clones away, behind the user's own."""

    def __init__(self, before: Any = None) -> None:
        several = isinstance(before, Sequence)
        self.before = tuple(before) if several else () if before is None else (before,)

    def __call__(self, graph: torch.fx.Graph) -> None:
        for given in self.before:
            given(graph)
        for node in graph.find_nodes(op="call_function", target=_aten.clone.default):
            origin = _origin(node.args[0])
            if origin.op == "placeholder" and "tangents" not in origin.name:
                origin.meta[_CLONED] = True

    def uuid(self) -> Any:
        """None, which keeps graphs out of the caches, where one of the user's has none."""
        known = [given.uuid() if hasattr(given, "uuid") else None for given in self.before]
        return None if None in known else ("refold: what is cloned is marked", *known)


class KeepsCompared(CustomGraphPass):
    """The pass, behind the user's own, one or several. `uuid`: what PyTorch's caches know it by."""

    def __init__(self, before: Any = None) -> None:
        several = isinstance(before, Sequence)
        self.before = tuple(before) if several else () if before is None else (before,)

    def __call__(self, graph: torch.fx.Graph) -> None:
        for given in self.before:
            given(graph)
        keep_compared(graph)
        keep_written(graph)

    def uuid(self) -> Any:
        """None, which keeps graphs out of the caches, where one of the user's has none."""
        known = [given.uuid() if hasattr(given, "uuid") else None for given in self.before]
        return None if None in known else ("refold: what is compared or written is kept", *known)


def keep_compared(graph: torch.fx.Graph) -> int:
    """Mark values that are compared with their own extremes as saved; how many."""
    found = set()
    for node in graph.find_nodes(op="call_function", target=_aten.eq.Tensor):
        a, b = map(_origin, node.args)
        found |= {y for x, y in ((a, b), (b, a)) if _is_extreme_of(x, y)}
    for value in found:
        value.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return len(found)


def keep_written(graph: torch.fx.Graph) -> int:
    """Let all but the write read a copy of each argument that the forward writes or clones and the
    backward needs; how many."""
    places = graph.find_nodes(op="placeholder")
    backward = _behind(n for n in places if "tangents" in n.name)
    writes = graph.find_nodes(op="call_function", target=_aten.copy_.default)
    written = dict.fromkeys(w.args[0] for w in writes if w.args[1] not in backward)
    written |= dict.fromkeys(place for place in places if place.meta.get(_CLONED))
    found = [p for p in written if p.op == "placeholder" and not backward.isdisjoint(_behind([p]))]
    for place in found:
        readers = [user for user in place.users if user not in writes]
        with graph.inserting_before(places[-1].next):
            copied = graph.call_function(_aten.clone.default, (place,))
        copied.meta = {**place.meta, "recompute": CheckpointPolicy.MUST_SAVE}
        if isinstance(value := place.meta.get("val"), torch.Tensor):
            with torch._guards.detect_fake_mode(value) or contextlib.nullcontext():
                copied.meta["val"] = value.clone()
        for reader in readers:
            reader.replace_input_with(place, copied)
    return len(found)


def _behind(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """Nodes and all that is computed of them, but for what is written."""
    found, todo = set(), [*nodes]
    while todo:
        node = todo.pop()
        ends = node.op == "output" or node.target is _aten.copy_.default
        if node not in found and not ends:
            found.add(node)
            todo += node.users
    return found


def with_compared_kept() -> dict[str, Any]:
    """The settings of Inductor's by which it calls the passes."""
    return {
        "joint_custom_pre_pass": MarksCloned(config.joint_custom_pre_pass),
        "joint_custom_post_pass": KeepsCompared(config.joint_custom_post_pass),
    }


def _origin(value: Any) -> Any:
    while isinstance(value, torch.fx.Node) and value.target in _SAME:
        value = value.args[0]
    return value


def _is_extreme_of(a: Any, b: Any) -> bool:
    return isinstance(a, torch.fx.Node) and a.target in _EXTREMES and _origin(a.args[0]) is b
