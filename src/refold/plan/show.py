"""A plan in words: its steps in order, where each value lies, how results are handed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from refold.ir import Node
from refold.ir.graph import names_of
from refold.plan.buffers import Fresh, InPlaceOf, OfPyTorch, Place, StateOf, ViewOf
from refold.plan.convolution import CONVOLUTION
from refold.plan.plan import ExternCall, Group, Plan, reads
from refold.plan.product import PACKED, TRANSPOSED, Pack
from refold.price import PlanPrice


def show(plan: Plan, price: PlanPrice | None = None) -> str:
    """The plan as text, a step a line and below it where each of its values lies.

    Values have the names that `ir.render` gives them in the plan's graph. price: what its steps
    take, and what is done beside them, is written out, too.
    """
    return "\n".join(_Words(plan, price or PlanPrice()).lines())


class _Words:
    def __init__(self, plan: Plan, price: PlanPrice) -> None:
        self.plan, self.price = plan, price
        names: Mapping[Node, str] = names_of(plan.graph)
        self.names = {**names, **{f.node: f"{f.name} ({names[f.node]})" for f in plan.folds}}
        self.packed: set[Pack] = set()

    def lines(self) -> Iterator[str]:
        plan, buffers = self.plan, self.plan.buffers
        for fold in plan.folds:
            last = " with its channels last" if fold.node in buffers.prepared.channels_last else ""
            yield f"fold {self._value(fold.node)} of {self._listed(fold.sources)}{last}"
        for node in buffers.prepared.reads:
            lies = node in buffers.prepared.as_they_lie
            yield f"keep {self._value(node)}{', as it lies' if lies else ', row after row'}"
        for pack in buffers.prepared.packs:
            yield f"keep {self._form(pack)}"
            self.packed.add(pack)
        for node in buffers.states:
            copied = ", a copy of what it holds before" if node in buffers.copied else ""
            yield f"read buffer {self._value(node)}{copied}"
        for node in plan.graph.nodes():
            if node.op == "input" and node in buffers.dense:
                yield f"lay out argument {self._value(node)} row after row"
        for step, takes in zip_longest(plan.steps, self.price.steps):
            yield from self._group(step) if isinstance(step, Group) else self._call(step)
            if takes is not None and takes.launches:
                yield f"  takes {takes}"
        for out, handed in zip(plan.outputs, buffers.handed, strict=True):
            what = "return" if out.mutates is None else f"write buffer {out.mutates} ="
            yield f"{what} {self.names[out.value]}: {handed}"
        for words, takes in self.price.beside:
            yield f"{words} takes {takes}"
        if self.price.steps:
            yield f"price: {self.price}"

    def _value(self, node: Node) -> str:
        shape = " x ".join(str(d) for d in node.shape if d != 1) or "1"
        kind = str(self.plan.stored(node)).removeprefix("torch.")
        return f"{self.names[node]} [{shape}] {kind}"

    def _listed(self, nodes: Iterable[Node]) -> str:
        return ", ".join(self.names[n] for n in nodes if n.op != "scalar") or "nothing"

    def _form(self, pack: Pack) -> str:
        node, form = pack
        words = {PACKED: "packed", TRANSPOSED: "packed from the other way round"}
        if form.startswith(CONVOLUTION):
            return f"{self.names[node]} packed by features"
        kind = form.removeprefix("hi_lo_")
        return f"{self.names[node]} {words.get(form, f'as two parts of {kind}')}"

    def _group(self, group: Group) -> Iterator[str]:
        buffers, kernel = self.plan.buffers, group.kernel
        given = buffers.given.get(group.name, ())
        for pack in given:
            if pack not in self.packed:
                yield f"make {self._form(pack)}"
                self.packed.add(pack)
        space = " x ".join(str(d) for d in group.dims if d != 1) or "1"
        ops = " ".join(n.op for n in group.nodes)
        yield f"{group.name}, {group.family} over {space}: {ops}"
        yield f"  reads {self._listed(group.inputs)}"
        if group.turned:
            yield f"  reads {self._listed(group.turned)} in the other order"
        if group.again:
            yield f"  computes {self._listed(group.again)}, as others do"
        if kernel is not None:
            yield f"  {kernel}"
            if given:
                yield f"  is given {', '.join(map(self._form, given))}"
            if kernel.itself is not None and kernel.itself not in given:
                yield f"  makes {self._form(kernel.itself)} itself"
        if group.rows_schedule is not None:
            yield f"  {group.rows_schedule}"
        if group.quantized is not None and group.quantized.value in group.inputs:
            yield f"  reads {self.names[group.quantized.value]} in 16 bits where it lies so"
        for out in group.outputs:
            last = ", its channels last" if out in buffers.turned else ""
            yield f"  {self._value(out)} {self._place(buffers.places.get(out))}{last}"
        for value, buffer in group.counters:
            yield f"  {self.names[buffer]} += {value.inputs[1]['value']}"

    def _call(self, call: ExternCall) -> Iterator[str]:
        node = call.node
        place = self.plan.buffers.places.get(node)
        if place is None:
            return
        if isinstance(place, ViewOf):
            yield f"{self._value(node)} {self._place(place)}"
            return
        name = str(node["target"]) if node.op == "aten" else node.op
        dense = ", laid out row after row" if node in self.plan.buffers.dense else ""
        if node in self.plan.buffers.turned:
            dense = ", its channels last, from such images"
        yield f"PyTorch's {name} of {self._listed(reads(node))}"
        yield f"  {self._value(node)} {self._place(place)}{dense}"

    def _place(self, place: Place | None) -> str:
        match place:
            case Fresh():
                return "in new memory"
            case InPlaceOf(node):
                return f"in the memory of {self.names[node]}"
            case StateOf(state):
                return f"in buffer {self.names[state]}"
            case ViewOf(node):
                return f"begins where {self.names[node]} does"
            case OfPyTorch():
                return "as PyTorch gives it"
        return "nowhere"
