"""Cheap values that several kernels read: each computes them itself.

A bias, a relu or a scale of what a call of PyTorch gave is read by the statistics of a norm and by
the pass that applies them. Stored by a kernel of its own, the value is written once and read by
each; from what it is made of each reads as much, and nothing is written. The mean of a row and what
it comes off are then computed in two kernels, which have to have the same bits of every element: so
nothing is computed so whose bits an implementation may choose, and products are rounded by
themselves, whatever sum takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from refold.families import BY_NAME
from refold.families.view import View
from refold.ir import OPS, Dim, Graph, Kind, Node
from refold.ir.graph import within
from refold.ir.node import rebuild
from refold.ir.op import Contraction
from refold.plan.draft import Draft
from refold.plan.plan import is_of_two_sides, is_rematerialized
from refold.planner.drafts import Drafts
from refold.planner.reshaped import computed_as, in_shape
from refold.price import elements, fused_seconds

# Multiply-adds an element that are always less than the memory that they save: it is 8 bytes an
# element, in which a GPU does more than 50 of them.
_CHEAP = 8


def compute_again(drafts: Drafts, view: View) -> None:
    """Let kernels that read a cheap value compute it, where no kernel then reads more."""
    for maker in list(drafts.drafts):
        own = cheap(maker, drafts)
        readers = _readers(maker, own, drafts) if own else {}
        if len(readers) > 1 and all(_takes(d, maker, read, view) for d, read in readers.items()):
            for draft, read in readers.items():
                nodes = within(read, set(maker.nodes).__contains__)
                draft.nodes = nodes + [n for n in draft.nodes if n not in nodes]
                drafts.owner |= dict.fromkeys((n for n in nodes if n in own), draft)
            drafts.again.update(own)
            maker.nodes = []
    drafts.drafts = [d for d in drafts.drafts if d.nodes]


def read_in_other_shapes(drafts: Drafts) -> dict[Node, tuple[Node, ...]]:
    """Cheap values that kernels alone read, some by views in another shape, in which they could be
    computed as well; and these views."""
    found = {}
    for maker in drafts.drafts:
        own = cheap(maker, drafts)
        for n in own:
            read = list(drafts.read_by(n))
            views = tuple(r for r in read if _is_view(r, own, drafts))
            beside = (r for r in read if r not in views)
            if views and all(r in drafts.owner and not is_of_two_sides(r) for r in beside):
                found[n] = views
    return found


def in_their_shapes(
    graph: Graph, read: Mapping[Node, Collection[Node]]
) -> tuple[Graph, dict[Node, Node], set[Node]]:
    """The same function, some values being computed in the shapes in which they are read, too; what
    each node has become, and what is computed in several shapes."""
    done: dict[Node, Node] = {}
    again: set[Node] = set()
    for node in graph.nodes():
        done[node] = rebuild(node, tuple(done[i] for i in node.inputs))
        x = node.inputs[0] if node.inputs else node
        if node in read.get(x, ()):
            again.update(_made(done[x]))
            done[node] = computed_as(done[x], x.shape, node.shape)
            again.update(_made(done[node]))
    return graph.with_roots(done[r] for r in graph.roots()), done, again


def _made(x: Node) -> list[Node]:
    """Pointwise values of one shape that a value follows from, and itself."""
    return within([x], lambda n: OPS[n.op].kind is Kind.POINTWISE and n.shape == x.shape)


def cheap(maker: Draft, drafts: Drafts) -> list[Node]:
    """What a kernel computes, if it is cheap, made of one value in memory, and none of it a result;
    else nothing. Every kernel has the same bits of it."""
    own = [n for n in maker.nodes if not is_rematerialized(n)]
    if not all(_has_fixed_bits(n) and n.shape == maker.dims for n in own):
        return []
    if sum(n.row.flops.plain for n in maker.nodes) > _CHEAP or not drafts.roots.isdisjoint(own):
        return []
    wide = [i for i in maker.inputs() if i.shape == maker.dims]
    beside = [i for i in maker.inputs() if i not in wide]
    small = all(64 * elements(i) <= elements(own[0]) for i in beside)
    if len(wide) != 1 or not small or OPS[wide[0].op].kind is Kind.POINTWISE:
        return []
    # what a kernel of ours stores it would rather store once it is whole
    return own if not any(i in drafts.owner for i in maker.inputs()) else []


def _has_fixed_bits(node: Node) -> bool:
    row = OPS[node.op]
    if row.kind is not Kind.POINTWISE or not (row.is_exact or row.selects):
        return False
    return row.contraction is not Contraction.PRODUCT or row.cpp_apart is not None


def _readers(maker: Draft, own: Collection[Node], drafts: Drafts) -> dict[Draft, list[Node]]:
    """The kernels that read a kernel's values, and what each reads; none if something else does."""
    found: dict[Draft, list[Node]] = {}
    for n in own:
        for r in drafts.read_by(n):
            draft = drafts.owner.get(r)
            if draft is None or is_of_two_sides(r):
                return {}
            if draft is not maker and n not in found.setdefault(draft, []):
                found[draft].append(n)
    return found


def _takes(draft: Draft, maker: Draft, read: Collection[Node], view: View) -> bool:
    """Can a kernel compute what it reads of another, and is that no more work than reading it?"""
    if draft.dims != maker.dims or any(map(is_of_two_sides, draft.nodes)):
        return False
    if not set(read) <= set(BY_NAME[draft.family].fusible_inputs(draft, view)):
        return False
    nodes = within(read, set(maker.nodes).__contains__)
    passes = 1 + sum(OPS[n.op].kind is Kind.REDUCE for n in draft.nodes)
    arithmetic = passes * sum(fused_seconds(n, view.device) for n in nodes)
    (wide,) = (i for i in maker.inputs() if i.shape == maker.dims)
    new = 0.0 if wide in draft.inputs() else _bytes(wide, view)
    more = new - sum(_bytes(n, view) for n in read)
    written = sum(_bytes(n, view) for n in read) + _bytes(wide, view)
    return more <= 0 and arithmetic < written / view.device.bandwidth


def _bytes(node: Node, view: View) -> float:
    return elements(node) * view.memory(node).itemsize


def _is_view(reader: Node, own: Collection[Node], drafts: Drafts) -> bool:
    """Is it a view that kernels alone read, in whose shape `own` can be computed?"""
    if reader.op != "reshape" or reader in drafts.roots or reader in drafts.owner:
        return False
    read = drafts.read_by(reader)
    if not read or any(r not in drafts.owner or is_of_two_sides(r) for r in read):
        return False
    (x,) = reader.inputs
    needed = (i for n in _made(x) if n in own for i in n.inputs)
    return x in own and all(_fits(i.shape, x.shape, reader.shape) for i in needed)


def _fits(shape: tuple[Dim, ...], old: tuple[Dim, ...], new: tuple[Dim, ...]) -> bool:
    return in_shape(shape, old, new) is not None
