"""Read calls of ATen as nodes of a graph: what all kinds of captured programs have in common."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture.aten import HANDLERS
from refold.capture.registry import OF_DEVICES
from refold.capture.sizes import Sizes
from refold.capture.values import VALUES, CaptureError, SizeError, Unsupported, Value
from refold.ir import Dim, Node, Sym
from refold.ir.node import opaque


class Calls:
    """The values of a program while its calls are read.

    device: where its tensors are; calls that name this device mean theirs.
    """

    def __init__(self, device: torch.device | None) -> None:
        self.device = device
        self.reads_default_dtype = False
        self.sizes = Sizes()
        self.env: dict[torch.fx.Node, Any] = {}

    def call(self, node: torch.fx.Node) -> Any:
        target = node.target
        meta = node.meta.get("val")
        if target is operator.getitem:
            source, index = node.args
            return self.env[source][index]  # type: ignore[index]
        if isinstance(meta, (torch.SymInt, int)) and not isinstance(meta, bool):
            try:
                return self.sizes.dim(meta)
            except SizeError as error:
                return error  # it may be asserted only
        if isinstance(meta, torch.SymFloat):
            if meta.node.expr.free_symbols - set(meta.node.shape_env.backed_var_to_val):
                raise CaptureError(VALUES)
            try:
                return self.sizes.number(meta)
            except SizeError as error:
                return error
        args = torch.fx.map_arg(node.args, self.known)
        kwargs = torch.fx.map_arg(node.kwargs, self.known)
        if not isinstance(target, torch._ops.OpOverload):
            if isinstance(meta, torch.SymBool):
                raise CaptureError(_DATA_SIZES)
            if meta is None:
                return None  # an assertion on sizes: what it asserts stands in the ranges
            raise CaptureError(f"a call of {target} gives a {type(meta).__name__}")
        if str(target).startswith(("aten._assert", "aten.sym_constrain")):
            return None
        out = self._meta_shapes(meta)
        if target.overloadpacket.__name__ in ("to", "_to_copy") and _stays_there(node):
            kwargs = {k: v for k, v in kwargs.items() if k in ("dtype", "memory_format")}
        self.reads_default_dtype |= _reads_default_dtype(node)
        name = target.overloadpacket.__name__
        handler = HANDLERS.get(name if target.namespace == "aten" else f"{target.namespace}.{name}")
        if handler is not None:
            more = {"device": self.device and self.device.type} if name in OF_DEVICES else {}
            try:
                made = handler(out, *args, **kwargs, **more)
            except (Unsupported, TypeError, ValueError):
                pass  # a form that the table does not express: the call stays whole
            else:
                if not isinstance(out, list) or self._read_indices(node) <= _given(made):
                    return made
        return self._opaque(str(target), out, args, kwargs)

    def known(self, node: torch.fx.Node) -> Any:
        """What a node gives. Raises SizeError for a size that cannot be said."""
        value = self.env[node]
        if isinstance(value, SizeError):
            raise value
        return value

    @staticmethod
    def _read_indices(node: torch.fx.Node) -> set[Any]:
        users = (u for u in node.users if u.target is not operator.getitem or u.users)
        return {u.args[1] if u.target is operator.getitem else None for u in users}

    def _meta_shapes(self, meta: Any) -> Any:
        if isinstance(meta, torch.Tensor):
            return tuple(self.sizes.dim(d) for d in meta.shape), meta.dtype
        if isinstance(meta, (tuple, list)):
            return [self._meta_shapes(m) for m in meta]
        if meta is None:
            return None
        if isinstance(meta, (torch.SymFloat, torch.SymBool)):
            raise CaptureError(VALUES)
        raise CaptureError(f"a call gives a {type(meta).__name__}")

    def _opaque(self, target: str, out: Any, args: Any, kwargs: Any) -> Any:
        inputs: list[Node] = []
        shapes: list[tuple[Dim, ...]] = []

        def encode(x: Any) -> Any:
            if isinstance(x, Value):
                inputs.append(x.node)
                shapes.append(x.shape)
                return ("$", len(inputs) - 1)
            if isinstance(x, (tuple, list)):
                return ("[]", *(encode(y) for y in x))
            if isinstance(x, (bool, int, float, str, type(None), Sym, torch.dtype)):
                return x
            if isinstance(x, torch.device):
                return ("device", "" if x == self.device else str(x))
            if isinstance(x, (torch.layout, torch.memory_format)):
                return ("torch", str(x))
            raise CaptureError(f"{target} takes a {type(x).__name__}")

        coded = tuple(encode(a) for a in args)
        named = tuple((k, encode(v)) for k, v in sorted(kwargs.items()))

        def build(o: Any, index: int | None) -> Any:
            if o is None:
                return None
            shape, dtype = o
            made = opaque(
                tuple(inputs),
                shape,
                dtype,
                target=target,
                args=coded,
                kwargs=named,
                shapes=tuple(shapes),
                index=index,
                rank=len(shape),
            )
            return Value(made, shape)

        if isinstance(out, list):
            return [build(o, i) for i, o in enumerate(out)]
        return build(out, None)


def _stays_there(node: torch.fx.Node) -> bool:
    """Is a copy where the value is, in the same layout?"""
    source = node.args[0]
    before = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    after = node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return (before.device, before.layout) == (after.device, after.layout)


def _reads_default_dtype(node: torch.fx.Node) -> bool:
    """Whether a call makes floats of none and is not told which."""

    def is_float(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())

    given = [n.meta.get("val") for n in node.all_input_nodes]
    made = [v for v in pytree.tree_leaves(node.meta.get("val")) if is_float(v)]
    return bool(made) and not any(map(is_float, given)) and node.kwargs.get("dtype") is None


def _given(results: Sequence[Any]) -> set[int]:
    return {i for i, r in enumerate(results) if r is not None}


_DATA_SIZES = "the size of a value in forward depends on what a tensor holds, not on sizes alone"
