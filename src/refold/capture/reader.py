"""Read an exported program as a Graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from refold.capture.arguments import Arguments
from refold.capture.calls import Calls
from refold.capture.captured import Argument, Captured, attribute, has_attribute
from refold.capture.containers import classes_of
from refold.capture.draws import FIRST, drawn, dropped, everything_dropped, is_drawn
from refold.capture.kept import apart_of
from refold.capture.lifted import Lifted
from refold.capture.program import Exported, constants_of, without_inner
from refold.capture.results import Results
from refold.capture.sizes import Derived
from refold.capture.values import Axes, CaptureError, SizeError, Value
from refold.ir import Dim, Graph, Output, Sym, as_scalar, leaf
from refold.ir.graph import draws_of, topological
from refold.ir.node import opaque


class Leak(Exception):
    """Forward has found a tensor of the original module by a way that its twin does not have."""


class Reader(Calls):
    """Reads one exported program into a graph."""

    def __init__(
        self,
        module: torch.nn.Module,
        original: torch.nn.Module,
        arguments: Arguments,
        made: Exported,
        lifted: tuple[Lifted, ...],
    ) -> None:
        # where the inputs are
        super().__init__(arguments.tensors[0].device if arguments.tensors else None)
        self.module = module
        self.original = original
        self.arguments = arguments
        self.made = made
        self.lifted = lifted
        self.program = made.program
        self.literals = made.literals
        self.number, self.draw = 0, FIRST  # of the next draw, and the one before

    def read(self) -> Captured:
        fields = self._fields()
        self._placeholders(fields)
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.env[node] = self._drawn(node) if is_drawn(node) else self.call(node)
        outputs, result, assigned = Results(self).read()
        if not outputs:
            raise CaptureError("nothing to rewrite or to fuse: forward returns what it is given")
        everything = topological(o.value for o in outputs)
        read = draws_of(everything)
        if len(read) != len(self.made.drawn) or self.number != len(read):
            raise CaptureError("forward draws random numbers of which nothing follows")
        dims = [d for f in fields for d in f.shape or () if isinstance(d, Sym)]
        names = {s for d in dims for s in d.names()} | set(self.numbers)
        ranges = {}
        for symbol, bound in self.program.range_constraints.items():
            name = self.sizes.names.get(str(symbol))
            if name in names:
                upper = int(bound.upper) if bound.upper.is_Integer else None
                ranges[name] = (max(2, int(bound.lower)), upper)
        used = {n["name"] for n in everything if n.op == "constant"}
        constants = {k: v for k, v in constants_of(self.program).items() if k in used}
        self._check_leaks(constants)
        watch = self.made.watch
        queries = dict(watch.queries)
        if self.reads_default_dtype:
            queries["torch.get_default_dtype()"] = torch.get_default_dtype()
        if watch.history:
            queries["torch.is_grad_enabled()"] = False
        if watch.history or watch.graded:
            paths = [f.path for f in fields if f.shape is not None]
            for path, tensor in zip(paths, self._tensors(), strict=True):
                queries[f"{path}.requires_grad"] = tensor.requires_grad
        for path, tensor in self.module.named_parameters() if watch.graded else ():
            queries[f"{attribute(path)}.requires_grad"] = tensor.requires_grad
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
            numbers=self.numbers,
            reals=frozenset(self.arguments.counted) - set(self.numbers.values()),
            varied=frozenset(
                f"{p}.{n}".strip(".") for p, n, *keys in self.arguments.settings if not keys
            ),
            inside=tuple(place for place in self.arguments.settings if len(place) > 2),
            apart=apart_of(self.module),
            inference=watch.inference,
        )
        sources = set(captured.symbol_sources())
        if sources & set(self.numbers):
            raise CaptureError("a number among the arguments has to be a size")
        missing = names - sources - set(self.numbers)
        if missing:
            raise SizeError("a size of an input is not free by itself", self._axes(fields, missing))
        return captured

    def _drawn(self, node: torch.fx.Node) -> Any:
        """What a call gives that draws random numbers, or drops everything."""
        meta: Any = node.args[0].meta["val"]  # type: ignore[union-attr]
        noise = None
        if not everything_dropped(node):
            if self.number >= len(self.made.drawn) or meta.device != self.device:
                raise CaptureError(f"forward draws random numbers ({node.target})")
            how, shape = self.made.drawn[self.number], tuple(map(self.sizes.dim, meta.shape))
            self.draw, noise = drawn(node, how, self.number, self.draw, shape)
            self.number += 1
            if node.target is torch.ops.aten.bernoulli.p:
                return noise
        x = self.known(node.args[0])  # type: ignore[arg-type]
        made = dropped(x, noise, node.args[1])  # type: ignore[arg-type]
        return made if node.target is torch.ops.aten.dropout.default else [made, None]

    def _tensors(self) -> list[torch.Tensor]:
        return [*self.arguments.tensors, *self.states()]

    def states(self) -> list[torch.Tensor]:
        """The attributes that forward sets and reads, as they are."""
        return [one.value(self.module) for one in self.lifted]

    def _axes(self, fields: tuple[Argument, ...], names: set[str]) -> Axes:
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
    def _fields(self) -> tuple[Argument, ...]:
        metas = [n.meta["val"] for n, s in self._bound_inputs() if s.kind == InputKind.USER_INPUT]
        shapes = [tuple(self.sizes.dim(d) for d in meta.shape) for meta in metas]
        number = len(self.arguments.tensors)
        fields = list(self.arguments.fields(shapes[:number]))
        last = number + len(self.lifted)
        self.numbers = dict(self._numbers(shapes[last:]))
        for one, state, shape in zip(self.lifted, self.states(), shapes[number:last], strict=True):
            if type(state) is not torch.Tensor:
                raise CaptureError(f"the attribute {one.text} is a {type(state).__name__}")
            fields.append(Argument(one.read(self.module), shape, state.dtype))
        if not self.made.watch.layout:
            return tuple(fields)
        tensors = iter(self._tensors())
        return tuple(
            f
            if f.shape is None
            else replace(f, strides=(t := next(tensors)).stride(), offset=int(t.storage_offset()))
            for f in fields
        )

    def _numbers(self, shapes: list[tuple[Dim, ...]]) -> Iterator[tuple[str, str]]:
        """The named sizes that numbers among the arguments are, and these numbers' paths."""
        for name, shape in zip(self.arguments.counted, shapes, strict=True):
            if not shape:
                continue  # a value
            symbols = shape[0].names() if isinstance(shape[0], Sym) else frozenset()
            if len(symbols) != 1:
                raise CaptureError(f"{name} does not vary by itself")
            yield next(iter(symbols)), name

    def _bound_inputs(self) -> list[tuple[torch.fx.Node, Any]]:
        places = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        return list(zip(places, self.program.graph_signature.input_specs, strict=True))

    def _placeholders(self, fields: tuple[Argument, ...]) -> None:
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        user = iter([f for f in fields if f.shape is not None])
        counted = iter(self.arguments.counted)
        index = 0
        for node, spec in self._bound_inputs():
            meta = node.meta.get("val")
            if spec.kind == InputKind.USER_INPUT:
                argument = next(user, None)
                if argument is None:
                    self.env[node] = self._carried(next(counted))
                    continue
                assert argument.shape is not None and argument.dtype is not None
                made = leaf(
                    "input", argument.shape, argument.dtype, name=argument.path, index=index
                )
                self.env[node] = Value(made, argument.shape)
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

    def _carried(self, name: str) -> Value | None:
        """What carries a number that varies: nothing reads a whole one's; another one is made a
        tensor by each call."""
        value = self.arguments.counted[name]
        if isinstance(value, int):
            return None
        made = opaque(
            (),
            (),
            torch.float64,
            target="torch.scalar_tensor",
            args=(("@", name, value),),
            kwargs=(("device", ("device", "")), ("dtype", torch.float64)),
            shapes=(),
            index=None,
            rank=0,
        )
        return Value(made, ())

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


_LARGEST_LITERAL = 256  # elements, which are written out
