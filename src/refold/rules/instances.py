"""Random instances of a rule: a shape for every variable, values for every attribute, and data.

Data are of one kind: normal, shifted, scaled up and down, integers with ties. Values known to be
>= 0 are drawn so; others are now and then ranges or plain numbers, so that guards which ask for
bounds are tried as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch

from refold.ir import OPS, Node, as_scalar, hint, leaf, make
from refold.ir.evaluate import run
from refold.ir.shapes import RANK
from refold.rules.match import allowed, arguments
from refold.rules.rule import Hole, Rule
from refold.rules.term import AXES, Term

F64 = torch.float64
SIZES = (1, 2, 3, 4, 6)
OUTER = (1, 1, 2)  # of the axis that images of three dimensions alone have
SPATIAL_RANKS = (1, 2, 3)
DATA: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda t: t,
    "shifted": lambda t: t + 3,
    "large": lambda t: t * 10,
    "small": lambda t: t * 0.1,
    "ties": torch.round,
}
KINDS = tuple(DATA)
# what attributes may be: of windows on each spatial axis, and the others
OF_EACH_AXIS: dict[str, tuple[int, ...]] = {
    "strides": (1, 1, 1, 2, 3),
    "paddings": (0, 0, 1, 2),
    "dilations": (1, 1, 1, 2),
    "output_padding": (0, 0, 0, 1),
    "sizes": (1, 2, 2, 3),
}
ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "correction": (0, 0, 1),
    "start": (0, 1, 2),
    "length": (1, 2, 3),
    "size": (1, 2, 3),
    "stride": (1, 2, 3),
    "padding": (0, 0, 1),
    "count_include_pad": (True, False),
    "ceil_mode": (False, False, True),
    "slope": (-0.5, -2.0, 0.01, 0.2, 1.5),
    "alpha": (-1.5, 0.5, 1.0, 1.5),
    "beta": (1.0, 2.0),
    "threshold": (-1.0, 20.0, 40.0),
    "groups": (1, 1, 2, 3),
}
_T = TypeVar("_T")
_NOT_TAKEN = (ValueError, RuntimeError, IndexError, TypeError)  # by the left side of a rule


@dataclass(frozen=True)
class Instance:
    """Values for a rule's variables: nodes, and the data of their leaves."""

    found: dict[str, Any]
    data: dict[Node, torch.Tensor]


def draw_instance(
    rule: Rule, draw: random.Random, sizes: tuple[int, ...] = SIZES, guarded: bool = True
) -> Instance | None:
    """Random values for the rule's variables; None where the left side or the guard does not take
    them.

    sizes: what an axis may have. guarded: whether the guard is asked. It reads no data and refuses
    nine of ten draws: so the left side is made, data are drawn, and it is run, behind it.
    """
    base = (_choice(draw, OUTER), *(_choice(draw, sizes) for _ in range(RANK - 1)))
    letters = {c[0]: _choice(draw, sizes) for h in rule.holes.values() for c in h.dims}
    if rule.is_of_images and draw.random() < 0.5:  # one group: a kernel has all channels
        letters["D"] = letters.get("C", letters.get("O", 1))
        if "P" in letters:  # a kernel behind another
            letters["E"] = letters["O"]
    if "G" in letters:  # channels of two images beside each other
        letters["G"] = letters["C"] + letters["E"]
    spatial_rank = _choice(draw, SPATIAL_RANKS) if rule.is_of_images else 0
    found: dict[str, Any] = {}
    leaves: list[tuple[Node, Hole]] = []
    kind, seed = _choice(draw, KINDS), draw.getrandbits(32)
    for hole in rule.holes.values():
        if hole.attribute:
            name = hole.name.rstrip("0123456789")
            if name != hole.name and name in found and draw.random() < 0.8:
                found[hole.name] = _alike(name, hole.name, spatial_rank, found)
            else:
                found[hole.name] = _attribute(name, base, spatial_rank, found, draw)
        else:
            # behind a shape, values that spread to it
            shape = _shape(hole, found.get("shape", base), letters, spatial_rank, draw)
            # images of which a rule is about two: alike half of the time
            if "G" in letters and hole.name == "y" and draw.random() < 0.5:
                along = (hint(d) for d in found["x"].shape[-spatial_rank:])
                shape = (*shape[:-spatial_rank], *along)
            alike = [h for h in rule.holes.values() if h.is_of_images and h.dims == hole.dims]
            if alike and alike[0] is not hole and draw.random() < 0.7:
                shape = tuple(hint(d) for d in found[alike[0].name].shape)
                if "paddings2" in rule.holes:  # of two windows: a smaller one
                    kernel = (_choice(draw, (1, max(1, d - 2))) for d in shape[-spatial_rank:])
                    shape = (*shape[:-spatial_rank], *kernel)
            found[hole.name] = _value(hole, shape, spatial_rank, leaves, draw)
    mistake = None
    try:
        if guarded and not allowed(rule, found):
            return None
    except Exception as error:  # may be of values that the left side does not take
        mistake = error
    try:
        left = as_terms(rule.lhs(**arguments(rule, found)))
    except _NOT_TAKEN:
        return None
    if mistake is not None:
        raise mistake
    generator = torch.Generator().manual_seed(seed)
    data = {node: _data(node, hole, kind, generator) for node, hole in leaves}
    try:
        for t in left:
            run([t.node], data, {}, F64)
    except _NOT_TAKEN:
        return None
    return Instance(found, data)


def _data(node: Node, hole: Hole, kind: str, generator: torch.Generator) -> torch.Tensor:
    shape = tuple(hint(d) for d in node.shape)
    if hole.index:
        return torch.randint(0, 2, shape, generator=generator)
    return DATA[kind](torch.randn(shape, generator=generator, dtype=F64))


def _shape(
    hole: Hole,
    base: tuple[int, ...],
    letters: dict[str, int],
    spatial_rank: int,
    draw: random.Random,
) -> tuple[int, ...]:
    # a third of the variables have the base shape, the others are of size one here and there
    whole = draw.random() < 0.34
    shape = [d if whole or draw.random() < 0.5 else 1 for d in base]
    if hole.is_of_images or (spatial_rank and not hole.dims and draw.random() < 0.7):
        shape = [1] * RANK
    sizes = hole.sizes(spatial_rank)
    one_place = draw.random() < 0.2
    for i, letter in enumerate(sizes, RANK - len(sizes)):
        if letter.isdigit():
            shape[i] = int(letter)
        elif letter != "_":
            shape[i] = 1 if letter.endswith("?") and draw.random() < 0.3 else letters[letter[0]]
        elif hole.is_of_images:
            shape[i] = 1 if one_place else _choice(draw, SIZES)
    return tuple(shape)


def _value(
    hole: Hole,
    shape: tuple[int, ...],
    spatial_rank: int,
    leaves: list[tuple[Node, Hole]],
    draw: random.Random,
) -> Node:
    free = not (hole.parametric or hole.dims or hole.boolean or hole.index)
    # of what may be one element
    number = all(size.startswith("1") or size.endswith("?") for size in hole.dims) and hole.dims
    # a factor of images that has one element is a number most of the time, as guards want it
    often = 0.7 if number and spatial_rank and set(hole.dims) == {"1"} else 0.3
    if (free and draw.random() < 0.1) or (number and draw.random() < often):
        value = _choice(draw, (-2.0, -1.0, 0.0, 0.0, 0.5, 1.0, 3.0))
        if not (hole.nonnegative and value < 0) and not (hole.nonpositive and value > 0):
            return as_scalar(value, F64)
    node = _leaf(f"{hole.name}{len(leaves)}", shape, hole.parametric, hole.index)
    leaves.append((node, hole))
    if hole.index:
        return node
    if hole.boolean:
        return make("gt", node, as_scalar(0.0, F64))
    if hole.nonnegative:
        return make("abs", node)
    if hole.nonpositive:
        return make("mul", make("abs", node), as_scalar(-1.0, F64))
    if free and draw.random() < 0.2:
        return make("add", make("sigmoid", node), as_scalar(_choice(draw, (-2.0, 0.0, 2.0)), F64))
    return node


@lru_cache(maxsize=1 << 14)
def _leaf(name: str, shape: tuple[int, ...], parametric: bool, index: bool) -> Node:
    """Kept: variables are few, and so are shapes, and each is drawn a thousand times."""
    dtype = torch.int64 if index else F64
    if parametric and not index:
        return leaf("param", shape, dtype, name=name)
    return leaf("input", shape, dtype, name=name, index=0)


def _choice(draw: random.Random, options: Sequence[_T]) -> _T:
    """What `draw.choice` gives, in half of its time: instances are drawn by millions of these."""
    bits = len(options).bit_length()
    found = draw.getrandbits(bits)
    while found >= len(options):
        found = draw.getrandbits(bits)
    return options[found]


def _attribute(
    kind: str, base: tuple[int, ...], spatial_rank: int, found: dict[str, Any], draw: random.Random
) -> Any:
    if kind == "axes":
        if any("axes" in k for k in found) and draw.random() < 0.3:
            return next(v for k, v in found.items() if "axes" in k)
        if "axis" in found and draw.random() < 0.5:
            return (found["axis"],)
        if (
            spatial_rank and draw.random() < 0.7
        ):  # all spatial axes, with the channels or the batch; channels
            every, batch, channel = AXES[-spatial_rank:], -spatial_rank - 2, -spatial_rank - 1
            ways = (every, every, (channel, *every), (batch, *every), (channel,))
            return _choice(draw, ways)
        return tuple(sorted(draw.sample(AXES, _choice(draw, (1, 1, 1, 2, 2, 3)))))
    if kind == "axis":
        return _choice(draw, (*AXES, -1))
    if kind == "shape" and spatial_rank and "y" in found and draw.random() < 0.7:
        # as large as the one image, with the channels of the other
        x, y = ([hint(d) for d in found[name].shape] for name in "xy")
        return tuple(y[a] if a == -spatial_rank - 1 else x[a] for a in AXES)
    if kind == "shape":
        return _reshaped(base, found, draw)
    if kind == "order":
        return tuple(draw.sample(range(RANK), RANK))
    if kind in OF_EACH_AXIS:
        # alike on all axes half of the time, as most rules want some to be one or zero
        drawn = [_choice(draw, OF_EACH_AXIS[kind]) for _ in range(spatial_rank)]
        return tuple(drawn) if draw.random() < 0.5 else (drawn[0],) * spatial_rank
    return _choice(draw, ATTRIBUTES[kind])


def _alike(name: str, second: str, spatial_rank: int, found: dict[str, Any]) -> Any:
    """An attribute of a second window as of the first: a padding so that both have one centre."""
    one, other = found.get("w"), found.get(second.replace(name, "w"))
    if name != "paddings" or one is None or other is None:
        return found[name]
    sizes = zip(one.shape[-spatial_rank:], other.shape[-spatial_rank:], strict=True)
    centred = zip(found[name], found["dilations"], sizes, strict=True)
    return tuple(max(0, p - d * ((k - least) // 2)) for p, d, (k, least) in centred)


def _reshaped(base: tuple[int, ...], found: dict[str, Any], draw: random.Random) -> Any:
    """A shape of as many elements as the first value has, or one that it spreads to."""
    if "w" in found and draw.random() < 0.75:
        return _cut(_product(found), -len(found.get("strides", ())) - 1, draw)
    shapes = [[hint(d) for d in v.shape] for v in found.values() if isinstance(v, Node)]
    if draw.random() < 0.3:
        return _cut(shapes[0], _choice(draw, [a for a in AXES if shapes[0][a] > 1] or AXES), draw)
    shape = list(_choice(draw, shapes))
    how = draw.randrange(5)
    if how == 0:
        return base
    if how == 4:  # neighbours become one
        first, last = sorted(draw.sample(range(RANK), 2))
        whole = math.prod(shape[first : last + 1])
        return (*(1,) * (last - first), *shape[:first], whole, *shape[last + 1 :])
    if how == 1:
        return tuple(d if d != 1 or draw.random() < 0.5 else _choice(draw, SIZES) for d in shape)
    sizes = [d for d in shape[:-1] if d != 1]
    if len(sizes) > 1 and draw.random() < 0.5:
        sizes = [sizes[0] * sizes[1], *sizes[2:]]
    draw.shuffle(sizes)
    ones = [1] * (RANK - 1 - len(sizes))
    rows = [*ones, *sizes] if draw.random() < 0.5 else [*sizes, *ones]
    return (*rows, shape[-1]) if how == 2 else (shape[-1], *rows)


def _product(found: dict[str, Any]) -> list[int]:
    """The shape of a product of x and w; that of x where they have none."""
    given = [found[name] for name in "xwb" if name in found]
    attrs = {a: found[a] for a in OPS["conv"].attrs if a in found}
    try:
        made = make("conv", *given, **attrs) if attrs else make("linear", *given)
    except _NOT_TAKEN:
        made = given[0]
    return [hint(d) for d in made.shape]


def _cut(shape: list[int], axis: int, draw: random.Random) -> tuple[int, ...]:
    """A shape with an axis cut in two, at the cost of one of a single element before it."""
    first = _choice(draw, [d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])
    made = [*shape[:axis], first, shape[axis] // first, *shape[RANK + axis + 1 :]]
    made.remove(1 if 1 in made else made[0])
    return tuple(made)


def as_terms(made: Term | tuple[Term, ...]) -> tuple[Term, ...]:
    return made if isinstance(made, tuple) else (made,)
