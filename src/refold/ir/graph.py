"""A whole function: its outputs, the state that it writes, and how it prints."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace

from refold.ir.dim import Dim, Sym
from refold.ir.node import Node, rebuild


@dataclass(frozen=True)
class Output:
    """One result of the function.

    `shape` is the true shape (not padded). `mutates` names the buffer that takes the value; None
    for a value that is returned. `strides` are those of a result that does not lie in memory in
    the order of its dimensions (turned over, a view of a part, spread out); None for one that does.
    `other_strides` are those of a result that lies otherwise where the images among the arguments
    lie the other way than the example's, channels last or not; None where that makes no difference.
    `memory` names the memory that a returned value lies in: results that share it have one name,
    and what lies in a leaf's memory has `memory_of` that leaf.
    """

    value: Node
    shape: tuple[Dim, ...]
    mutates: str | None = None
    strides: tuple[Dim, ...] | None = None
    memory: str = ""
    other_strides: tuple[Dim, ...] | None = None


def memory_of(leaf: Node) -> str:
    """The name of the memory of an input, parameter, state or constant."""
    return f"{leaf.op} {leaf['name']}"


@dataclass(frozen=True)
class Graph:
    """An immutable graph: what the function returns and which buffers it writes."""

    outputs: tuple[Output, ...]

    def roots(self) -> tuple[Node, ...]:
        return tuple(out.value for out in self.outputs)

    def nodes(self) -> list[Node]:
        """Every node, each after its inputs."""
        known: tuple[Node, ...] | None = self.__dict__.get("_nodes")  # the walk is made once
        if known is None:
            known = self.__dict__["_nodes"] = tuple(topological(self.roots()))
        return list(known)

    def with_roots(self, roots: Iterable[Node]) -> Graph:
        """The same outputs computed by other nodes."""
        new = tuple(roots)
        if len(new) != len(self.outputs):
            raise ValueError(f"expected {len(self.outputs)} roots, got {len(new)}")
        return Graph(tuple(replace(o, value=n) for o, n in zip(self.outputs, new, strict=True)))

    def map(self, rewrite: Callable[[Node], Node]) -> Graph:
        """Apply `rewrite` to every node, inputs first."""
        done: dict[Node, Node] = {}
        for node in self.nodes():
            done[node] = rewrite(rebuild(node, tuple(done[i] for i in node.inputs)))
        return self.with_roots(done[r] for r in self.roots())

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())


def topological(roots: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """Every node reachable from `roots`, each after its inputs, in a stable order.

    Nodes in `known` are left out, with what they alone are computed from.
    """
    return within(roots, lambda node: node not in known)


def within(roots: Iterable[Node], inside: Callable[[Node], bool]) -> list[Node]:
    """The nodes that are `inside` and are reached from `roots` through such nodes alone.

    Each comes after its inputs, once, in a stable order. This is how the project walks graphs: a
    function that calls itself for a node's inputs visits a shared value once for each way to it.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen and inside(node):
            seen.add(node)
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(node.inputs) if i not in seen)
    # a node may be pushed twice before it is seen; `seen` keeps `order` free of repeats
    return order


def is_computed(node: Node) -> bool:
    """False for leaves: parameters, inputs, numbers."""
    return bool(node.inputs) or node.op == "aten"


def is_parametric(node: Node, memo: MutableMapping[Node, bool] | None = None) -> bool:
    """True if `node` is computed from parameters, buffers and constants alone.

    Nothing that has a size of an input in it is: neither arange(n) nor table[n : n + 1]. Nor is a
    number that a call gives, nor what is drawn, anew in each call.
    """
    memo = {} if memo is None else memo
    found = memo.get(node)
    if found is not None:
        return found
    # as a rule what a node reads was asked about before it
    plain = all(i in memo for i in node.inputs)
    for n in (node,) if plain else topological([node], memo):
        if not n.inputs:
            memo[n] = n.op in ("param", "constant") or (
                n.op in ("scalar", "aten") and not _of_a_call((n.shape, n.attrs))
            )
        else:
            # a shape with a named size belongs to one call, and so does a row of a table that is
            # read where a size says
            fixed = all(memo[i] for i in n.inputs) and not n.row.draws
            memo[n] = fixed and not _of_a_call((n.shape, n.attrs))
    return memo[node]


def _of_a_call(attributes: tuple[object, ...]) -> bool:
    """Whether attributes hold a size, or a number that is given by each call."""
    if attributes[:1] == ("@",):
        return True
    for one in attributes:
        if isinstance(one, Sym) or (isinstance(one, tuple) and _of_a_call(one)):
            return True
    return False


def draws_of(nodes: Iterable[Node]) -> tuple[int, ...]:
    """The numbers of what is drawn among `nodes`, in their order."""
    return tuple([n["number"] for n in nodes if n.row.draws])


def names_of(graph: Graph) -> dict[Node, str]:
    """A name for each node: a leaf's own, a number's value, `%3` for the third of the others."""
    names: dict[Node, str] = {}
    count = 0
    for node in graph.nodes():
        if node.row.is_named:
            names[node] = str(node["name"])
        elif node.op == "scalar":
            names[node] = str(node["value"])
            continue
        else:
            names[node] = f"%{count}"
        count += 1
    return names


def render(graph: Graph) -> str:
    """The graph as text, one node a line: `%3 = mul(%1, %2) [8, 16] float32`."""
    names = names_of(graph)
    lines: list[str] = []
    for node in graph.nodes():
        if node.op == "scalar":
            continue
        args = [names[i] for i in node.inputs] + [
            f"{k}={v}" for k, v in node.attrs if k != "name" or node.kind.name != "LEAF"
        ]
        shape = ", ".join(str(d) for d in node.shape)
        kind = str(node.dtype).removeprefix("torch.")
        lines.append(f"{names[node]} = {node.op}({', '.join(args)}) [{shape}] {kind}")
    for out in graph.outputs:
        shape = ", ".join(str(d) for d in out.shape)
        target = f"write {out.mutates}" if out.mutates else "return"
        lines.append(f"{target} {names[out.value]} as [{shape}]")
    return "\n".join(lines)


def wide_axes(node: Node) -> tuple[int, ...]:
    """The axes that a reduction is over, but those of one element."""
    (x,) = node.inputs
    return tuple(a for a in node["axes"] if x.shape[a] != 1)


def taken_of(node: Node) -> tuple[Node, tuple[int, ...]]:
    """The value and the axes that a reduction is over, however they are written."""
    return node.inputs[0], wide_axes(node)
