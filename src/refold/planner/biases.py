"""Biases that PyTorch would add in passes of their own, taken into the kernels that read the
result of a convolution."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from refold.ir import Graph, Node, as_scalar, make
from refold.ir.node import rebuild
from refold.ir.ops import CONVOLUTIONS
from refold.ir.shapes import RANK
from refold.plan.layout import turned_forth
from refold.planner.drafts import Drafts


def taken_out(drafts: Drafts) -> set[Node]:
    """The convolutions that PyTorch computes, and whose results nothing but kernels reads: their
    additions cost nothing there."""
    return {
        n
        for n in drafts.order
        if n.op in CONVOLUTIONS
        and n not in drafts.owner
        and n not in drafts.roots
        and n.inputs[2].op != "scalar"
        and _read_by_kernels(n, drafts)
    }


def _read_by_kernels(node: Node, drafts: Drafts) -> bool:
    readers = list(drafts.read_by(node))
    if any(r in drafts.roots for r in readers if r not in drafts.owner):
        return False
    turned = list(map(turned_forth, readers))
    if any(turned) and not all(turned):
        return False
    # views are read by what reads them
    return bool(readers) and all(
        r in drafts.owner
        or ((turned_forth(r) or r.op == "reshape") and _read_by_kernels(r, drafts))
        for r in readers
    )


def without(graph: Graph, convolutions: Collection[Node]) -> tuple[Graph, Mapping[Node, Node]]:
    """The same function, the biases of some convolutions being added to their results; and what
    each node has become."""
    done: dict[Node, Node] = {}
    turned = {r: r.inputs[0] for r in graph.nodes() if turned_forth(r)}
    read_turned = set(turned.values())
    for node in graph.nodes():
        inputs = tuple(done[i] for i in node.inputs)
        if node in convolutions:
            x, w, b = inputs
            plain = rebuild(node, (x, w, as_scalar(0.0, b.dtype)))
            done[node] = plain if node in read_turned else make("add", plain, _by_channel(b, node))
        elif turned.get(node) in convolutions:
            # the channels are the last axis, as those of the bias
            done[node] = make("add", rebuild(node, inputs), done[turned[node].inputs[2]])
        else:
            done[node] = rebuild(node, inputs)
    return graph.with_roots(done[r] for r in graph.roots()), done


def _by_channel(b: Node, convolution: Node) -> Node:
    """A bias as it meets the result, whose channels stand before its places."""
    places = len(convolution["strides"])
    ones = (1,) * places
    return make("reshape", b, shape=(*(1,) * (RANK - 1 - places), b.shape[-1], *ones))
