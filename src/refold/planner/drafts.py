"""The drafts of a graph, and what joins them once every value has its place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from operator import or_

import torch

from refold.families import BY_NAME, Claim, View
from refold.ir import OPS, Graph, Kind, Node
from refold.ir.graph import within
from refold.plan.draft import Draft
from refold.plan.plan import (
    beside,
    column_shape,
    counters,
    is_of_two_sides,
    is_rematerialized,
    reduces_columns,
    values_read,
)


class Drafts:
    """The drafts of a graph, and which of them computes each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = graph.nodes()
        self.place = {node: i for i, node in enumerate(self.order)}
        self.owner: dict[Node, Draft] = {}
        self.drafts: list[Draft] = []
        self.again: set[Node] = set()  # what several of them compute, all to the same bits
        self.waits: list[int] = []  # by a draft's number: bits of the drafts that come before it
        self.nearest: dict[Node, int] = {}  # what _nearest has found
        self.now = 0  # the place of the first node that may yet get a draft
        # by values that have none yet: the drafts that wait for them, an epilogue's
        self.ahead: dict[Node, dict[Draft, None]] = {}
        self.roots = set(graph.roots())
        self.readers: dict[Node, list[Node]] = {}
        self.known_readers: dict[Node, dict[Node, None]] = {}  # what read_by has found
        for node in self.order:
            for i in node.inputs:
                self.readers.setdefault(i, []).append(node)

    def read_by(self, node: Node) -> dict[Node, None]:
        """What reads a value where it is computed: what is beside its readers is read by them.
        What is computed beside readers and is a result, such as a mask, reads it, too."""
        known = self.known_readers.get(node)
        if known is not None:
            return known
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(reversed(self.readers.get(node, ())))
        while stack:
            r = stack.pop()
            if not is_rematerialized(r):
                found.setdefault(r)
            elif r not in seen:
                seen.add(r)
                if r in self.roots:  # what becomes a result is computed by a call, from memory
                    found.setdefault(r)
                stack.extend(reversed(self.readers.get(r, ())))
        self.known_readers[node] = found
        return found

    def since(self, nodes: Iterable[Node], first: Node) -> set[Node]:
        """`nodes` and what they are computed from, as far back as `first`: nothing before it in the
        order of the graph follows from it, so that a large graph is not walked whole."""
        least, found, stack = self.place[first], set[Node](), list(nodes)
        while stack:
            n = stack.pop()
            if n not in found and self.place[n] >= least:
                found.add(n)
                stack.extend(n.inputs)
        return found

    def follows(self, node: Node, region: Iterable[Node], first: Node) -> bool:
        """Is `node` computed from any of `region`, or among it? `first` comes before all of it."""
        return not self.since([node], first).isdisjoint(region)

    def take(self, claim: Claim) -> None:
        """What a family claims is computed in the draft that it names."""
        draft = claim.draft
        draft.family = claim.family
        if draft.number < 0:
            draft.number = len(self.waits)
            self.drafts.append(draft)
            self.waits.append(0)
        for node in claim.nodes:
            self.add(draft, node)

    def add(self, draft: Draft, node: Node) -> None:
        for inner in () if is_of_two_sides(node) else beside(node):
            if inner not in draft.nodes:
                draft.nodes.append(inner)
        draft.nodes.append(node)
        self.owner[node] = draft
        self._wait(draft, functools.reduce(or_, map(self._before, node.inputs), 0))
        for n in within(node.inputs, lambda n: n not in self.owner and self.place[n] >= self.now):
            self.ahead.setdefault(n, {}).setdefault(draft)
        for waiting in self.ahead.pop(node, ()):
            self._wait(waiting, 1 << draft.number | self.waits[draft.number])

    def _wait(self, draft: Draft, new: int) -> None:
        """Let a draft, and all that wait for it, wait for those of some bits."""
        own = 1 << draft.number
        new &= ~own
        if new & ~self.waits[draft.number]:
            self.waits[draft.number] |= new
            for number, waits in enumerate(self.waits):
                if waits & own:
                    self.waits[number] |= new

    def _nearest(self, value: Node) -> int:
        """Bits of the drafts from whose values one that no draft owns is computed by calls.

        Values are placed in the order of the graph, so that an answer stays true for those that
        have had their turn; of others it is what is known now.
        """
        found: dict[Node, int] = {}
        outside = within([value], lambda n: n not in self.owner and n not in self.nearest)
        for n in outside:
            bits = 0
            for i in n.inputs:
                owner = self.owner.get(i)
                known = self.nearest.get(i, found.get(i, 0))
                bits |= known if owner is None else 1 << owner.number
            found[n] = bits
        self.nearest |= {n: bits for n, bits in found.items() if self.place[n] < self.now}
        return self.nearest.get(value, found.get(value, 0))

    def _before(self, value: Node) -> int:
        """Bits of the drafts that have to be computed before `value` is there."""
        owner = self.owner.get(value)
        bits = self._nearest(value) if owner is None else 1 << owner.number
        found = rest = bits
        while rest:
            number = rest.bit_length() - 1
            rest &= ~(1 << number)
            found |= self.waits[number]
        return found

    def cyclic(self, node: Node) -> Callable[[Draft], bool]:
        """Whether `node` in a draft would make it wait for itself: to ask of many drafts, while
        none of them changes, and before any draft is fused into another."""
        before = [(self.owner.get(i), self._before(i)) for i in values_read(node)]
        after = {d: 1 << d.number for d in self.ahead.get(node, ())}

        def waits(draft: Draft) -> bool:
            if any(bits >> draft.number & 1 for owner, bits in before if owner is not draft):
                return True
            own = self.waits[draft.number] if draft.number >= 0 else 0
            return any(own & bit for waiting, bit in after.items() if waiting is not draft)

        return waits

    def _join(self, draft: Draft, other: Draft) -> None:
        """What `other` computed is computed in `draft`: who waits for one waits for both. Bits of
        `other` stay in what _nearest has found; they lead to `draft` from here on."""
        own = 1 << draft.number | 1 << other.number
        new = (self.waits[draft.number] | self.waits[other.number]) & ~own
        self.waits[draft.number] = new
        self.waits[other.number] = new | 1 << draft.number
        for number, waits in enumerate(self.waits):
            if waits & own:
                self.waits[number] |= new | (own & ~(1 << number))

    def _cycles(self, draft: Draft, nodes: Iterable[Node]) -> bool:
        """Would `nodes`, which `draft` owns now, make it wait for itself? Every value has its
        place, so that no draft waits for one that is yet to come."""
        read = dict.fromkeys(i for n in nodes for i in values_read(n))
        given = (i for i in read if self.owner.get(i) is not draft)
        return any(self._before(i) >> draft.number & 1 for i in given)

    def absorb_pointwise(self, view: View) -> None:
        """Pointwise values that nothing reads but one column reduction, or one kernel of the same
        rows, are computed inside it. What a product multiplies has to lie in memory."""
        for draft in self.drafts:
            for maker in self._makers(draft, view):
                own = [n for n in maker.nodes if not is_rematerialized(n)]
                inner = all(
                    OPS[n.op].kind is Kind.POINTWISE
                    and n.shape == draft.dims
                    and n not in self.roots
                    and all(
                        self.owner.get(r) in (maker, draft) and not is_of_two_sides(r)
                        for r in self.read_by(n)
                    )
                    for n in own
                )
                if inner:
                    draft.nodes = maker.nodes + [n for n in draft.nodes if n not in maker.nodes]
                    self.owner |= dict.fromkeys(own, draft)
                    self._join(draft, maker)
                    maker.nodes = []
        self.drafts = [d for d in self.drafts if d.nodes]

    def _makers(self, draft: Draft, view: View) -> list[Draft]:
        """The drafts whose values a draft could compute itself where it reads them."""
        made = BY_NAME[draft.family].fusible_inputs(draft, view)
        found = dict.fromkeys(self.owner[i] for i in made if i in self.owner)
        return [maker for maker in found if maker is not draft]

    def absorb_vectors(self) -> None:
        """Vectors that follow from the results of columns are computed where those are known."""
        for draft in list(self.drafts):
            if column_shape(draft.dims) != draft.dims:
                continue
            if any(OPS[n.op].kind is not Kind.POINTWISE for n in draft.nodes):
                continue
            made = {self.owner[i] for i in draft.inputs() if i in self.owner}
            for into in sorted(made, key=lambda d: d.number, reverse=True):
                if self._finishes(into, draft):
                    self._join(into, draft)
                    into.nodes += [n for n in draft.nodes if n not in into.nodes]
                    self.drafts.remove(draft)
                    break
        self._settle()

    def _settle(self) -> None:
        """A vector that follows from no kernel is computed by the one that reads it.

        Vectors share a kernel whatever they read; but a buffer is written in place only where all
        that reads it is.
        """
        ends = [d for d in self.drafts if reduces_columns(d.nodes, d.dims)]
        for draft in ends:
            for n in reversed(list(draft.nodes)):
                readers = self._reading(n)
                if (
                    self.owner.get(n) is draft
                    and n.shape == column_shape(draft.dims)
                    and OPS[n.op].kind is Kind.POINTWISE
                    and not any(i in self.owner for i in values_read(n))
                    and n not in self.roots
                    and len(readers) == 1
                    and (reader := readers[0]) in ends
                    and reader is not draft
                ):
                    draft.nodes.remove(n)
                    self.add(reader, n)

    def _reading(self, node: Node) -> list[Draft]:
        """The drafts that read a value; none if something else does, too."""
        readers = self.read_by(node)
        found = dict.fromkeys(self.owner[r] for r in readers if r in self.owner)
        return list(found) if all(r in self.owner for r in readers) else []

    def _finishes(self, draft: Draft, vectors: Draft) -> bool:
        """Do `vectors` follow from columns that `draft` reduces? It owns them then."""
        shape = vectors.dims
        if not reduces_columns(draft.nodes, draft.dims):
            return False
        inside = [i for i in vectors.inputs() if self.owner.get(i) is draft]
        if column_shape(draft.dims) != shape or any(i.shape != shape for i in inside):
            return False
        own = [n for n in vectors.nodes if not is_rematerialized(n)]
        self.owner |= dict.fromkeys(own, draft)
        if not self._cycles(draft, own):
            return True
        self.owner |= dict.fromkeys(own, vectors)
        return False

    def count(self) -> None:
        """Counters of one integer are kept by kernels of columns, where there are any."""
        drafts = [d for d in self.drafts if reduces_columns(d.nodes, d.dims)]
        found = [
            (value, state)
            for value, state in counters(self.graph)
            if value.dtype == torch.int64
            and all(d == 1 for d in value.shape)
            and isinstance(value.inputs[1]["value"], int)
        ]
        for k, counter in enumerate(found if drafts else ()):
            drafts[k % len(drafts)].counters.append(counter)
