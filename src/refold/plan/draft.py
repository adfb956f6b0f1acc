"""A group while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

from refold.ir import Dim, Node
from refold.plan.memory import source


@dataclass(eq=False)
class Draft:
    """A group while it grows. family, dims, transposed: as Group's. number: its place in the order
    of opening; below zero until the planner has opened it."""

    family: str
    dims: tuple[Dim, ...]
    number: int = -1
    nodes: list[Node] = field(default_factory=list)
    counters: list[tuple[Node, Node]] = field(default_factory=list)
    transposed: tuple[Node, ...] = ()

    def inputs(self) -> list[Node]:
        inside = set(self.nodes)
        found: dict[Node, None] = {}
        for n in self.nodes:
            for i in n.inputs:
                if n.op == "linear" and i in self.transposed:
                    found.setdefault(i.inputs[0])
                elif i not in inside:
                    found.setdefault(source(i))
        return list(found)
