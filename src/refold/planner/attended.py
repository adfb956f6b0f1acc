"""Attention that a model writes by hand, or that PyTorch takes apart, found for kernels of it.
What PyTorch calls whole in training is beside it (`attention_calls.py`).

What is found is `softmax(q k^T scale + mask) v`, of scores that nothing else reads. Rules have seen
its products and its softmax until here; where no kernel computes it whole they stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from refold.devices import DeviceModel
from refold.families.attention.claim import is_taken
from refold.ir import HALF_DTYPES, Dim, Graph, Node, Sym, as_scalar, make, numel
from refold.ir.attention import unspread
from refold.ir.evaluate import run
from refold.ir.graph import topological
from refold.ir.node import rebuild
from refold.ir.shapes import RANK
from refold.planner.attention_calls import exchanged, moved, of_call, reshaped

_DEEPEST = 4  # of what is computed of numbers alone
_SWAPPED = (*range(RANK - 2), RANK - 1, RANK - 2)


def attended(graph: Graph, device: DeviceModel) -> tuple[Graph, Mapping[Node, Node]]:
    """The same function with attention as one node, and what became of each node."""
    nodes = graph.nodes()
    narrow = any(n.dtype in HALF_DTYPES for n in nodes)  # values may lie in 16 bits there
    if "wgmma" not in device.device.features or narrow:
        return graph, {n: n for n in nodes}
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for i in node.inputs:
            readers.setdefault(i, []).append(node)
    roots = set(graph.roots())
    done: dict[Node, Node] = {}
    any_made = False
    for node in nodes:
        found = _found(node) if node.op == "linear" else None
        inside = found.inside if found is not None else set()
        alone = all(r is node or r in inside for n in inside for r in readers[n])
        made = None
        if found is not None and alone and inside.isdisjoint(roots):
            made = _made(found, node, done, device)
        elif node.op == "aten":
            made = of_call(node, done, device, nodes)
        any_made |= made is not None
        if made is None:
            made = moved(node, tuple(done[i] for i in node.inputs))
        done[node] = made
    if not any_made:
        return graph, {n: n for n in nodes}
    return graph.with_roots(done[r] for r in graph.roots()), done


@dataclass(frozen=True)
class _Scores:
    """A product of queries with keys, and what is done to it. shape: in which the mask is added.
    factor: of the product. filled: whether the mask stands in the place of scores where it is not
    zero. inside: what nothing but the attention reads. unseen: whether queries without a key get
    zeros (else they get NaN). values: what the weights multiply."""

    product: Node
    shape: tuple[Dim, ...]
    factor: float = 1.0
    mask: Node | None = None
    filled: bool = False
    inside: frozenset[Node] = field(default_factory=frozenset)
    unseen: bool = False
    values: Node | None = None


def _found(node: Node) -> _Scores | None:
    """What a product of weights with values is made of, if it is attention's."""
    weights, values = node.inputs
    if node.dtype != torch.float32:
        return None
    passed = set()
    while weights.op == "reshape":
        passed.add(weights)
        (weights,) = weights.inputs
    softmax, safe = weights, False
    if weights.op == "where" and (found := _zeros_for_nothing(weights)) is not None:
        softmax, inner = found
        passed |= {weights, *inner}
        safe = True
    x = _softmax_of(softmax)
    if x is None or (safe and not _asks_of(weights.inputs[0], x)):
        return None
    scores = _scores(x)
    if scores is None or (safe and scores.filled):
        return None
    inside = scores.inside | passed | {softmax, *_between(softmax, x)}
    return replace(scores, inside=inside, unseen=safe, values=values)


# --- parts ----------------------------------------------------------------------------------------
def _softmax_of(node: Node) -> Node | None:
    """What a node is the softmax along rows of, as one op or by hand."""
    if node.op == "softmax":
        return node.inputs[0] if node["axis"] == -1 else None
    if node.op != "div":
        return None
    top, total = node.inputs
    if top.op != "exp" or total.op != "sum" or total["axes"] != (-1,) or total.inputs[0] is not top:
        return None
    (shifted,) = top.inputs
    if shifted.op != "sub":
        return None
    x, most = shifted.inputs
    return x if most.op == "max" and most["axes"] == (-1,) and most.inputs[0] is x else None


def _between(node: Node, x: Node) -> set[Node]:
    """What is computed from x for a node, x included."""
    found, stack = {x}, [i for i in node.inputs if i.op != "scalar"]
    while stack:
        n = stack.pop()
        if n not in found and n.depth > x.depth:
            found.add(n)
            stack += [i for i in n.inputs if i.op != "scalar"]
    return found


def _zeros_for_nothing(node: Node) -> tuple[Node, set[Node]] | None:
    """The softmax of a `where` that gives zeros for rows of which nothing counts, and what says
    which rows these are."""
    nothing, zeros, softmax = node.inputs
    while zeros.op == "expand":
        (zeros,) = zeros.inputs
    if zeros.op != "scalar" or zeros["value"] != 0:
        return None
    x = _softmax_of(softmax)
    return None if x is None else (softmax, _between(nothing, x) | {nothing})


def _asks_of(nothing: Node, x: Node) -> bool:
    """Is a mask true for the rows of x that are minus infinity throughout, and for no others?"""
    if nothing.op != "eq" or not _is_number(nothing.inputs[1], 0.0):
        return False
    counted = nothing.inputs[0]
    if counted.op not in ("sum", "max") or counted["axes"] != (-1,):
        return False
    (ones,) = counted.inputs
    if ones.op != "where" or not (
        _is_number(ones.inputs[1], 1.0) and _is_number(ones.inputs[2], 0)
    ):
        return False
    other = ones.inputs[0]
    return other.op == "ne" and other.inputs[0] is x and _is_number(other.inputs[1], -torch.inf)


def _is_number(node: Node, value: float) -> bool:
    return node.op == "scalar" and node["value"] == value


def _scores(node: Node) -> _Scores | None:
    """The product that scores are made of, with a mask behind it, or none."""
    filled = node.op == "where"
    if filled:
        choice, *sides = node.inputs
        numbers = [i for i in sides if i.op == "scalar" and isinstance(i["value"], float)]
        if len(numbers) != 1 or not numbers[0]["value"]:
            return None
        (x,) = (i for i in sides if i not in numbers)
        zeros = (as_scalar(0.0, node.dtype) if i is x else i for i in sides)
        pairs = [(x, make("where", unspread(choice), *zeros))]
    elif node.op == "add":
        x, other = node.inputs
        pairs = [(x, other), (other, x)]
    else:
        return _product(node)
    for x, mask in pairs:
        found = _product(x) if x.shape == node.shape and mask.op != "scalar" else None
        if found is not None:
            inside = found.inside | {node}
            return replace(found, mask=unspread(mask), filled=filled, inside=inside)
    return None


def _product(node: Node) -> _Scores | None:
    """A product of queries with keys, times numbers, in another shape or its own."""
    shape, inside, factor = node.shape, {node}, 1.0
    while node.op != "linear":
        if node.op == "reshape":
            (x,) = node.inputs
            if x.shape[-2:] != node.shape[-2:]:
                return None
        elif node.op in ("mul", "div"):
            x, times = node.inputs
            number = _number_of(times)
            if number is None and node.op == "mul":
                x, number = times, _number_of(x)
            if not number or x.shape != node.shape:
                return None
            factor *= number if node.op == "mul" else 1 / number
        else:
            return None
        node = x
        inside.add(node)
    return _Scores(node, shape, factor, inside=frozenset(inside))


def _number_of(node: Node) -> float | None:
    """The number that a value is, which other numbers may give."""
    if any(d != 1 for d in node.shape) or not node.is_float or node.depth > _DEEPEST:
        return None
    leaves = [n for n in topological([node]) if not n.inputs]
    if any(n.op != "scalar" or isinstance(n["value"], Sym) for n in leaves):
        return None
    return float(run([node], {}, {}, torch.float64)[node].item())


# --- what is made of them -------------------------------------------------------------------------
def _made(
    found: _Scores, node: Node, done: Mapping[Node, Node], device: DeviceModel
) -> Node | None:
    """Attention in place of a product of weights with values, if kernels take it."""
    q, k = found.product.inputs
    v = found.values
    assert v is not None
    queries, keys, features = q.shape[-2], k.shape[-2], q.shape[-1]
    # each head has queries, keys and values of its own; they are joined and parted alike
    counts = {numel(n.shape[:-2]) for n in (q, k, v, found.product, node)}
    alike = node.inputs[0].shape[-2:] == (queries, keys) and v.shape[-2:] == (features, keys)
    if len(counts) != 1 or not alike:
        return None
    outer = _heads_of(found, q)
    mask = found.mask
    given = [
        _tokens(done[q], (*outer, queries, features)),
        _tokens(done[k], (*outer, keys, features)),
        _tokens(moved(make("permute", v, order=_SWAPPED), (done[v],)), (*outer, keys, features)),
    ]
    if mask is not None:
        if any(a not in (1, b) for a, b in zip(mask.shape, (1, *outer, queries), strict=False)):
            return None
        given.append(done.get(mask) or rebuild(mask, tuple(done.get(i, i) for i in mask.inputs)))
    name = "attention" if mask is None else "masked_attention"
    name = "filled_attention" if found.filled else name
    name = name if found.unseen else f"softmax_{name}"
    try:
        causal = {"causal": False} if name == "attention" else {}
        made = make(name, *given, scale=found.factor, **causal)
    except ValueError:
        return None
    if not is_taken(made, device):
        return None
    return reshaped(exchanged(made), node.shape)


def _heads_of(found: _Scores, q: Node) -> tuple[Dim, Dim]:
    """How many batches and heads there are: as the scores have them, or the queries before they
    were joined."""
    count = numel(q.shape[:-2])
    shapes = [found.shape, q.shape]
    if q.op == "reshape":
        shapes.append(q.inputs[0].shape)
    for shape in shapes:
        if shape[0] == 1 and shape[1] != 1 and numel(shape[:-2]) == count:
            return shape[1], shape[2]
    return (count, 1) if found.mask is None else (1, count)


def _tokens(x: Node, shape: tuple[Dim, ...]) -> Node:
    """x [..., tokens, features] as [batch, tokens, heads, features]."""
    return exchanged(reshaped(x, (1, *shape)))
