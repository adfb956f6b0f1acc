"""Read an exported program as a Graph."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from refold.capture.arguments import Arguments
from refold.capture.aten import HANDLERS
from refold.capture.captured import Axes, Captured, Field, attribute
from refold.capture.containers import Slot, Viewed, classes_of, mapped
from refold.capture.owner import owner, shows
from refold.capture.program import INNER, Exported, Flat, Lifted
from refold.capture.sizes import Derived, Sizes
from refold.capture.values import CaptureError, SizeError, Unsupported, Value
from refold.capture.watch import owner_of
from refold.ir import Dim, Graph, Node, Output, Sym, as_scalar, hint, leaf
from refold.ir.graph import memory_of, topological
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
        outputs, result, assigned = self._outputs()
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
            for k, v in ((_without(k), v) for k, v in self.program.constants.items())
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
            frozenset(name for name in constants if _has_attribute(self.original, name)),
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
        return [*self.arguments.tensors, *self._states()]

    def _states(self) -> list[torch.Tensor]:
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
            inside = _has_attribute(self.module, name) or tensor.layout is not torch.strided
            if not inside and tensor.untyped_storage().data_ptr() in known and tensor.numel():
                raise Leak(name)

    # --- inputs ---------------------------------------------------------------------------------
    def _fields(self) -> tuple[Field, ...]:
        metas = [n.meta["val"] for n, s in self._bound_inputs() if s.kind == InputKind.USER_INPUT]
        shapes = [tuple(self.sizes.dim(d) for d in meta.shape) for meta in metas]
        number = len(self.arguments.tensors)
        fields = list(self.arguments.fields(shapes[:number]))
        for one, state, shape in zip(self.lifted, self._states(), shapes[number:], strict=True):
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
            name = _without(spec.target)
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
        args = torch.fx.map_arg(node.args, self._known)
        kwargs = torch.fx.map_arg(node.kwargs, self._known)
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

    def _known(self, node: torch.fx.Node) -> Any:
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

    # --- outputs --------------------------------------------------------------------------------
    def _outputs(self) -> tuple[list[Output], Any, dict[str, Any]]:
        """The outputs, and the trees of the result and of attributes that are set, over them."""
        final = next(n for n in self.program.graph.nodes if n.op == "output")
        returned: list[Output] = []
        written: list[Output] = []
        places: list[Any] = []
        real = self._real_results()
        specs = self.program.graph_signature.output_specs
        self.rewritten = {
            node: _without(str(spec.target))
            for node, spec in zip(final.args[0], specs, strict=True)
            if spec.kind == OutputKind.BUFFER_MUTATION
        }
        for node, spec in zip(final.args[0], specs, strict=True):
            v = self._known(node) if isinstance(node, torch.fx.Node) else node
            if spec.kind == OutputKind.USER_OUTPUT:
                if not isinstance(v, Value):
                    places.append(v)
                    continue
                view = self._view(node)
                seen = next(real)
                if view is not None:
                    places.append(view)
                    continue
                places.append(Slot(len(returned)))
                strides = self._strides(node.meta["val"], seen)
                returned.append(Output(v.node, v.shape, strides=strides, memory=self._memory(node)))
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                assert isinstance(spec.arg, TensorArgument)
                written.append(Output(v.node, v.shape, mutates=_without(spec.target)))
            else:
                raise CaptureError("forward writes to its own inputs")

        def placed(tree: Any) -> Any:
            return mapped(tree, lambda v: places[v.index] if isinstance(v, Slot) else v)

        assigned = {k: placed(v) for k, v in self.made.assigned.items()}
        return returned + written, placed(self.made.result), assigned

    def _view(self, node: torch.fx.Node) -> Viewed | None:
        """A result that lies in the memory of an argument, a parameter or a buffer, as a view."""
        calls: list[tuple[str, Any, Any, Any]] = []
        index: Any
        while node.op == "call_function" and node not in self.rewritten:
            call, index = node, None
            if node.target is operator.getitem:
                call, index = node.args  # type: ignore[assignment]
            if not isinstance(call, torch.fx.Node) or not shows(call):
                return None
            source, *args = call.args
            try:
                others: Any = torch.fx.map_arg((tuple(args), dict(call.kwargs)), self._known)
            except SizeError:
                return None
            if any(isinstance(v, Value) for v in pytree.tree_leaves(others)):
                return None
            calls.append((str(call.target), others[0], tuple(sorted(others[1].items())), index))
            assert isinstance(source, torch.fx.Node)
            node = source
        if node in self.rewritten:
            name = self.rewritten[node]
        else:
            value = self.env[node] if node.op == "placeholder" else None
            if not isinstance(value, Value) or value.node.op not in ("input", "param", "constant"):
                return None
            if value.node.op == "input":
                return Viewed(value.node["name"], tuple(reversed(calls)))
            name = value.node["name"]
            if value.node.op == "constant" and not _has_attribute(self.original, name):
                return None
        return Viewed(attribute(name), tuple(reversed(calls)))

    def _memory(self, node: torch.fx.Node) -> str:
        """A name of the memory that a result lies in."""
        made = owner(node)
        value = self.env[made] if made.op == "placeholder" else None
        if isinstance(value, Value) and value.node.row.is_named:
            return memory_of(value.node)
        return made.name

    def _strides(self, meta: torch.Tensor, real: torch.Tensor | None) -> tuple[Dim, ...] | None:
        """A result's strides; None where its elements lie one after the other.

        meta: what the export foresees. real: the result of a real call, which has the last word.
        """
        shape, strides = (
            [self.sizes.dim(d) for d in sizes] for sizes in (meta.shape, meta.stride())
        )
        if real is not None:
            live = [i for i, n in enumerate(real.shape) if n > 1]
            if any(hint(strides[i]) != real.stride(i) for i in live):
                order = sorted(range(real.dim()), key=lambda i: (-real.stride()[i], i))
                step: Dim = 1
                for i in reversed(order):
                    strides[i], step = step, shape[i] * step
                if any(hint(strides[i]) != real.stride(i) for i in live):
                    raise CaptureError("a result lies in memory as torch.export does not foresee")
        step = 1
        for size, stride in zip(reversed(shape), reversed(strides), strict=True):
            if size != 1 and stride != step:
                return tuple(strides)
            step = size * step
        return None

    def _real_results(self) -> Iterator[torch.Tensor | None]:
        """The tensors that a call gives, where the export cannot be trusted to know their
        strides: it knows them where all values lie in the ordinary way."""
        metas = (n.meta.get("val") for n in self.program.graph.nodes)
        values = [v for v in pytree.tree_leaves(list(metas)) if isinstance(v, torch.Tensor)]
        if all(v.is_contiguous() for v in values):
            return itertools.repeat(None)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat = Flat(self.module, self.arguments, self.lifted, self.made.watch)
            results = flat(*self.arguments.tensors, *self._states())
        if len(results) != len(self.program.graph_signature.user_outputs):
            raise CaptureError("a real call gives another number of results than torch.export")
        return iter([v for v in results if isinstance(v, torch.Tensor)])


def _without(name: str) -> str:
    """A name in what is exported, as it is in the module."""
    return name.removeprefix(f"{INNER}.")


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


def _has_attribute(module: torch.nn.Module, name: str) -> bool:
    try:
        return isinstance(operator.attrgetter(name)(module), torch.Tensor)
    except AttributeError:
        return False


_LARGEST_LITERAL = 256  # elements, which are written out

VALUES = (
    "forward needs a tensor's values as Python numbers (it branches on them, or computes with what"
    " .item() or float() gives)"
)


_DATA_SIZES = "the size of a value in forward depends on what a tensor holds, not on sizes alone"
