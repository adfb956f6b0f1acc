"""All that a family may ask of a graph while its kernels are planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from refold.devices import DeviceModel
from refold.ir import Node
from refold.plan.draft import Draft
from refold.plan.memory import Memory


class View(Protocol):
    """A graph, the drafts that compute its nodes so far, and the device that they are made for.

    order, place: the nodes, each after its inputs, and the place of each. roots: the results.
    owner: the draft that computes a node. drafts: all of them, in the order of opening. memory:
    the dtype in which a value lies. parametric: whether a node follows from parameters alone.
    """

    order: list[Node]
    place: dict[Node, int]
    roots: set[Node]
    owner: dict[Node, Draft]
    drafts: list[Draft]
    device: DeviceModel
    memory: Memory

    @property
    def parametric(self) -> Mapping[Node, bool]: ...

    def read_by(self, node: Node) -> Mapping[Node, None]:
        """What reads a value where it is computed: what is beside its readers is read by them."""
        ...

    def since(self, nodes: Iterable[Node], first: Node) -> set[Node]:
        """`nodes` and what they are computed from, as far back as `first` in the graph's order."""
        ...

    def follows(self, node: Node, region: Iterable[Node], first: Node) -> bool:
        """Is `node` computed from any of `region`, or among it? `first` comes before all of it."""
        ...

    def cyclic(self, node: Node) -> Callable[[Draft], bool]:
        """Whether `node` in a draft would make the draft wait for itself."""
        ...

    def is_open_pointwise(self, node: Node) -> bool:
        """Is it a pointwise value that kernels can compute, and that none computes yet?"""
        ...
