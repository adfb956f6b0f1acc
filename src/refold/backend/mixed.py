"""A graph with operators of ours in the place of its parts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from refold.backend.loaded import Operator
from refold.backend.parts import Part, defined
from refold.capture.aot import COPY
from refold.capture.owner import shows

Node = torch.fx.Node


def mixed(
    module: torch.fx.GraphModule, parts: Sequence[Part]
) -> tuple[torch.fx.GraphModule, list[Operator]]:
    """The graph with an operator in the place of each part, and the operators. Raises Declined
    where kernels cannot be compiled."""
    made = {part: defined(part) for part in parts}
    found = torch.fx.GraphModule(module, _replaced(module.graph, made))
    found.meta = dict(module.meta)
    return found, [part.operator for part in parts]


def _replaced(graph: torch.fx.Graph, made: dict[Part, Any]) -> torch.fx.Graph:
    """The graph in an order in which each operator comes behind what it reads."""
    inside = {n: part for part in made for n in part.nodes}
    made_by = {n: part for part in made for n in part.outputs}
    # views that others make of what a part gives, or of what it reads
    outside = {n for n in inside if _is_outside(n, inside)}
    new = torch.fx.Graph()
    place: dict[Node, Node] = {}

    def put(node: Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            part = made_by.get(top)
            if top in place:
                stack.pop()
                continue
            needed = part.inputs if part is not None else top.all_input_nodes
            missing = [i for i in needed if i not in place]
            if missing:
                stack += missing
            elif part is not None:
                _call(new, part, made[part], place)
                stack.pop()
            else:
                place[top] = new.node_copy(top, lambda n: place[n])
                stack.pop()

    for node in graph.nodes:
        if node.target is COPY:  # a part may read what is written here
            for output in made_by:
                put(output)
        if node not in inside or node in outside:
            put(node)
    return new


def _is_outside(node: Node, inside: dict[Node, Part]) -> bool:
    """Does a node of a part stand in the graph, too: a view that is read there?"""
    if not shows(node):
        return False
    stack = [node]
    while stack:
        top = stack.pop()
        for user in top.users:
            if inside.get(user) is not inside[node]:
                return True
            if shows(user):
                stack.append(user)
    return False


def _call(new: torch.fx.Graph, part: Part, target: Any, place: dict[Node, Node]) -> None:
    called = new.call_function(target, part.given([place[i] for i in part.inputs]))
    metas = [n.meta["val"] for n in part.outputs]
    called.meta["val"] = metas[0] if len(metas) == 1 else tuple(metas)
    if len(metas) == 1:
        place[part.outputs[0]] = called
        return
    for i, node in enumerate(part.outputs):
        place[node] = new.call_function(operator.getitem, (called, i))
        place[node].meta = dict(node.meta)
