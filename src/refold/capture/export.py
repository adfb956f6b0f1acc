"""Read an exported program as a Graph.

Every size varies that the module lets vary. Where sizes turn out not to be polynomials, or the
module branches on them, only the leading dimension varies, or none: the graph then serves exactly
the shapes of the example, and others take the original forward.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from refold.capture.aten import HANDLERS
from refold.capture.captured import Captured, Field
from refold.capture.kept import kept
from refold.capture.owner import owner
from refold.capture.program import Exported, exported
from refold.capture.results import Slot, makers
from refold.capture.sizes import Sizes
from refold.capture.values import CaptureError, Unsupported, Value
from refold.ir import Dim, Graph, Node, Output, Sym, as_scalar, hint, leaf
from refold.ir.graph import memory_of, topological
from refold.ir.node import opaque


def capture(module: torch.nn.Module, args: Sequence[Any], *, training: bool) -> Captured:
    """Capture `module(*args)` in train or eval mode. Modes, buffers and the random
    state are left as they were.

    Raises CaptureError with one line that says why the module cannot be captured.
    """
    if "forward" in vars(module):  # a class's forward, a fast one too, would not be called
        raise CaptureError("the module itself, not its class, has the forward that is called")
    rng = torch.get_rng_state()
    try:
        with kept(module):
            module.train(training)
            reasons = []
            for axes in (None, 1, 0):
                try:
                    return _Reader(module, tuple(args), exported(module, tuple(args), axes)).read()
                except (CaptureError, Unsupported) as error:
                    reasons.append(str(error))
                except Exception as error:
                    reasons.append(_said(error))
            raise CaptureError(reasons[-1])
    finally:
        torch.set_rng_state(rng)


class _Reader:
    """Reads one exported program into a graph."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], made: Exported) -> None:
        self.module = module
        self.args = args
        self.program = made.program
        self.conditions = made.conditions
        self.literals = made.literals
        self.reads_default_dtype = False
        # where the inputs are; calls that name this device mean theirs
        tensors = [v for v in pytree.tree_leaves(args) if isinstance(v, torch.Tensor)]
        self.device = tensors[0].device if tensors else None
        self.sizes = Sizes()
        self.env: dict[torch.fx.Node, Any] = {}

    def read(self) -> Captured:
        fields = self._fields()
        self._placeholders(fields)
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.env[node] = self._call(node)
        outputs, result = self._outputs()
        names = {s for f in fields for d in f.shape or () if isinstance(d, Sym) for s in d.names()}
        ranges = {}
        for symbol, bound in self.program.range_constraints.items():
            name = self.sizes.names.get(str(symbol))
            if name in names:
                upper = int(bound.upper) if bound.upper.is_Integer else None
                ranges[name] = (max(2, int(bound.lower)), upper)
        used = {n["name"] for o in outputs for n in topological([o.value]) if n.op == "constant"}
        constants = {
            k: v
            for k, v in self.program.constants.items()
            if k in used and isinstance(v, torch.Tensor)
        }
        captured = Captured(
            Graph(tuple(outputs)),
            fields,
            result,
            makers(result, self.module),
            ranges,
            constants,
            frozenset(name for name in constants if _has_attribute(self.module, name)),
            self.module.training,
            self.conditions,
            torch.get_default_dtype() if self.reads_default_dtype else None,
        )
        if names - set(captured.symbol_sources()):
            raise CaptureError("a size of an input is not free by itself")
        return captured

    # --- inputs ---------------------------------------------------------------------------------
    def _fields(self) -> tuple[Field, ...]:
        values = [
            n.meta.get("val") for n, s in self._bound_inputs() if s.kind == InputKind.USER_INPUT
        ]
        leaves, _ = pytree.tree_flatten_with_path((self.args, {}))
        parameters = [
            p
            for p in inspect.signature(self.module.forward).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
        ]
        fields = []
        for (path, original), meta in zip(leaves, values, strict=True):
            text = _path_text(path[1:], parameters)
            if isinstance(original, torch.Tensor) and isinstance(meta, torch.Tensor):
                if type(original) not in (torch.Tensor, torch.nn.Parameter):
                    raise CaptureError(f"the input {text} is a {type(original).__name__}")
                shape = tuple(self.sizes.dim(d) for d in meta.shape)
                fields.append(Field(text, shape, original.dtype))
            elif type(original) in (bool, int, float, str, type(None)):
                fields.append(Field(text, None, None, original))
            else:
                raise CaptureError(f"the input {text} is a {type(original).__name__}")
        return tuple(fields)

    def _bound_inputs(self) -> list[tuple[torch.fx.Node, Any]]:
        places = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        return list(zip(places, self.program.graph_signature.input_specs, strict=True))

    def _placeholders(self, fields: tuple[Field, ...]) -> None:
        written = set(self.program.graph_signature.buffers_to_mutate.values())
        user = iter(fields)
        index = 0
        for node, spec in self._bound_inputs():
            meta = node.meta.get("val")
            if spec.kind == InputKind.USER_INPUT:
                field = next(user)
                if field.shape is not None and field.dtype is not None:
                    name = field.path
                    made = leaf("input", field.shape, field.dtype, name=name, index=index)
                    self.env[node] = Value(made, field.shape)
                    index += 1
                else:
                    self.env[node] = field.value
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
            self.env[node] = self._literal(spec, shape, meta.dtype) or Value(
                leaf(kind, shape, meta.dtype, name=spec.target), shape
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
        if not 0 < tensor.numel() <= _LARGEST_LITERAL:
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
            return self.sizes.dim(meta)
        args = torch.fx.map_arg(node.args, self.env.__getitem__)
        kwargs = torch.fx.map_arg(node.kwargs, self.env.__getitem__)
        if not isinstance(target, torch._ops.OpOverload):
            if isinstance(meta, torch.SymBool):
                raise CaptureError(_DATA_SIZES)
            if meta is None:
                return None  # an assertion on sizes: what it asserts stands in the ranges
            raise CaptureError(f"a call of {target} gives a {type(meta).__name__}")
        if str(target).startswith(("aten._assert", "aten.sym_constrain")):
            return None
        out = self._meta_shapes(meta)
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

    @staticmethod
    def _read_indices(node: torch.fx.Node) -> set[Any]:
        return {u.args[1] if u.target is operator.getitem else None for u in node.users}

    def _meta_shapes(self, meta: Any) -> Any:
        if isinstance(meta, torch.Tensor):
            return tuple(self.sizes.dim(d) for d in meta.shape), meta.dtype
        if isinstance(meta, (tuple, list)):
            return [self._meta_shapes(m) for m in meta]
        if meta is None:
            return None
        if isinstance(meta, (torch.SymFloat, torch.SymBool)):
            raise CaptureError(_VALUES)
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
    def _outputs(self) -> tuple[list[Output], Any]:
        final = next(n for n in self.program.graph.nodes if n.op == "output")
        returned: list[Output] = []
        written: list[Output] = []
        flat: list[Any] = []
        real = self._real_results()
        for node, spec in zip(
            final.args[0], self.program.graph_signature.output_specs, strict=True
        ):
            v = self.env[node] if isinstance(node, torch.fx.Node) else node
            if spec.kind == OutputKind.USER_OUTPUT:
                if isinstance(v, Value):
                    flat.append(Slot(len(returned)))
                    strides = self._strides(node.meta["val"], next(real))
                    memory = self._memory(node)
                    returned.append(Output(v.node, v.shape, strides=strides, memory=memory))
                else:
                    flat.append(v)
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                assert isinstance(spec.arg, TensorArgument)
                written.append(Output(v.node, v.shape, mutates=spec.target))
            else:
                raise CaptureError("forward writes to its own inputs")
        spec = self.program.call_spec.out_spec
        assert spec is not None
        return returned + written, pytree.tree_unflatten(flat, spec)

    def _memory(self, node: torch.fx.Node) -> str:
        """A name of the memory that a result lies in."""
        made = owner(node)
        value = self.env[made] if made.op == "placeholder" else None
        if isinstance(value, Value) and value.node.op in ("input", "param", "state", "constant"):
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
        """The tensors that a call returns, where the export cannot be trusted to know their
        strides: it knows them where all values lie in the ordinary way."""
        metas = (n.meta.get("val") for n in self.program.graph.nodes)
        values = [v for v in pytree.tree_leaves(list(metas)) if isinstance(v, torch.Tensor)]
        if all(v.is_contiguous() for v in values):
            return itertools.repeat(None)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = pytree.tree_leaves(self.module(*self.args))
        return iter([v for v in results if isinstance(v, torch.Tensor)])


def _path_text(path: Sequence[Any], parameters: Sequence[inspect.Parameter]) -> str:
    position = path[0].idx
    rest = path[1:]
    last = parameters[-1] if parameters else None
    if last is not None and last.kind is last.VAR_POSITIONAL and position >= len(parameters) - 1:
        text = f"{last.name}[{position - len(parameters) + 1}]"
    else:
        text = parameters[position].name
    for key in rest:
        if isinstance(key, pytree.SequenceKey):
            text += f"[{key.idx}]"
        elif isinstance(key, pytree.MappingKey):
            text += f"[{key.key!r}]"
        else:
            raise CaptureError(f"the input {text} holds a custom container")
    return text


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

_VALUES = (
    "forward needs a tensor's values as Python numbers (it branches on them, or computes with what"
    " .item() or float() gives)"
)


_DATA_SIZES = "the size of a value in forward depends on what a tensor holds, not on sizes alone"


def _said(error: Exception) -> str:
    """Why torch.export failed, in one line."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return _VALUES
    return f"torch.export cannot capture forward: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
