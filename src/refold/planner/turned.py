"""Images that lie with their channels last between convolutions of PyTorch's library and kernels.

On a GPU cuDNN computes with the channels last whatever it is given: it converts images that lie
channels first, and its result back, in passes of their own. Where kernels that compute what follows
on each element read the result as cuDNN leaves it, the second pass, over what is often much larger,
is none; they store channels first, or channels last where convolutions alone read what they make.
Convolutions by kernels that read and store either order (refold/flat.py) stand between them.
An image that no kernel makes so is laid out by a call of PyTorch's, which is slower than cuDNN's
own pass. docs/decisions/0028 has what was measured.

Values that meet in a kernel or in a call are decided together. First all that may lie so is taken,
and what cannot, for a reader or a maker that cannot have it so, falls away until nothing does. Each
set of values that meet is then priced, and taken where it is ahead by far; of one that is not, each
convolution by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from refold.devices import DeviceModel
from refold.families import BY_NAME
from refold.ir import Node
from refold.ir.ops import CONVOLUTIONS
from refold.plan import ExternCall, Group, Plan
from refold.plan.plan import reads
from refold.planner.buffers import placed
from refold.planner.conversions import lies_last
from refold.planner.plan_price import plan_price

# of what convolutions and kernels take, what must be gained by the facts, which are few
_GAIN = 0.1


def with_turned(plan: Plan, device: DeviceModel) -> Plan:
    """The plan, with those of its images lying so where that is ahead by far."""
    called = (s.node for s in plan.steps if isinstance(s, ExternCall))
    convolutions = [n for n in called if lies_last(n, plan, device)]
    if not convolutions:
        return plan
    images = _Images(plan, convolutions)
    for together in images.sets(images.able(images.possible())):
        for values in (together, *({n} for n in together if n.op in CONVOLUTIONS)):
            if together <= set(plan.buffers.turned):
                break
            every = {*plan.buffers.turned, *values}
            if images.able(every) == every:
                plan = _cheaper(plan, images.laid_out(every), device)
    return plan


def _cheaper(plan: Plan, other: Plan, device: DeviceModel) -> Plan:
    """The other plan, if it gains enough of what the steps take that differ."""
    before, after = plan_price(plan, device), plan_price(other, device)
    pairs = zip(before.steps, after.steps, strict=True)
    least = _GAIN * sum(a.seconds for a, b in pairs if a != b)
    return other if after.seconds + least < before.seconds else plan


class _Images:
    """The values of a plan that may lie with their channels last.

    places: of each convolution's result, and of what kernels make of them, the number of places.
    """

    def __init__(self, plan: Plan, convolutions: Collection[Node]) -> None:
        self.plan, self.convolutions = plan, set(convolutions)
        self.roots = set(plan.graph.roots())
        self.maker = {n: g for g in plan.groups for n in g.outputs}
        self.groups: dict[Node, list[Group]] = {}  # that read a value
        self.calls: dict[Node, list[Node]] = {}
        for step in plan.steps:
            if isinstance(step, Group):
                for n in step.inputs:
                    self.groups.setdefault(n, []).append(step)
            else:
                for n in dict.fromkeys((*reads(step.node), *step.node.inputs)):
                    self.calls.setdefault(n, []).append(step.node)
        self.places: dict[Node, int] = {}
        for n in self.convolutions:
            for image in (n, *(n.inputs[:1] if n.inputs[0] in self.maker else ())):
                self._spread(image, len(n["strides"]))

    def _spread(self, value: Node, places: int) -> None:
        """Let what pointwise kernels, and convolutions by kernels, make of a convolution's result
        have as many places."""
        stack = [value]
        while stack:
            n = stack.pop()
            if n in self.places:
                continue
            self.places[n] = places
            for g in self.groups.get(n, ()):
                if n in g.images_read and self._has(g, places):
                    stack += [o for o in g.outputs if o.shape == g.dims]

    @staticmethod
    def _has(group: Group, places: int) -> bool:
        """Are its images of so many places, if it says of how many they are?"""
        return not group.is_product or len(group.product.get("strides", ())) == places

    def possible(self) -> set[Node]:
        made = (n for n in self.places if n in self.maker)
        return {*self.convolutions, *made}

    def able(self, values: Iterable[Node]) -> set[Node]:
        """Those of some values that can lie so, the others as they did."""
        found = set(values)
        while True:
            left = {n for n in found if self._may(n, found)}
            if left == found:
                return found
            found = left

    def _may(self, n: Node, values: Collection[Node]) -> bool:
        if n in self.roots or (n in self.maker and self._cut(self.maker[n], values) is None):
            return False
        readers = self.groups.get(n, [])
        calls = self.calls.get(n, [])
        so = [c for c in calls if c in values and n not in c.inputs[1:]]
        if len(so) < len(calls) or not (readers or calls):
            return False
        kept = any(o in values for g in readers for o in g.outputs)
        if n in self.maker and not calls and not kept:
            return False  # nothing is gained
        return all(self._cut(g, values) is not None for g in readers)

    def _cut(self, group: Group, values: Collection[Node]) -> Group | None:
        """A kernel that reads and stores `values` with their channels last; None if it cannot."""
        whole = group.images_read
        so = [n for n in (*whole, *group.outputs) if n in values]
        if not so and not any(n in values for n in group.inputs):
            return group
        if any(n in values for n in group.inputs if n not in whole) or not so:
            return None
        last = [n in values for n in group.outputs]
        if any(last) != all(last) or len({self.places[n] for n in so}) > 1:
            return None
        turned = tuple(n for n in whole if (n in values) != last[0])
        new = replace(group, images=self.places[so[0]], last=last[0], turned=turned)
        return new if BY_NAME[group.family].lays_out(new) else None

    def sets(self, values: Iterable[Node]) -> list[set[Node]]:
        """Values that meet in a kernel or in a call, together, in the order of the graph."""
        left, found = set(values), list[set[Node]]()
        for first in self.plan.graph.nodes():
            if first not in left:
                continue
            met, stack = {first}, [first]
            while stack:
                n = stack.pop()
                beside = [*self.calls.get(n, ()), *(n.inputs[:1] if n in self.convolutions else ())]
                kernels = [*self.groups.get(n, ()), *([self.maker[n]] if n in self.maker else ())]
                beside += [v for g in kernels for v in (*g.inputs, *g.outputs)]
                new = [v for v in dict.fromkeys(beside) if v in left and v not in met]
                met.update(new)
                stack += new
            left -= met
            found.append(met)
        return found

    def laid_out(self, values: Collection[Node]) -> Plan:
        """The plan in which some values lie so."""
        steps = []
        for s in self.plan.steps:
            cut = self._cut(s, values) if isinstance(s, Group) else s
            assert cut is not None
            steps.append(cut)
        return placed(replace(self.plan, steps=tuple(steps)))
