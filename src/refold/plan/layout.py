"""Images whose channels lie last in memory: what is computed from them is computed so.

PyTorch lets a value of shape [N, C, H, W] lie in memory as [N, H, W, C]. A convolution of such
images, or with such a weight, gives such images, and pooling, arithmetic and joining keep them.
Kernels know only values that lie in the order of their axes. So what lies channels-last is turned
here: kernels compute the value with its channels as the last axis, and a view in the model's own
order, which costs nothing, is what calls of PyTorch read and what is returned.

A model may lay out images so by itself: it norms them with the channels as the last axis and hands
a permuted view to a convolution. That view lies channels-last, too. A copy in the other order would
cost a pass, and PyTorch's convolution of few places is less accurate there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from refold.ir import OPS, Dim, Graph, Kind, Node, make
from refold.ir.node import rebuild
from refold.ir.ops import CONVOLUTIONS, POOLS
from refold.ir.shapes import RANK

# by the number of places (height and width, or depth too): the axes with the channels last
TRANSPOSED: Mapping[int, tuple[int, ...]] = {2: (0, 1, 3, 4, 2), 3: (0, 2, 3, 4, 1)}
BACK: Mapping[int, tuple[int, ...]] = {2: (0, 1, 4, 2, 3), 3: (0, 4, 1, 2, 3)}
_CALLED = "convolution"  # in the names of those that the op table does not know
_KEPT = ("pool", "upsample", _CALLED)  # in the names of PyTorch's operators that keep the layout


def places_of(rank: int) -> int | None:
    """The number of places of images of so many dimensions; None for what are no images."""
    return rank - 2 if rank - 2 in TRANSPOSED else None


def channels_last(graph: Graph, images: Mapping[Node, int]) -> tuple[Graph, Mapping[Node, Node]]:
    """The same function, with what lies channels-last computed with its channels last.

    images: leaves that lie so, and their number of places; views that convolutions read may do so,
    too. Gives what each node has become beside.
    """
    turner = _Turner(images, _permuted(graph))
    for node in graph.nodes():
        turner.visit(node)
    roots = graph.with_roots(turner.done[r] for r in graph.roots())
    return roots, {n: turner.last.get(n, (d, 0))[0] for n, d in turner.done.items()}


def _permuted(graph: Graph) -> Mapping[Node, int]:
    """Values with their channels last, permuted to images that a convolution reads, by itself or
    behind arithmetic, and the number of places."""
    found: dict[Node, int] = {}
    seen: set[tuple[Node, int]] = set()
    stack: list[tuple[Node, int]] = []
    for n in graph.nodes():
        if n.op in CONVOLUTIONS:
            stack.append((n.inputs[0], len(n["strides"])))
        elif n.op == "aten" and _CALLED in str(n["target"]):
            stack += [
                (i, n["rank"] - 2) for i in n.inputs[:2]
            ]  # of a backward, gradients and images
    while stack:
        node, places = stack.pop()
        if (node, places) in seen:
            continue
        seen.add((node, places))
        if node.op == "permute" and node["order"] == BACK.get(places):
            found[node] = places
        elif node.kind is Kind.POINTWISE:
            stack += [(i, places) for i in node.inputs if i.shape == node.shape]
    return found


class _Turner:
    """permuted: views that lie channels-last where what they are of lies in order. done: each node
    in the model's own order of axes. last: of those whose channels lie last, the value with its
    channels as the last axis, and the number of places."""

    def __init__(self, images: Mapping[Node, int], permuted: Mapping[Node, int]) -> None:
        self.images, self.permuted = images, permuted
        self.done: dict[Node, Node] = {}
        self.last: dict[Node, tuple[Node, int]] = {}

    def visit(self, node: Node) -> None:
        again = rebuild(node, tuple(self.done[i] for i in node.inputs))
        places = self._made_so(node)
        if places is not None:
            self.done[node] = again
            self.last[node] = _moved(again, TRANSPOSED[places]), places
        elif (found := self._transposed(node)) is not None:
            value, places = found
            self.last[node] = found
            self.done[node] = _moved(value, BACK[places])
        elif node.op == "permute" and node.inputs[0] in self.last:
            value, places = self.last[node.inputs[0]]
            self.done[node] = _moved(value, tuple(BACK[places][a] for a in node["order"]))
        elif node in self.permuted:
            self.done[node] = again
            self.last[node] = self.done[node.inputs[0]], self.permuted[node]
        else:
            self.done[node] = again

    def _made_so(self, node: Node) -> int | None:
        """The places of images that PyTorch makes, or is given, channels-last."""
        if node in self.images:
            return self.images[node]
        if node.op in (*CONVOLUTIONS, *POOLS):
            places = len(node["strides"])
            given = self.last.get(node.inputs[0])
            if given is not None and given[1] != places:
                return None  # images of other places: an axis more is a batch's
            so = given is not None or any(i in self.images for i in node.inputs[1:2])
            return places if so and places in TRANSPOSED else None
        if node.op == "aten" and node.inputs and node.inputs[0] in self.last:
            name = str(node["target"])
            same = node["rank"] == self.last[node.inputs[0]][1] + 2
            kept = same and any(word in name for word in _KEPT)
            return self.last[node.inputs[0]][1] if kept else None
        return None

    def _transposed(self, node: Node) -> tuple[Node, int] | None:
        """A value of images that lie channels-last, computed with the channels last."""
        kind = OPS[node.op].kind
        full = [self.last[i] for i in node.inputs if i in self.last]
        if not full or len({p for _, p in full}) > 1:
            return None
        places = full[0][1]
        if kind is Kind.POINTWISE:
            if not any(i in self.last and i.shape == node.shape for i in node.inputs):
                return None
            parts = (self._part(i, places) for i in node.inputs)
            return make(node.op, *parts, **dict(node.attrs)), places
        if len(full) < len(node.inputs):
            return None
        attrs = dict(node.attrs)
        if kind is Kind.REDUCE:
            attrs["axes"] = tuple(sorted(_axis(a, places) for a in node["axes"]))
        elif "axis" in attrs:
            attrs["axis"] = _axis(node["axis"], places)
        else:
            return None
        return make(node.op, *(value for value, _ in full), **attrs), places

    def _part(self, node: Node, places: int) -> Node:
        if node in self.last:
            return self.last[node][0]
        return _moved(self.done[node], TRANSPOSED[places])


def _axis(axis: int, places: int) -> int:
    return TRANSPOSED[places].index(axis + RANK) - RANK


def _moved(x: Node, order: tuple[int, ...]) -> Node:
    """`x` with its axes in another order: itself, or in another shape, where memory is the same."""
    if x.op == "permute":
        inner: tuple[int, ...] = x["order"]
        (x,), order = x.inputs, tuple(inner[a] for a in order)
    shape: tuple[Dim, ...] = tuple(x.shape[a] for a in order)
    wide = [a for a in order if x.shape[a] != 1]
    if wide != sorted(wide):
        return make("permute", x, order=order)
    while x.op == "reshape":
        (x,) = x.inputs
    return x if x.shape == shape else make("reshape", x, shape=shape)


def turned_back(x: Node) -> Node | None:
    """The value with its channels as the last axis, of which `x` is a view in the model's order."""
    back = x.op == "permute" and x["order"] in BACK.values()
    return x.inputs[0] if back else None


def turned_forth(x: Node) -> bool:
    """Is it images as PyTorch made them, read with the channels as the last axis?"""
    return x.op == "permute" and x["order"] in TRANSPOSED.values()


def weights(nodes: Collection[Node]) -> Mapping[Node, list[Node]]:
    """The weights of convolutions among `nodes`, and the images that each is applied to."""
    found: dict[Node, list[Node]] = {}
    for n in nodes:
        if n.op in CONVOLUTIONS:
            found.setdefault(n.inputs[1], []).append(n.inputs[0])
    return found
