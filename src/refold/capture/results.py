"""Read what an exported program returns, sets and writes: values, views and buffers."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from refold.capture.calls import Calls
from refold.capture.captured import attribute, has_attribute
from refold.capture.containers import mapped
from refold.capture.forms import OutputIndex, Viewed
from refold.capture.owner import owner, shows
from refold.capture.program import Flat, without_inner
from refold.capture.values import CaptureError, SizeError, Value
from refold.ir import Dim, Output, hint
from refold.ir.graph import memory_of

if TYPE_CHECKING:
    from refold.capture.reader import Reader


class Results:
    """Reads the results of one exported program, whose calls a `Reader` has read."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        # the buffers that nodes are written to
        self.rewritten: dict[torch.fx.Node, list[str]] = {}
        self.memory: dict[int, str] = {}  # names of the memory of real results, by its address

    def read(self) -> tuple[list[Output], Any, dict[str, Any]]:
        """The outputs, and the trees of the result and of attributes that are set, over them."""
        final = next(n for n in self.reader.program.graph.nodes if n.op == "output")
        returned: list[Output] = []
        written: list[Output] = []
        places: list[Any] = []
        specs = self.reader.program.graph_signature.output_specs
        for node, spec in zip(final.args[0], specs, strict=True):
            if spec.kind == OutputKind.BUFFER_MUTATION:
                self.rewritten.setdefault(node, []).append(without_inner(str(spec.target)))
            elif spec.kind != OutputKind.USER_OUTPUT:  # before a real call writes there
                raise CaptureError("forward writes to its own inputs")
        real = self._real_results()
        for node, spec in zip(final.args[0], specs, strict=True):
            v = self.reader.known(node) if isinstance(node, torch.fx.Node) else node
            if spec.kind == OutputKind.USER_OUTPUT:
                if not isinstance(v, Value):
                    places.append(v)
                    continue
                seen = next(real)
                view = self._view(node, seen)
                if view is not None:
                    places.append(view)
                    continue
                places.append(OutputIndex(len(returned)))
                strides = self._strides(node.meta["val"], seen)
                returned.append(
                    Output(v.node, v.shape, strides=strides, memory=self._memory(node, seen))
                )
            else:
                assert isinstance(spec.arg, TensorArgument)
                written.append(Output(v.node, v.shape, mutates=without_inner(spec.target)))

        def placed(tree: Any) -> Any:
            return mapped(tree, lambda v: places[v.index] if isinstance(v, OutputIndex) else v)

        assigned = {k: placed(v) for k, v in self.reader.made.assigned.items()}
        return returned + written, placed(self.reader.made.result), assigned

    def _view(self, node: torch.fx.Node, real: torch.Tensor | None) -> Viewed | None:
        """A result that lies in the memory of an argument, a parameter or a buffer, as a view.

        real: the result of a real call. It tells a buffer that is written from what is copied
        there, which are one value of the export.
        """
        found = view_of(node, self.reader, self.rewritten)
        if found is not None and found[0] in self.rewritten:
            for name in self.rewritten[found[0]]:
                if real is not None and _lies_in(real, self._held(name)):
                    return Viewed(attribute(name), found[1])
            found = view_of(node, self.reader)
        if found is None:
            return None
        node, calls = found
        value = self.reader.env[node] if node.op == "placeholder" else None
        if not isinstance(value, Value) or value.node.op not in ("input", "param", "constant"):
            return None
        if value.node.op == "input":
            return Viewed(value.node["name"], calls)
        name = value.node["name"]
        if value.node.op == "constant" and not has_attribute(self.reader.original, name):
            return None
        return Viewed(attribute(name), calls)

    def _held(self, name: str) -> torch.Tensor:
        """A buffer of the module that is captured."""
        parent, _, last = name.rpartition(".")
        made: torch.Tensor = getattr(self.reader.module.get_submodule(parent), last)
        return made

    def _memory(self, node: torch.fx.Node, real: torch.Tensor | None) -> str:
        """A name of the memory that a result lies in: of another's, where a real call gives both in
        one, as a dropout does that drops nothing."""
        made = owner(node)
        value = self.reader.env[made] if made.op == "placeholder" else None
        if isinstance(value, Value) and value.node.row.is_named:
            return memory_of(value.node)
        if real is None or real.layout is not torch.strided or not real.numel():
            return made.name
        return self.memory.setdefault(real.untyped_storage().data_ptr(), made.name)

    def _strides(self, meta: torch.Tensor, real: torch.Tensor | None) -> tuple[Dim, ...] | None:
        """A result's strides; None where its elements lie one after the other.

        meta: what the export foresees. real: the result of a real call, which has the last word.
        """
        shape, strides = (
            [self.reader.sizes.dim(d) for d in sizes] for sizes in (meta.shape, meta.stride())
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
        return other_than_rows(shape, strides)

    def _real_results(self) -> Iterator[torch.Tensor | None]:
        """The tensors that a call gives, where the export cannot be trusted to know their
        strides, or what shares memory: it knows the first where all values lie in the ordinary way,
        and the second where there is one result that is not written to a buffer."""
        metas = (n.meta.get("val") for n in self.reader.program.graph.nodes)
        values = [v for v in pytree.tree_leaves(list(metas)) if isinstance(v, torch.Tensor)]
        dense = [v for v in values if v.layout is torch.strided]  # others nothing reads
        if all(v.is_contiguous() for v in dense) and self._is_alone():
            return itertools.repeat(None)
        # a layer may have another way where no function of PyTorch is watched (attention has)
        unwatched = torch._C.DisableTorchFunction()
        with torch.no_grad(), warnings.catch_warnings(), unwatched:
            warnings.simplefilter("ignore")
            flat = Flat(
                self.reader.module,
                self.reader.arguments,
                self.reader.lifted,
                self.reader.made.watch,
                equal=(),
            )
            results = flat(*self.reader.arguments.tensors, *self.reader.states())
        found = [v for v in results if isinstance(v, torch.Tensor)]
        specs = self.reader.program.graph_signature.output_specs
        user = [s.arg for s in specs if s.kind == OutputKind.USER_OUTPUT]
        if len(found) != sum(isinstance(arg, TensorArgument) for arg in user):
            raise CaptureError("a real call gives another number of results than torch.export")
        return iter(found)

    def _is_alone(self) -> bool:
        """Whether there is one result at most, and no view of a buffer that forward writes."""
        specs = self.reader.program.graph_signature.output_specs
        final = next(n for n in self.reader.program.graph.nodes if n.op == "output")
        given = [
            node
            for node, spec in zip(final.args[0], specs, strict=True)
            if spec.kind == OutputKind.USER_OUTPUT and isinstance(node, torch.fx.Node)
        ]
        found = [view_of(node, self.reader, self.rewritten) for node in given]
        return len(given) < 2 and all(f is None or f[0] not in self.rewritten for f in found)


def _lies_in(value: torch.Tensor, memory: torch.Tensor) -> bool:
    dense = value.layout is torch.strided and memory.layout is torch.strided
    return dense and value.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


def view_of(
    node: torch.fx.Node, reader: Calls, known: Container[torch.fx.Node] = ()
) -> tuple[torch.fx.Node, tuple[Any, ...]] | None:
    """The value of which another is a view, and the calls that make the view of it, in order; None
    where a call on the way is no view, or takes another tensor.

    known: calls at which the way ends; it ends at a placeholder, or at a constant.
    """
    calls: list[tuple[str, Any, Any, Any]] = []
    index: Any
    while node.op == "call_function" and node not in known:
        call, index = node, None
        if node.target is operator.getitem:
            call, index = node.args  # type: ignore[assignment]
        if not isinstance(call, torch.fx.Node) or not shows(call):
            return None
        source, *args = call.args
        if call.target is torch.ops.aten.type_as.default:  # of one dtype it gives what it is given
            assert isinstance(source, torch.fx.Node)
            node = source
            continue
        try:
            others: Any = torch.fx.map_arg((tuple(args), dict(call.kwargs)), reader.known)
        except SizeError:
            return None
        if any(isinstance(v, Value) for v in pytree.tree_leaves(others)):
            return None
        calls.append((str(call.target), others[0], tuple(sorted(others[1].items())), index))
        assert isinstance(source, torch.fx.Node)
        node = source
    return node, tuple(reversed(calls))


def other_than_rows(shape: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Strides, or None where the elements lie one after the other."""
    step: Dim = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return tuple(strides)
        step = size * step
    return None
