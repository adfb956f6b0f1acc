"""Read an exported program as a Graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from refold.capture.arguments import Arguments
from refold.capture.aten import HANDLERS
from refold.capture.captured import Captured, Field, attribute, has_attribute
from refold.capture.containers import classes_of
from refold.capture.program import Exported, Lifted, without_inner
from refold.capture.results import Results
from refold.capture.sizes import Derived, Sizes
from refold.capture.values import Axes, CaptureError, SizeError, Unsupported, Value
from refold.capture.watch import owner_of
from refold.ir import Dim, Graph, Node, Output, Sym, as_scalar, leaf
from refold.ir.graph import topological
from refold.ir.node import opaque


class Leak(Exception):
    """Forward has found a tensor of the original module by a way that its twin does not have."""


class Reader:
    """Reads one exported program into a graph."""

    def __init__(
        self,
        module: torch.nn.Module,
        original: torch.nn.Module,
        arguments: Arguments,
        made: Exported,
        lifted: tuple[Lifted, ...],
    ) -> None:
        self.module = module
        self.original = original
        self.arguments = arguments
        self.made = made
        self.lifted = lifted
        self.program = made.program
        self.literals = made.literals
        self.reads_default_dtype = False
        # where the inputs are; calls that name this device mean theirs
        tensors = arguments.tensors
        self.device = tensors[0].device if tensors else None
        self.sizes = Sizes()
        self.env: dict[torch.fx.Node, Any] = {}

    def read(self) -> Captured:
        fields = self._fields()
        self._placeholders(fields)
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.env[node] = self._call(node)
        outputs, result, assigned = Results(self).read()
        if not outputs:
            raise CaptureError("nothing to rewrite or to fuse: forward returns what it is given")
        dims = [d for f in fields for d in f.shape or () if isinstance(d, Sym)]
        names = {s for d in dims for s in d.names()}
        ranges = {}
        for symbol, bound in self.program.range_constraints.items():
            name = self.sizes.names.get(str(symbol))
            if name in names:
                upper = int(bound.upper) if bound.upper.is_Integer else None
                ranges[name] = (max(2, int(bound.lower)), upper)
        used = {n["name"] for o in outputs for n in topological([o.value]) if n.op == "constant"}
        constants = {
            k: v
            for k, v in ((without_inner(k), v) for k, v in self.program.constants.items())
            if k in used and isinstance(v, torch.Tensor)
        }
        self._check_leaks(constants)
        watch = self.made.watch
        queries = dict(watch.queries)
        if self.reads_default_dtype:
            queries["torch.get_default_dtype()"] = torch.get_default_dtype()
        if watch.history:
            queries["torch.is_grad_enabled()"] = False
            paths = [f.path for f in fields if f.shape is not None]
            for path, tensor in zip(paths, self._tensors(), strict=True):
                queries[f"{path}.requires_grad"] = tensor.requires_grad
        containers = tuple(self.arguments.containers)
        trees = [c.tree for c in containers if not c.starred] + [result, *assigned.values()]
        captured = Captured(
            Graph(tuple(outputs)),
            fields,
            containers,
            result,
            assigned,
            classes_of(trees, self.original),
            ranges,
            constants,
            frozenset(name for name in constants if has_attribute(self.original, name)),
            self.module.training,
            self.made.conditions,
            self._derived(outputs, result),
            queries,
            watch.reads_mode,
            self.device,
        )
        missing = names - set(captured.symbol_sources())
        if missing:
            raise SizeError("a size of an input is not free by itself", self._axes(fields, missing))
        return captured

    def _tensors(self) -> list[torch.Tensor]:
        return [*self.arguments.tensors, *self.states()]

    def states(self) -> list[torch.Tensor]:
        """The attributes that forward sets and reads, as they are."""
        return [getattr(owner_of(self.module, one.path), one.name) for one in self.lifted]

    def _axes(self, fields: tuple[Field, ...], names: set[str]) -> Axes:
        """The dimensions of tensors in which some named sizes are."""
        shapes = [f.shape for f in fields if f.shape is not None]
        return frozenset(
            (i, a)
            for i, shape in enumerate(shapes)
            for a, d in enumerate(shape)
            if isinstance(d, Sym) and d.names() & names
        )

    def _derived(self, outputs: list[Output], result: Any) -> dict[str, Derived]:
        """What the sizes of values are computed from, in an order in which they can be."""
        order: dict[str, Derived] = {}

        def visit(name: str) -> None:
            one = self.sizes.derived.get(name)
            if one is not None and name not in order:
                for d in one.operands:
                    for inner in sorted(d.names()) if isinstance(d, Sym) else ():
                        visit(inner)
                order[name] = one

        for name in self.sizes.derived:
            visit(name)
        return order

    def _check_leaks(self, constants: Mapping[str, torch.Tensor]) -> None:
        if self.module is self.original:
            return
        held = (*self.original.parameters(), *self.original.buffers())
        known = {t.untyped_storage().data_ptr() for t in held if t.layout is torch.strided}
        for name, tensor in constants.items():
            inside = has_attribute(self.module, name) or tensor.layout is not torch.strided
            if not inside and tensor.untyped_storage().data_ptr() in known and tensor.numel():
                raise Leak(name)

    # --- inputs ---------------------------------------------------------------------------------
    def _fields(self) -> tuple[Field, ...]:
        metas = [n.meta["val"] for n, s in self._bound_inputs() if s.kind == InputKind.USER_INPUT]
        shapes = [tuple(self.sizes.dim(d) for d in meta.shape) for meta in metas]
        number = len(self.arguments.tensors)
        fields = list(self.arguments.fields(shapes[:number]))
        for one, state, shape in zip(self.lifted, self.states(), shapes[number:], strict=True):
            if type(state) is not torch.Tensor:
                raise CaptureError(f"the attribute {one.text} is a {type(state).__name__}")
            fields.append(Field(attribute(one.text), shape, state.dtype))
        if not self.made.watch.layout:
            return tuple(fields)
        tensors = iter(self._tensors())
        return tuple(
            f
            if f.shape is None
            else replace(f, strides=(t := next(tensors)).stride(), offset=int(t.storage_offset()))
            for f in fields
        )

    def _bound_inputs(self) -> list[tuple[torch.fx.Node, Any]]:
        places = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        return list(zip(places, self.program.graph_signature.input_specs, strict=True))

    def _placeholders(self, fields: tuple[Field, ...]) -> None:
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        user = iter([f for f in fields if f.shape is not None])
        index = 0
        for node, spec in self._bound_inputs():
            meta = node.meta.get("val")
            if spec.kind == InputKind.USER_INPUT:
                field = next(user)
                assert field.shape is not None and field.dtype is not None
                made = leaf("input", field.shape, field.dtype, name=field.path, index=index)
                self.env[node] = Value(made, field.shape)
                index += 1
                continue
            if not isinstance(meta, torch.Tensor):
                raise CaptureError(f"an input of kind {spec.kind.name}")
            shape = tuple(self.sizes.dim(d) for d in meta.shape)
            kind = {
                InputKind.PARAMETER: "param",
                InputKind.BUFFER: "state" if spec.target in written else "param",
                InputKind.CONSTANT_TENSOR: "constant",
            }.get(spec.kind)
            if kind is None:
                raise CaptureError(f"an input of kind {spec.kind.name}")
            name = without_inner(spec.target)
            # a first dimension of size 1 is not seen in the padded shape
            rank = {"rank": len(shape)} if shape[:1] == (1,) and len(shape) > 1 else {}
            self.env[node] = self._literal(spec, shape, meta.dtype) or Value(
                leaf(kind, shape, meta.dtype, name=name, **rank), shape
            )

    def _literal(self, spec: Any, shape: tuple[Dim, ...], dtype: torch.dtype) -> Value | None:
        """A small tensor that forward itself makes, as the numbers that it holds."""
        if spec.kind != InputKind.CONSTANT_TENSOR or spec.target not in self.literals:
            return None
        tensor = self.program.constants.get(spec.target)
        if not isinstance(tensor, torch.Tensor) or tensor.is_complex():
            return None
        self.reads_default_dtype |= dtype.is_floating_point
        if tensor.numel() == 1:
            return Value(as_scalar(tensor.item(), dtype), shape)
        if tensor.numel() > _LARGEST_LITERAL:
            return None
        named = {"dtype": dtype, "device": self.device}
        made: Value = self._opaque("torch.tensor", (shape, dtype), (tensor.tolist(),), named)
        return made

    # --- calls ----------------------------------------------------------------------------------
    def _call(self, node: torch.fx.Node) -> Any:
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
        handler = (
            HANDLERS.get(target.overloadpacket.__name__) if target.namespace == "aten" else None
        )
        if handler is not None:
            try:
                made = handler(out, *args, **kwargs)
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


_LARGEST_LITERAL = 256  # elements, which are written out

VALUES = (
    "forward needs a tensor's values as Python numbers (it branches on them, or computes with what"
    " .item() or float() gives)"
)


_DATA_SIZES = "the size of a value in forward depends on what a tensor holds, not on sizes alone"
