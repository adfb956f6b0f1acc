"""Run a plan by PyTorch alone: what its kernels compute, step by step, without any kernel.

A step reads only what it declares, of what steps before it have stored, in the dtype that it lies
in there. So a plan that forgets a value, orders steps wrongly, or rounds what it should not is
found here, and nothing has to be compiled for it.

Memory is real. A value that the plan places in another's memory is written there, piece by piece,
as a kernel writes it, and kernels read by address: row after row from where a value begins. A
placement over what is still needed, a view of the wrong part, a buffer that is written too early,
or an argument that kernels take for one that lies row after row is a wrong result then. Packed
forms are copies of their time. Values that a plan keeps in 16 bits by blocks (`Quantized`) lie in
memory of their own, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from refold.ir import Node
from refold.ir.evaluate import concrete
from refold.ir.graph import within
from refold.ir.rounded import run_exact, value_of
from refold.ir.shapes import RANK
from refold.plan.buffers import Fresh, InPlaceOf, StateOf, ViewOf, Written
from refold.plan.layout import BACK, TRANSPOSED
from refold.plan.plan import ExternCall, Group, Plan, is_rematerialized, reads
from refold.plan.product import Pack
from refold.plan.space import is_reduction

Values = Mapping[Node, torch.Tensor]
# Called after a step with what it has stored, as its readers find it then: later steps may write
# over it.
Watch = Callable[[Group | ExternCall, Values], None]


class Incomplete(Exception):
    """A plan that cannot be run: a step reads what no step before it made, or has no memory for
    what it stores."""


def run_plan(
    plan: Plan, leaves: Values, sizes: Mapping[str, int], watch: Watch | None = None
) -> list[torch.Tensor]:
    """The outputs of a plan, in their true shapes and in the dtypes that they have in memory. Of a
    buffer that is written it is what the buffer holds in the end.

    leaves: a tensor for every parameter, constant, input and state of the plan's graph. They are
    left as they are; results may lie in their memory. sizes: the value of every named size. watch:
    is called after each step.

    Raises:
        Incomplete: a step reads a value that is not declared, or that nothing has made, or the
            plan has no place for a value.
        NotImplementedError: a call of PyTorch cannot be made from its text.
    """
    return _Run(plan, leaves, sizes).outputs(watch)


class _Run:
    """memory: of each value, as its readers find it. written: of each buffer that may be written.
    packed: packed forms. codes: values that lie in 16 bits."""

    def __init__(self, plan: Plan, leaves: Values, sizes: Mapping[str, int]) -> None:
        self.plan, self.leaves, self.sizes = plan, leaves, sizes
        self.buffers = plan.buffers
        self.memory: dict[Node, torch.Tensor] = {}
        self.written: dict[str, torch.Tensor] = {}
        self.packed: dict[Pack, torch.Tensor] = {}
        self.codes: dict[Node, torch.Tensor] = {}
        self.calls: dict[Any, Any] = {}

    def outputs(self, watch: Watch | None = None) -> list[torch.Tensor]:
        self._leaves()
        for step in self.plan.steps:
            if isinstance(step, Group):
                self._group(step)
            elif step.node in self.buffers.places:
                self._call(step)
            if watch is not None:
                made = step.outputs if isinstance(step, Group) else (step.node,)
                lie = ((n, self.codes.get(n, self.memory.get(n))) for n in made)
                watch(step, {n: value for n, value in lie if value is not None})
        return self._results()

    def _leaves(self) -> None:
        prepared = self.buffers.prepared
        for fold in self.plan.folds:
            exact = run_exact([fold.node], self.leaves, self.sizes)[fold.node]
            value = exact.to(fold.node.dtype) if fold.node.is_float else exact
            self.memory[fold.node] = value.contiguous()
        for node in self.plan.graph.nodes():
            if node.op == "state":
                buffer = self.written[node["name"]] = self._leaf(node).clone()
                self.memory[node] = buffer.clone() if node in self.buffers.copied else buffer
            elif node.op == "input":
                given = self._leaf(node)
                self.memory[node] = given.contiguous() if node in self.buffers.dense else given
            elif node in prepared.reads:
                given = self._leaf(node)
                lies = node in prepared.as_they_lie
                self.memory[node] = given if lies else given.contiguous()
        for pack in prepared.packs:
            self._pack(pack)

    def _leaf(self, node: Node) -> torch.Tensor:
        return value_of(node, [], self.leaves, self.sizes, False, self.calls)

    # --- reading ----------------------------------------------------------------------------------
    def _load(self, wanted: Node, reader: str) -> torch.Tensor:
        """A value as it lies in memory, or what its readers compute for themselves of such."""
        done: dict[Node, torch.Tensor] = {}
        for node in within([wanted], lambda n: n not in self.memory):
            if node.op != "scalar" and not is_rematerialized(node):
                raise Incomplete(f"{reader} reads {node}, which no step before it made")
            inner = [done[i] if i in done else self.memory[i] for i in node.inputs]
            done[node] = value_of(node, inner, self.leaves, self.sizes, False, self.calls)
        return done[wanted] if wanted in done else self.memory[wanted]

    def _shape(self, node: Node) -> list[int]:
        return [concrete(d, self.sizes) for d in node.shape]

    def _by_address(self, node: Node, lies: torch.Tensor, reader: str) -> torch.Tensor:
        """What a kernel reads for `node` where `lies` begins: its elements row after row."""
        shape = self._shape(node)
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= max(size, 1)
        there = lies.untyped_storage().nbytes() // lies.element_size() - lies.storage_offset()
        if torch.Size(shape).numel() > there:
            raise Incomplete(f"{reader} takes {node} in memory of {there} elements")
        return lies.as_strided(shape, strides[::-1], lies.storage_offset())

    def _operand(self, node: Node, group: Group) -> torch.Tensor:
        """What a kernel reads of memory: loads widen what lies in fewer bits."""
        if group.quantized is not None and node in self.codes:
            return self.codes[node]
        value = self._load(node, group.name)
        if node in group.channels_last:
            if not value.permute(TRANSPOSED[group.images]).is_contiguous():
                raise Incomplete(f"{group.name} reads {node}, whose channels do not lie last")
        elif node in self.buffers.turned:
            raise Incomplete(f"{group.name} reads {node}, whose channels lie last")
        elif node in self.memory and node not in self.buffers.by_strides:
            value = self._by_address(node, value, group.name)
        return value.to(node.dtype)

    # --- kernels ----------------------------------------------------------------------------------
    def _group(self, group: Group) -> None:
        given, kernel = self.buffers.given.get(group.name, ()), group.kernel
        for pack in given:
            self._pack(pack)
        for pack in kernel.packs if kernel is not None else ():
            if pack not in given and kernel is not None and pack != kernel.itself:
                raise Incomplete(f"{group.name} is not given {pack[0]} packed")
        targets = {out: self._target(out, group) for out in group.outputs}
        least = kernel.quantized_from if kernel is not None else None
        if least is not None and concrete(group.rows, self.sizes) >= least:
            self.codes[group.value] = self._values(group)[group.value]
            self.memory[group.value] = targets.pop(group.value)
        for high, wide in self._pieces(group):
            values = self._values(group)
            for out, target in targets.items():
                made, lies = values[out].to(target.dtype), target
                for axis, part in ((_rows_axis(group), high), (-1, wide)):
                    made, lies = _part(made, axis, part), _part(lies, axis, part)
                lies.copy_(made)
        self.memory |= targets
        for counter, buffer in group.counters:
            self.written[buffer["name"]] += counter.inputs[1]["value"]

    def _target(self, out: Node, group: Group) -> torch.Tensor:
        """The memory that a kernel's result is written to."""
        kind = group.stored(out)
        match self.buffers.places.get(out):
            case Fresh():
                unknown = float("nan") if kind.is_floating_point else 0
                device = next((v.device for v in self.leaves.values()), None)
                made = torch.full(self._shape(out), unknown, dtype=kind, device=device)
                return self._with_channels_last(out, made)
            case InPlaceOf(node):
                lies = self._load(node, group.name)
            case StateOf(state):
                lies = self.written[state["name"]]
            case _:
                raise Incomplete(f"{group.name} has no memory for {out}")
        if lies.dtype != kind:
            raise Incomplete(f"{group.name} stores {kind} where {lies.dtype} lies")
        return lies if out in self.buffers.turned else self._by_address(out, lies, group.name)

    def _with_channels_last(self, node: Node, made: torch.Tensor) -> torch.Tensor:
        """A value in the order in which it lies in memory."""
        places = self.buffers.turned.get(node)
        if places is None:
            return made
        return made.permute(TRANSPOSED[places]).contiguous().permute(BACK[places])

    def _pieces(self, group: Group) -> list[tuple[int | None, int | None]]:
        """The pieces of a result between which a kernel reads what it needs anew: halves of its
        rows, and of its columns unless it reads a row whole before it writes any of it."""
        places = (self.buffers.places.get(out) for out in group.outputs)
        if all(isinstance(p, Fresh) for p in places):
            return [(None, None)]
        whole = any(is_reduction(n) and n.get("axes", (-1,)) == (-1,) for n in group.nodes)
        columns = (None,) if whole else (0, 1)
        return [(high, wide) for high in (0, 1) for wide in columns]

    def _values(self, group: Group) -> dict[Node, torch.Tensor]:
        """The values of one kernel's nodes, of what lies in memory now."""
        done: dict[Node, torch.Tensor] = {}
        declared = set(group.inputs)
        inside = {*group.nodes, *group.transposed}

        def is_here(node: Node) -> bool:
            return node not in declared and (node in inside or is_rematerialized(node))

        for node in within(group.outputs, is_here):
            for i in node.inputs:
                if i in done:
                    continue
                if i not in declared and i.op != "scalar":
                    raise Incomplete(f"{group.name} reads {i}, which is none of its inputs")
                done[i] = self._operand(i, group)
            inner = [done[i] for i in node.inputs]
            if group.is_product and node is group.product:
                inner = [self._side(*side, group) for side in zip(node.inputs, inner, strict=True)]
            done[node] = value_of(node, inner, {}, self.sizes, False, self.calls)
        return done

    def _pack(self, pack: Pack) -> None:
        if pack not in self.packed:
            self.packed[pack] = self._load(pack[0], "packing").clone()

    def _side(self, node: Node, value: torch.Tensor, group: Group) -> torch.Tensor:
        """A side of a product: of its packed form, if the kernel is given one."""
        for pack in self.buffers.given.get(group.name, ()):
            if pack[0] is node:
                return self.packed[pack]
            if pack[0] in node.inputs and (node in group.transposed or is_rematerialized(node)):
                packed = self.packed[pack]
                return value_of(node, [packed], {}, self.sizes, False, self.calls)
        return value

    # --- calls of PyTorch -------------------------------------------------------------------------
    def _call(self, call: ExternCall) -> None:
        """PyTorch computes in the dtype that its operands lie in."""
        node = call.node
        match self.buffers.places[node]:
            case ViewOf(whole):
                self.memory[node] = self._by_address(node, self._load(whole, node.op), node.op)
                return
        as_stored = reads(node) != node.inputs
        inner = []
        for given, read in zip(node.inputs, reads(node), strict=True):
            value = self._load(read, node.op)
            inner.append(value if as_stored else value.to(given.dtype))
        made = value_of(node, inner, {}, self.sizes, False, self.calls)
        made = made.to(self.plan.stored(node))
        made = self._with_channels_last(node, made)
        self.memory[node] = made.contiguous() if node in self.buffers.dense else made

    # --- results ----------------------------------------------------------------------------------
    def _results(self) -> list[torch.Tensor]:
        found = []
        for out, handed in zip(self.plan.outputs, self.buffers.handed, strict=True):
            shape = [concrete(d, self.sizes) for d in out.shape]
            if handed.written is None:
                value = self._load(out.value, "a result")
                value = (value.clone() if handed.cloned else value).reshape(shape)
                found.append(value.contiguous() if handed.ordered else value)
                continue
            unread = torch.empty(shape, dtype=self.plan.stored(out.value))
            buffer = self.written.setdefault(str(out.mutates), unread)
            if handed.written is Written.ADDED:
                buffer += out.value.inputs[1]["value"]
            elif handed.written is Written.COPIED:
                buffer.copy_(self._load(out.value, "a buffer").reshape(buffer.shape))
            found.append(buffer.view(shape))
        return found


def _rows_axis(group: Group) -> int:
    """The last of the axes of rows along which there are several."""
    return next((a for a in range(-2, -RANK, -1) if group.dims[a] != 1), -2)


def _part(value: torch.Tensor, axis: int, half: int | None) -> torch.Tensor:
    """One half of a value along an axis; all of it for None. A single row or column is in the
    second half."""
    if half is None:
        return value
    size = value.shape[axis]
    start = 0 if half == 0 else size // 2
    return value.narrow(axis, start, size // 2 if half == 0 else size - start)


__all__ = ["Incomplete", "run_plan"]
