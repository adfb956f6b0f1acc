"""What dropout draws, by the call that draws it on a device.

On a CPU dropout draws ones and zeros of the value's dtype. On a GPU one kernel of PyTorch draws,
multiplies and stores a mask beside; it is given memory that nobody wrote, and only the mask is
read, as zeros and ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.ir import Graph, Node, make
from refold.ir.node import rebuild


def as_calls(graph: Graph, on_cpu: bool) -> tuple[Graph, Mapping[Node, Node]]:
    """The same function without rows that no device has, and what became of each node."""
    nodes = graph.nodes()
    if not any(n.op == "kept" for n in nodes):
        return graph, {n: n for n in nodes}
    done: dict[Node, Node] = {}
    for node in nodes:
        inner = tuple(done[i] for i in node.inputs)
        if node.row.draws:  # what comes before is a draw, not what is read of it
            inner = tuple(i.inputs[0] if i.op == "cast" else i for i in inner)
        if node.op == "kept":
            done[node] = _called(node, inner[0], on_cpu)
        elif node.op == "cast" and inner[0].op == "cast" and inner[0].inputs[0].op == "kept_mask":
            done[node] = make("cast", inner[0].inputs[0], dtype=node.dtype)  # zeros and ones
        else:
            done[node] = rebuild(node, inner)
    return graph.with_roots(done[r] for r in graph.roots()), done


def _called(node: Node, before: Node, on_cpu: bool) -> Node:
    about: dict[str, Any] = {k: node[k] for k in ("dtype", "number", "shape")}
    if on_cpu:
        return make("bernoulli", before, probability=1 - node["p"], **about)
    return make("cast", make("kept_mask", before, p=node["p"], **about), dtype=node.dtype)
