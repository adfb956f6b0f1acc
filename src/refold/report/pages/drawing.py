"""A graph as SVG: boxes in layers, data flowing down, with a layout of our own.

Layers are longest ways from the inputs; an edge over several layers passes each at a place of its
own, so that it crosses no box; the order in a layer follows the middle of what is read and of what
reads it. What parameters decide is no box of its own: a box names the parameters that it reads. A
chain is drawn as one box where there are too many, and of what is then still too large the
beginning.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from refold.ir import Graph, Node
from refold.ir.graph import is_parametric

MOST = 60  # boxes of a drawing
_CHARACTER, _LINE = 6.7, 15  # pixels of the text
_HEIGHT_APART, _APART, _LANE = 26, 16, 14
_WIDEST = 30  # characters of a line
_SWEEPS = 6
_SCREEN = 1000  # pixels


@dataclass
class Box:
    """What is drawn as one: its lines of text, of which the first `heads` say what it is, and the
    class by which it is coloured. reads: other boxes."""

    lines: list[str]
    kind: str = ""
    reads: list[Box] = field(default_factory=list)
    heads: int = 1
    ops: int = 1
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _CHARACTER + 20

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 12


@dataclass(frozen=True)
class Drawing:
    """svg: of `shown` of `ops` operations. tall: whether it is higher than a screen."""

    svg: Markup
    ops: int
    shown: int
    tall: bool


def draw(graph: Graph, kinds: Mapping[Node, str], notes: Mapping[Node, str], label: str) -> Drawing:
    """A graph. kinds: classes of boxes: "new", "gone". notes: a line more of a box. label: what
    the picture is, for who does not see it."""
    boxes = _boxes(graph, kinds, notes)
    ops = sum(box.ops for box in boxes if box.kind != "leaf")
    if len(boxes) > MOST:
        boxes = _chains(boxes)
    kept = boxes[:MOST]
    known = set(map(id, kept))
    for box in kept:
        box.reads = [b for b in box.reads if id(b) in known]
    shown = sum(box.ops for box in kept if box.kind != "leaf")
    svg, tall = _svg(kept, label)
    return Drawing(svg, ops, shown, tall > _SCREEN)


def _boxes(graph: Graph, kinds: Mapping[Node, str], notes: Mapping[Node, str]) -> list[Box]:
    """A box for each value that a call computes or is given, inputs first."""
    memo: dict[Node, bool] = {}
    made: dict[Node, Box] = {}
    roots = set(graph.roots())
    for node in graph.nodes():
        if node.op == "scalar" or (node.inputs and is_parametric(node, memo)):
            continue
        if node.op == "param" or (not node.inputs and is_parametric(node, memo)):
            continue
        if not node.inputs:
            lines = [str(node.get("name", node.op)), size_of(node)]
            made[node] = Box(lines, "leaf")
            continue
        held = _held(node, memo)
        text = textwrap.wrap(held, _WIDEST)[:2] if held else []
        name = f"{node.op} → result" if node in roots else node.op
        note = [notes[node]] if node in notes else []
        made[node] = Box(
            [name, size_of(node), *text, *note], kinds.get(node, ""), _unique(made, node)
        )
    return list(made.values())


def _unique(made: Mapping[Node, Box], node: Node) -> list[Box]:
    return list({id(made[i]): made[i] for i in node.inputs if i in made}.values())


def _held(node: Node, memo: dict[Node, bool]) -> str:
    """The parameters and numbers that an op reads."""
    found = []
    for i in node.inputs:
        if i.op == "scalar":
            value = i["value"]
            found.append(f"{value:g}" if isinstance(value, float) else str(value))
        elif is_parametric(i, memo):
            found.append(str(i.get("name", "folded")) if not i.inputs else "a folded parameter")
    return ", ".join(found)


def size_of(node: Node) -> str:
    """The shape without the ones before it."""
    shape = list(node.shape)
    while len(shape) > 1 and shape[0] == 1:
        shape.pop(0)
    return " × ".join(f"({d})" if " " in str(d) else str(d) for d in shape)


def _chains(boxes: Sequence[Box]) -> list[Box]:
    """The boxes, of which those with one reader that reads nothing else are one with it."""
    readers: dict[int, list[Box]] = {}
    for box in boxes:
        for read in box.reads:
            readers.setdefault(id(read), []).append(box)
    merged: dict[int, Box] = {}
    names: dict[int, list[str]] = {}
    result: list[Box] = []
    for box in boxes:
        reads = list({id(b): b for b in (merged.get(id(r), r) for r in box.reads)}.values())
        alone = len(box.reads) == 1 and len(readers.get(id(box.reads[0]), ())) == 1
        if alone and reads[0].kind != "leaf" and reads[0].kind == box.kind:
            into = reads[0]
            names[id(into)].append(box.lines[0])
            into.ops += box.ops
            listed = _listed(names[id(into)])
            into.lines, into.heads = [*listed, *box.lines[1:2]], len(listed)
            merged[id(box)] = into
        else:
            box.reads = reads
            names[id(box)] = [box.lines[0]]
            result.append(box)
    return result


def _listed(names: Sequence[str]) -> list[str]:
    lines = textwrap.wrap(", ".join(names), _WIDEST)
    if len(lines) > 3:
        lines = [*lines[:2], f"… {len(names)} operations"]
    return lines


@dataclass(eq=False)
class _Place:
    """A box in its layer, or where an edge passes one."""

    box: Box | None
    layer: int
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0

    @property
    def width(self) -> float:
        return self.box.width if self.box else _LANE


def _svg(boxes: Sequence[Box], label: str) -> tuple[Markup, float]:
    """The picture and its height in pixels."""
    if not boxes:
        return Markup(""), 0.0
    layers, ways = _layers(boxes)
    _ordered(layers)
    _spread(layers)
    tops = []
    y = 8.0
    for layer in layers:
        tops.append(y)
        high = max(p.box.height if p.box else 0 for p in layer)
        for p in layer:
            if p.box:
                p.box.x, p.box.y = p.x, y + (high - p.box.height) / 2
        y += high + _HEIGHT_APART
    left = min(p.x - p.width / 2 for layer in layers for p in layer) - 8
    wide = max(p.x + p.width / 2 for layer in layers for p in layer) + 8 - left
    highs = [max(p.box.height if p.box else 0 for p in layer) for layer in layers]
    body = [_edge(way, tops, highs, left) for way in ways]
    body += [_box(box, left) for box in boxes]
    tall = y - _HEIGHT_APART + 8
    svg = Markup(
        f'<svg class="graph" width="{wide:.0f}" height="{tall:.0f}"'
        f' viewBox="0 0 {wide:.0f} {tall:.0f}" role="img" aria-label="{escape(label)}"'
        f' font-size="12" text-anchor="middle">{"".join(body)}</svg>'
    )
    return svg, tall


def _layers(boxes: Sequence[Box]) -> tuple[list[list[_Place]], list[list[_Place]]]:
    """Places by layer; and of each edge its places, from top to bottom."""
    depth: dict[int, int] = {}
    places: dict[int, _Place] = {}
    for box in boxes:
        depth[id(box)] = max((depth[id(r)] + 1 for r in box.reads), default=0)
    least: dict[int, int] = {}
    for box in boxes:  # what is given is drawn above its first reader
        for r in box.reads:
            least[id(r)] = min(least.get(id(r), 1 << 30), depth[id(box)] - 1)
    layers: list[list[_Place]] = [[] for _ in range(max(depth.values()) + 1)]
    for box in boxes:
        if not box.reads:
            depth[id(box)] = max(depth[id(box)], least.get(id(box), 0))
        places[id(box)] = _Place(box, depth[id(box)])
        layers[depth[id(box)]].append(places[id(box)])
    ways = []
    for box in boxes:
        for r in box.reads:
            way = [places[id(r)]]
            for layer in range(depth[id(r)] + 1, depth[id(box)]):
                way.append(_Place(None, layer))
                layers[layer].append(way[-1])
            way.append(places[id(box)])
            for a, b in itertools.pairwise(way):
                a.below.append(b)
                b.above.append(a)
            ways.append(way)
    return layers, ways


def _ordered(layers: list[list[_Place]]) -> None:
    """Order each layer by the middle of its neighbours', down and up in turns."""
    for layer in layers:
        _pack(layer)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            layer.sort(key=lambda p: _middle(p.above if down else p.below, p.x))
            _pack(layer)


def _middle(places: Sequence[_Place], otherwise: float) -> float:
    return sum(p.x for p in places) / len(places) if places else otherwise


def _pack(layer: Sequence[_Place]) -> None:
    """Side by side around zero, in their order."""
    total = sum(p.width for p in layer) + _APART * (len(layer) - 1)
    x = -total / 2
    for p in layer:
        p.x = x + p.width / 2
        x += p.width + _APART


def _spread(layers: Sequence[Sequence[_Place]]) -> None:
    """Move places towards their neighbours, as far as those beside them let them."""
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = [_middle(p.above if down else p.below, p.x) for p in layer]
            for i, (p, want) in enumerate(zip(layer, wanted, strict=True)):
                low = _beside(layer[i - 1], p, 1) if i else float("-inf")
                high = _beside(layer[i + 1], p, -1) if i + 1 < len(layer) else float("inf")
                p.x = min(max(want, low), max(high, low))


def _beside(other: _Place, p: _Place, side: int) -> float:
    return other.x + side * ((other.width + p.width) / 2 + _APART)


def _edge(way: Sequence[_Place], tops: Sequence[float], highs: Sequence[float], left: float) -> str:
    first, last = way[0].box, way[-1].box
    assert first is not None and last is not None
    x, y = way[0].x - left, tops[way[0].layer] + highs[way[0].layer]
    path = [f"M{x:.0f} {first.y + first.height:.0f}V{y:.0f}"]
    for place in way[1:]:
        to_x = place.x - left
        to_y = tops[place.layer]
        half = (y + to_y) / 2
        path.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
        y += last.y - y if place.box else highs[place.layer]
        path.append(f"V{y:.0f}")
    return f'<path class="edge" d="{"".join(path)}"/>'


def _box(box: Box, left: float) -> str:
    x, y = box.x - left - box.width / 2, box.y
    text = [
        f'<text x="{box.x - left:.0f}" y="{y + 18 + i * _LINE:.0f}"'
        f"{'' if i < box.heads else ' class=' + chr(34) + 'dim' + chr(34)}>{escape(line)}</text>"
        for i, line in enumerate(box.lines)
    ]
    return (
        f'<g class="box {box.kind}"><rect x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}"'
        f' height="{box.height:.0f}" rx="7"/>{"".join(text)}</g>'
    )


def kernels_of(groups: Iterable[tuple[str, Sequence[Node]]]) -> dict[Node, str]:
    """For each node the kernel that computes it, as a note of its box."""
    return {node: f"in {name}" for name, nodes in groups for node in nodes}
