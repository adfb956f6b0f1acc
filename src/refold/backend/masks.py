"""Masks of attention that need not be read, in a graph of Dynamo's: by which each query sees each
key, or those up to its own place. And masks that lie in another order than PyTorch's fused kernels
read.

Models make masks of sizes alone, and attention computes the same without those that hide nothing.
Of a causal one a flag says the same, and half as much is computed; but of keys that are not finite
and hidden, a mask that is added makes NaN, and a flag does not. PyTorch's fused kernels are for no
mask, or for one whose last axis lies in order. For others it takes attention apart, forward and
backward, while the graph is traced. So masks are looked at before.
"""

from __future__ import annotations

import logging
import operator
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from refold.backend.inductor import copied

_log = logging.getLogger("refold")

ATTENTION: Any = torch.nn.functional.scaled_dot_product_attention
MOST = 1 << 24  # bytes of the largest tensor that is computed to know a mask
_MASK, _CAUSAL = 3, 5  # places among the function's arguments


def plain_masks(module: torch.fx.GraphModule, strict: bool = False) -> int:
    """Take masks that hide nothing, or what a flag says, out of a graph's calls of attention, and
    lay others in order. strict: keys may be infinite or NaN, so that causal masks stay.

    Returns how many calls are changed. Where something fails, those behind it stay as they are."""
    masks = _Masks(module, {}, strict)
    if _has_attention(module):
        try:
            masks.run()
        except Exception as error:  # whatever it is, the graph computes the same
            kind = type(error).__name__
            _log.warning("refold: masks of attention stay as they are (%s: %s)", kind, error)
    return masks.changed


def _has_attention(module: torch.fx.GraphModule) -> bool:
    inner = (m for m in module.modules() if isinstance(m, torch.fx.GraphModule))
    return any(n.target is ATTENTION for m in inner for n in m.graph.nodes)


class _Masks:
    """One graph, or one that it calls, in the order of its nodes.

    known: tensors that follow from numbers alone, computed on the CPU. What a call may write to is
    forgotten, with all that shares its memory. spread: those that are known but for sizes to which
    they are spread.
    """

    def __init__(
        self, module: torch.fx.GraphModule, known: dict[torch.fx.Node, Any], strict: bool
    ) -> None:
        self.module, self.known, self.strict = module, known, strict
        self.graph: Any = module.graph
        self.spread: set[torch.fx.Node] = set()
        self.changed = 0

    def run(self) -> int:
        try:
            for node in list(self.graph.nodes):
                if node.op in ("call_function", "call_method"):
                    self._look_at(node)
        finally:
            if self.changed:
                self.module.recompile()
        return self.changed

    def _look_at(self, node: torch.fx.Node) -> None:
        if node.target is ATTENTION:
            self._attention(node)
        elif not self._computed(node):
            kept = self._inside(node)
            if kept is None and not _only_reads(node):
                self._forget(node.all_input_nodes)
            elif kept is not None:
                self._forget(i for i in node.all_input_nodes if i not in kept)

    # --- what is known ----------------------------------------------------------------------------
    def _computed(self, node: torch.fx.Node) -> bool:
        """Compute a call of what is known, or one that writes to it."""
        args, spread = self._arguments(node)
        inputs: list[torch.fx.Node] = []
        torch.fx.node.map_arg((args, node.kwargs), inputs.append)
        if any(i not in self.known or (i in self.spread and not spread) for i in inputs):
            return False
        if not inputs and _tensor(node) is None:
            return False
        given = torch.fx.node.map_arg((args, dict(node.kwargs)), self.known.__getitem__)
        args, kwargs = pytree.tree_map(_on_cpu, given)
        target: Any = node.target
        small: Any = _Small
        try:
            with torch.no_grad(), torch.device("cpu"), small():
                if node.op == "call_method":
                    made = getattr(args[0], target)(*args[1:], **kwargs)
                else:
                    made = target(*args, **kwargs)
        except Exception:  # whatever it is, it is not known; it may have been written to
            self._forget(node.all_input_nodes)
            return False
        self.known[node] = made
        if spread:
            self.spread.add(node)
        return True

    def _arguments(self, node: torch.fx.Node) -> tuple[tuple[Any, ...], bool]:
        """A call's arguments, and whether they are those of `expand` without sizes that vary."""
        args: Any = node.args
        if node.target != "expand" or not isinstance(args[0], torch.fx.Node):
            return args, False
        sizes = args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
            sizes = tuple(sizes[0])
        varies = [isinstance(s, torch.fx.Node) and s not in self.known for s in sizes]
        held = self.known.get(args[0])
        if not any(varies) or not isinstance(held, torch.Tensor):
            return args, args[0] in self.spread
        new = len(sizes) - held.dim()
        rest = [
            s if not v else 1 if i < new else -1
            for i, (s, v) in enumerate(zip(sizes, varies, strict=True))
        ]
        return (args[0], *rest), True

    def _forget(self, written: Iterable[torch.fx.Node]) -> None:
        lost = {m for node in written for m in self._memory(node)}
        for node in [n for n in self.known if not lost.isdisjoint(self._memory(n))]:
            del self.known[node]

    def _memory(self, node: torch.fx.Node) -> set[tuple[str, int]]:
        """What a node's tensors lie in, as they are computed here and as Dynamo has them."""
        sides = {"here": self.known.get(node), "there": node.meta.get("example_value")}
        return {
            (side, leaf.untyped_storage()._cdata)
            for side, value in sides.items()
            for leaf in pytree.tree_leaves(value)
            if isinstance(leaf, torch.Tensor)
        }

    def _inside(self, node: Any) -> set[torch.fx.Node] | None:
        """The operands that a called graph leaves as they are, once its own calls are looked at;
        None where none is called. Checkpoints call theirs."""
        for i, given in enumerate(node.args):
            inner = None
            if isinstance(given, torch.fx.Node) and given.op == "get_attr":
                inner = getattr(self.module, str(given.target), None)
            if not isinstance(inner, torch.fx.GraphModule):
                continue
            if _has_attention(inner):  # who holds the calling graph as it was has this one, too
                inner = copied(inner)
                setattr(self.module, str(given.target), inner)
            places = [n for n in inner.graph.nodes if n.op == "placeholder"]
            operands = node.args[i + 1 :][-len(places) :] if places else ()
            if len(operands) != len(places) or len(given.users) != 1:
                return None
            held = {
                p: o
                for p, o in zip(places, operands, strict=True)
                if isinstance(o, torch.fx.Node) and o in self.known and _is_same(p, o)
            }
            found = _Masks(inner, {p: self.known[o] for p, o in held.items()}, self.strict)
            found.spread = {p for p, o in held.items() if o in self.spread}
            self.changed += found.run()
            return {o for p, o in held.items() if p in found.known}
        return None

    # --- attention --------------------------------------------------------------------------------
    def _attention(self, node: torch.fx.Node) -> None:
        def argument(place: int, name: str) -> Any:
            return node.kwargs.get(name, node.args[place] if len(node.args) > place else None)

        mask = argument(_MASK, "attn_mask")
        meta, q, k = (_tensor(n) for n in (mask, argument(0, "query"), argument(1, "key")))
        if meta is None or q is None or k is None or argument(_CAUSAL, "is_causal"):
            return
        scores = (*q.shape[:-1], k.shape[-2])
        held = self.known.get(mask) if _fits(meta.shape, scores) else None
        causal = not self.strict and mask not in self.spread
        if _hides_nothing(held):
            _set(node, _MASK, "attn_mask", None)
        elif causal and _hides_what_follows(held, scores[-2:]):
            _set(node, _MASK, "attn_mask", None)
            _set(node, _CAUSAL, "is_causal", True)
        elif meta.requires_grad or not meta.dim() or _lies_in_order(meta):
            return
        else:
            _set(node, _MASK, "attn_mask", self._in_order(node, mask, meta))
        self.changed += 1

    def _in_order(self, node: torch.fx.Node, mask: torch.fx.Node, meta: Any) -> torch.fx.Node:
        """The mask with its last axis in order, and others spread as they were."""
        graph = self.graph
        made: torch.fx.Node = mask
        outer = range(meta.dim() - 1)
        spread = [axis for axis in outer if statically_known_true(meta.stride(axis) == 0)]
        with graph.inserting_before(node):
            for axis in spread:
                made = graph.call_method("narrow", (made, axis, 0, 1))
            made = graph.call_method("contiguous", (made,))
            if spread:
                made = graph.call_method("expand_as", (made, mask))
        return made


def _hides_nothing(mask: Any) -> bool:
    if not isinstance(mask, torch.Tensor) or not mask.numel():
        return False
    if mask.dtype == torch.bool:
        return bool(mask.all())
    return mask.is_floating_point() and bool((mask == 0).all())


def _hides_what_follows(mask: Any, sizes: Sequence[Any]) -> bool:
    """Whether each query sees the keys up to its own place, of as many queries as keys."""
    if not isinstance(mask, torch.Tensor) or mask.dim() < 2:
        return False
    # of other numbers of keys some kernels count places from the first, some from the last
    if not all(statically_known_true(n == mask.shape[-1]) for n in (*sizes, mask.shape[-2])):
        return False
    seen, hidden = (mask, ~mask) if mask.dtype == torch.bool else (mask == 0, mask == -torch.inf)
    causal = torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
    return bool((seen == causal).all()) and bool((hidden != causal).all())


def _fits(mask: Sequence[Any], scores: Sequence[Any]) -> bool:
    """Whether scores are of the same shape without the mask."""
    pairs = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and all(
        statically_known_true(m == 1) or statically_known_true(m == s) for m, s in pairs
    )


def _lies_in_order(mask: torch.Tensor) -> bool:
    alone: Any = mask.shape[-1] == 1
    return statically_known_true(mask.stride(-1) == 1) or statically_known_true(alone)


def _set(node: torch.fx.Node, place: int, name: str, value: Any) -> None:
    if len(node.args) > place:
        node.update_arg(place, value)
    else:
        node.update_kwarg(name, value)


# --- calls ----------------------------------------------------------------------------------------
class _Small(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where numbers are drawn, or where much would be computed."""

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise ValueError("it is drawn")
        made = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().nbytes() > MOST:
                raise ValueError("it is large")
        return made


def _only_reads(node: torch.fx.Node) -> bool:
    """Whether a call is known to write to none of its arguments. What it gives may lie in them."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable
    name = target if isinstance(target, str) else getattr(target, "__name__", "_")
    writes = name.endswith("_") and not name.endswith("__")
    if node.op == "call_method":
        return not writes and name != "__setitem__"
    if target is getattr(operator, name, None):
        in_place = name.startswith("i") and hasattr(operator, f"__{name[1:]}__")
        return name not in ("setitem", "delitem") and not in_place
    is_torchs = isinstance(target, types.BuiltinFunctionType)
    return is_torchs and not writes and "out" not in node.kwargs


def _tensor(node: Any) -> torch.Tensor | None:
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _is_same(place: torch.fx.Node, operand: torch.fx.Node) -> bool:
    """Whether a called graph's placeholder stands for an operand, by the tensor that Dynamo has."""
    a, b = _tensor(place), _tensor(operand)
    if a is None or b is None:
        return False
    return a is b or (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    is_name = isinstance(value, str) and value.partition(":")[0] == "cuda"
    return "cpu" if is_name else value
