"""An order of a plan's steps in which little memory is held at a time.

Depth first, the gradients of weights would come last of a backward, and all that they read would
wait for them. So of the steps that could run one that frees more than it takes runs first, and one
that makes nothing but results, which are less than what it reads; else the next in the order as it
is. Where it holds less, a step of that order that takes more than it frees runs as late as it can:
right before the first that reads what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from refold.ir import Kind, Node
from refold.plan.memory import source
from refold.plan.plan import ExternCall, Plan, Step, reads
from refold.planner.buffers import placed
from refold.price import size_bytes

_LESS = 0.99  # of the bytes that are held, up to which the order is changed


def in_less_memory(plan: Plan) -> Plan:
    """The plan, its steps in another order where that holds less memory: not more at its peak, and
    at least a hundredth less there or on average."""
    lives = _Lives(plan)
    order = lives.order()
    peak, mean = lives.held(order)
    peak_before, mean_before = lives.held(range(len(plan.steps)))
    if peak > peak_before or min(peak / peak_before, mean / mean_before) > _LESS:
        return plan
    return placed(replace(plan, steps=tuple(plan.steps[i] for i in order)))


class _Lives:
    """What each step reads and makes. A view counts as what it is a view of."""

    def __init__(self, plan: Plan) -> None:
        self.base: dict[Node, Node] = {}
        self.reads: list[set[Node]] = []  # by step, of bases
        self.makes: list[set[Node]] = []
        self.waits: list[set[int]] = []  # for steps
        maker: dict[Node, int] = {}
        for i, step in enumerate(plan.steps):
            read, made = _read_and_made(step)
            self.waits.append({maker[n] for n in read if n in maker})
            if isinstance(step, ExternCall) and step.node.kind is Kind.MOVE:
                self.base[step.node] = self._base(source(step.node.inputs[0]))
            self.reads.append({self._base(n) for n in read})
            self.makes.append({n for n in made if n not in self.base})
            maker |= dict.fromkeys(made, i)
        self.readers: dict[Node, set[int]] = {}
        for i, bases in enumerate(self.reads):
            for base in bases:
                self.readers.setdefault(base, set()).add(i)
        self.kept = {self._base(r) for r in plan.graph.roots()}
        self.bytes: Mapping[Node, float] = {
            n: size_bytes(n) for n in {*self.readers, *(n for made in self.makes for n in made)}
        }

    def _base(self, node: Node) -> Node:
        return self.base.get(node, node)

    def _freed(self, step: int, readers: Mapping[Node, set[int]]) -> float:
        last = (n for n in self.reads[step] if readers[n] == {step} and n not in self.kept)
        return sum(self.bytes[n] for n in last)

    def _read(self, step: int) -> float:
        return sum(self.bytes[n] for n in self.reads[step] - self.kept)

    def _taken(self, step: int) -> float:
        return sum(self.bytes[n] for n in self.makes[step])

    def order(self) -> list[int]:
        """The numbers of the steps, as they should run."""
        left = {n: set(r) for n, r in self.readers.items()}
        waits = [set(w) for w in self.waits]
        waited: list[list[int]] = [[] for _ in waits]
        for i, sources in enumerate(waits):
            for j in sources:
                waited[j].append(i)
        ready = [i for i, sources in enumerate(waits) if not sources]
        able, freeing, found, done = set(ready), list[tuple[float, int]](), list[int](), set[int]()

        def consider(i: int) -> None:
            ends = self.makes[i] and self.makes[i] <= self.kept
            freed = self._read(i) if ends else self._freed(i, left)
            gain = freed - self._taken(i)
            if gain > 0 or not self.makes[i]:  # a view lets others begin
                heappush(freeing, (-gain, i))

        for i in ready:
            consider(i)
        while ready or freeing:
            step = heappop(freeing)[1] if freeing else heappop(ready)
            if step in done:
                continue
            done.add(step)
            found.append(step)
            for base in self.reads[step]:
                left[base].discard(step)
                if len(left[base]) == 1:  # whose last reader may free it now
                    (reader,) = left[base]
                    if reader in able:
                        consider(reader)
            for i in waited[step]:
                waits[i].discard(step)
                if not waits[i]:
                    able.add(i)
                    heappush(ready, i)
                    consider(i)
        return min(found, self._late(found), key=self.held)

    def _late(self, order: Sequence[int]) -> list[int]:
        """The same order, but that steps which take more than they free run as late as they can."""
        left = {n: set(r) for n, r in self.readers.items()}
        gains: dict[int, float] = {}
        for i in order:
            gains[i] = self._freed(i, left) - self._taken(i)
            for base in self.reads[i]:
                left[base].discard(i)
        found: list[int] = []  # from the last to the first
        for i in reversed(order):
            readers = {j for n in self.makes[i] for j in self.readers.get(n, ())}
            if gains[i] >= 0 or not readers:
                found.append(i)
            else:
                found.insert(max(map(found.index, readers)) + 1, i)
        return found[::-1]

    def held(self, order: Sequence[int]) -> tuple[float, float]:
        """Bytes that are held at the peak, and on average over the steps: of values, and of
        arguments that are still read."""
        left = {n: set(r) for n, r in self.readers.items()}
        made = {n for values in self.makes for n in values}
        now = sum(b for n, b in self.bytes.items() if n not in made)
        all_held = [now]
        for step in order:
            now += self._taken(step)
            all_held.append(now)
            now -= self._freed(step, left)
            for base in self.reads[step]:
                left[base].discard(step)
        return max(max(all_held), 1.0), max(sum(all_held) / len(all_held), 1.0)


def _read_and_made(step: Step) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Values in memory."""
    if isinstance(step, ExternCall):
        return tuple(map(source, reads(step.node))), (step.node,)
    return tuple(map(source, step.inputs)), step.outputs
