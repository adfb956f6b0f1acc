"""Take apart what no kernel template computes whole.

softmax, log_softmax and logsumexp become a maximum, a sum of exponentials and a pointwise tail,
unless a logsumexp along rows is asked for whole, as a product's epilogue takes it in one pass; a
variance along rows becomes a mean and a sum of squares of centred values. A reduction over several
axes becomes one over the trailing axes (elements of one row) and one over the leading axes
(elements of one column), the two forms that the templates know; one over channels stays as it is.
Kernels read floats alone: a mask that is no comparison of floats is read as zeros and ones, and a
comparison that is counted as a number is a choice of 1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, MutableMapping

import torch

from refold.ir import OPS, Dim, Graph, Kind, Node, as_scalar, make, numel
from refold.ir.evaluate import run
from refold.ir.graph import taken_of, wide_axes, within
from refold.ir.node import rebuild
from refold.ir.shapes import RANK, pad
from refold.plan.channels import channels_axis
from refold.plan.memory import is_narrowing, is_widening
from refold.planner.moments import (
    COMPUTED,
    by_hand,
    centring_mean,
    left_of,
    mean_along,
    variance_along,
)
from refold.planner.reshaped import in_shape, reshaped, reshaped_behind, reshaped_first


def lower(
    graph: Graph,
    whole: Container[Node] = (),
    exact: Container[Node] = (),
    known: MutableMapping[Node, Node] | None = None,
) -> tuple[Graph, Mapping[Node, Node]]:
    """The same function over forms that the templates compute, and what became of each node.

    Values are equal in the reals. whole: what stays as it is, logsumexps along rows and statistics
    of channels. exact:
    means that must be exact where all values are equal though nobody asks for the variance.
    known: what became of nodes of other graphs, and becomes of this one's.
    """
    done: dict[Node, Node] = {}
    known = {} if known is None else known

    def lowered_of(node: Node) -> Node:
        if node not in known:
            known[node] = _lower(node)
        return known[node]

    nodes = graph.nodes()
    spread = {taken_of(s) for n in nodes if (s := n if n.op == "var" else by_hand(n)) is not None}
    centred = {n.inputs[1] for n in nodes if centring_mean(n) is not None} if spread else set()
    for node in nodes:
        again = rebuild(node, tuple(done[i] for i in node.inputs))
        variance = by_hand(node)
        if node in whole:
            done[node] = again
        elif node.op == "mean" and node.dtype in COMPUTED and variance is None:
            if taken_of(node) in spread or (node in centred and _is_along_rows(node)):
                done[node] = _mean_beside_variance(again)
            else:
                done[node] = _exact_mean(again) if node in exact else lowered_of(again)
        elif variance is not None:
            found = _lower(rebuild(variance, (done[variance.inputs[0]],)))
            done[node] = found if node.op == "mean" else _times_count(found, variance)
        else:
            done[node] = lowered_of(again)
    lowered = graph.with_roots(done[r] for r in graph.roots())
    for pass_over in (reshaped_first, reshaped_behind):
        moved = pass_over(lowered)
        lowered = lowered.with_roots(moved[r] for r in lowered.roots())
        done = {n: moved.get(d, d) for n, d in done.items()}
    return lowered, done


def _lower(node: Node) -> Node:
    if node.row.draws:
        return node
    if node.inputs and all(map(_is_number, node.inputs)) and node.is_float:
        return _number(node)
    if node.op in ("softmax", "log_softmax"):
        along = all(d == 1 for d in node.shape[node["axis"] :][1:])  # rows, or columns of width one
        along = along or channels_axis(node) is not None
        return _softmax(node) if along and node.dtype in COMPUTED else node
    if node.kind is Kind.REDUCE and node.row.reduction and node.dtype in COMPUTED:
        return _reduction(node)
    if _only_moves(node) and all(map(is_widening, node.inputs)):
        return _moved_narrow(node)
    if is_narrowing(node):
        return _narrowed(node)
    if node.op == "reshape":
        return reshaped(node.inputs[0], node.shape)
    if node.op == "cat":
        return _joined(node)
    if node.op == "where" and all(i.dtype in COMPUTED for i in node.inputs[1:]):
        return _masked(node)
    if node.op == "cast" and node.dtype in COMPUTED and _is_of_numbers(node.inputs[0], node.dtype):
        one, zero = as_scalar(1.0, node.dtype), as_scalar(0.0, node.dtype)
        return make("where", node.inputs[0], one, zero)
    if OPS[node.op].kind is Kind.POINTWISE and node.dtype in COMPUTED:
        return _laid(node)
    return node


def _is_of_numbers(mask: Node, dtype: torch.dtype) -> bool:
    """Is it a comparison of numbers of a dtype, which kernels compute where they read it?"""
    return mask.row.is_comparison and all(i.dtype == dtype for i in mask.inputs)


def _only_moves(node: Node) -> bool:
    return node.kind is Kind.MOVE and node.row.selects


def _laid(node: Node) -> Node:
    """A vector that stands along another axis, computed along the last: where what it follows
    from, results of columns, lies."""
    wide = [d for d in node.shape if d != 1]
    vector = pad(tuple(wide))
    numbers = [all(d == 1 for d in i.shape) for i in node.inputs]
    if len(wide) != 1 or node.shape == vector or any(i.dtype != node.dtype for i in node.inputs):
        return node
    laid = [i if n else reshaped(i, vector) for i, n in zip(node.inputs, numbers, strict=True)]
    moves = [
        new.op == "reshape" and old.op != "reshape"
        for old, new in zip(node.inputs, laid, strict=True)
    ]
    if all(moves[i] or numbers[i] for i in range(len(laid))):
        return node
    return reshaped(rebuild(node, tuple(laid)), node.shape)


def _moved_narrow(node: Node) -> Node:
    """Elements of 16 bits are moved as such, and widened where they are read."""
    if len({i.inputs[0].dtype for i in node.inputs}) > 1:
        return node
    moved = rebuild(node, tuple(i.inputs[0] for i in node.inputs))
    return make("cast", _joined(moved) if moved.op == "cat" else moved, dtype=node.dtype)


def _joined(node: Node) -> Node:
    """Values that were joined two by two, joined all at once."""

    def parts(i: Node) -> tuple[Node, ...]:
        return i.inputs if i.op == "cat" and i["axis"] == node["axis"] else (i,)

    return rebuild(node, tuple(part for i in node.inputs for part in parts(i)))


def _narrowed(node: Node) -> Node:
    """Rounding next to what computes the value: before elements are moved."""
    done: dict[Node, Node] = {}

    def rounded(i: Node) -> Node:
        if is_widening(i) and i.inputs[0].dtype == node.dtype:
            return i.inputs[0]
        return make("cast", i, dtype=node.dtype)

    for n in within(node.inputs, _only_moves):
        done[n] = rebuild(n, tuple(done[i] if i in done else rounded(i) for i in n.inputs))
    (x,) = node.inputs
    return done[x] if x in done else rounded(x)


def _masked(node: Node) -> Node:
    mask, yes, no = node.inputs
    if _is_of_numbers(mask, node.dtype):
        return node
    as_float = make("cast", mask, dtype=node.dtype)
    return make("where", make("ne", as_float, as_scalar(0.0, node.dtype)), yes, no)


def _is_number(node: Node) -> bool:
    return node.op == "scalar" and isinstance(node["value"], (bool, int, float))


def _number(node: Node) -> Node:
    """What numbers alone give is a number, of no device, computed in float64."""
    if OPS[node.op].kind is not Kind.POINTWISE or any(d != 1 for d in node.shape):
        return node
    value = run([node], {}, {}, torch.float64)[node].item()
    return as_scalar(value, node.dtype) if math.isfinite(value) else node


def _softmax(node: Node) -> Node:
    (x,) = node.inputs
    axes = (node["axis"],)
    if axes != (-1,) and channels_axis(node) is None:
        behind = -1 - node["axis"]  # axes of one element
        rows = make(node.op, reshaped(x, (*(1,) * behind, *x.shape[:-behind])), axis=-1)
        return reshaped(_softmax(rows), node.shape)
    shifted = make("sub", x, make("max", x, axes=axes))
    total = make("sum", make("exp", shifted), axes=axes)
    if node.op == "softmax":
        return make("div", make("exp", shifted), total)
    return make("sub", shifted, make("log", total))


def _reduction(node: Node) -> Node:
    (x,) = node.inputs
    if (axis := channels_axis(node)) is not None:  # one kernel for all passes over channels
        return _row_form(_again(node, x, (axis,)))
    axes: tuple[int, ...] = tuple(a for a in node["axes"] if x.shape[a] != 1)
    if not axes:
        axes = (-1,) if -1 in node["axes"] else node["axes"][-1:]
    # leading ones may be added to the axes: a reduction over one element is the identity
    trailing = tuple(a for a in axes if _reaches_end(x, a, axes))
    leading = tuple(a for a in axes if a not in trailing)
    if trailing and leading:
        return _split(node, x, leading, trailing)
    if trailing:
        return _over_row(node, x, trailing)
    if x.shape[-1] == 1 and (close := _ones_first(x)).shape != x.shape:
        # what is left is the columns of a matrix, with axes of one element behind them
        wide = [a for a in range(-RANK, 0) if x.shape[a] != 1]
        moved = tuple(a for a in range(-len(wide), 0) if wide[a] in leading) or (-RANK,)
        return reshaped(_reduction(_again(node, close, moved)), node.shape)
    after = x.shape[max(leading) + 1 :]
    if sum(d != 1 for d in after) > 1:
        # columns: one for each place behind the reduced axes
        flat = pad((*x.shape[: max(leading) + 1], numel(after)))
        behind = tuple(a + len(after) - 1 for a in leading)
        return reshaped(_reduction(_again(node, reshaped(x, flat), behind)), node.shape)
    reduced = node if leading == node["axes"] else _again(node, x, leading)
    return _logsumexp(reduced) if node.op == "logsumexp" else reduced


def _ones_first(x: Node) -> Node:
    """x with its axes of one element before the others."""
    return reshaped(x, pad(tuple(d for d in x.shape if d != 1)))


def _reaches_end(x: Node, axis: int, axes: tuple[int, ...]) -> bool:
    return all(a in axes or x.shape[a] == 1 for a in range(axis, 0))


def _again(node: Node, x: Node, axes: tuple[int, ...]) -> Node:
    attrs = dict(node.attrs)
    attrs["axes"] = axes
    return make(node.op, x, **attrs)


def _over_row(node: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """Over the last axes: as one row of the product of their sizes."""
    first = min(axes)
    if first == -1:
        return _row_form(_again(node, x, (-1,)))
    flat = _flattened(x, first)
    if _joins(node) and not _fits(x, flat):
        # a factor for each channel, say: a kernel has one for a row, not for a part of it
        for inner in range(first + 1, 0):
            if x.shape[inner - 1] != 1 and _fits(x, _flattened(x, inner)):
                trailing = tuple(range(inner, 0))
                return _split(node, x, tuple(a for a in axes if a < inner), trailing)
    return reshaped(_row_form(_again(node, reshaped(x, flat), (-1,))), node.shape)


def _joins(node: Node) -> bool:
    how = node.row.reduction
    return how is not None and how.joins


def _flattened(x: Node, first: int) -> tuple[Dim, ...]:
    """The shape of x whose axes from `first` on are one."""
    outer = x.shape[:first]
    return (*(1,) * (RANK - 1 - len(outer)), *outer, numel(x.shape[first:]))


def _fits(x: Node, shape: tuple[Dim, ...]) -> bool:
    """Can a pointwise value be computed in that shape, as far as its operands' shapes go?"""
    same = x.shape
    made = within([x], lambda n: OPS[n.op].kind is Kind.POINTWISE and n.shape == same)
    needed = {i.shape for n in made for i in n.inputs}
    return all(in_shape(given, same, shape) is not None for given in needed)


def _exact_mean(node: Node) -> Node:
    """A mean that is exact where all values are equal, of which no variance is asked for: the mean
    of what a mean leaves is added to it."""
    (x,) = node.inputs
    axes = wide_axes(node)
    trailing = tuple(a for a in axes if _reaches_end(x, a, axes))
    if trailing:
        return _mean_beside_variance(node)
    mean = _lower(_again(node, x, axes))
    left = _lower(make("mean", _lower(make("sub", x, mean)), axes=axes))
    return make("add", mean, left_of(mean, left))


def _times_count(variance: Node, of: Node) -> Node:
    x, axes = taken_of(of)
    count = as_scalar(numel(x.shape[a] for a in axes), variance.dtype)
    return _lower(make("mul", variance, count))


def _is_along_rows(node: Node) -> bool:
    x, axes = taken_of(node)
    return bool(axes) and all(_reaches_end(x, a, axes) for a in axes)


def _row_form(node: Node) -> Node:
    """A reduction along rows by the passes that the templates have: sum, mean, max, min."""
    if node.op == "logsumexp":
        return _logsumexp(node)
    return variance_along(node) if node.op == "var" else node


def _logsumexp(node: Node) -> Node:
    """log(sum(exp(x - m))) + m with the maximum m, or 0 where that is infinite."""
    (x,) = node.inputs
    top = make("max", x, axes=node["axes"])
    infinite = make("eq", make("abs", top), as_scalar(math.inf, x.dtype))
    m = make("where", infinite, as_scalar(0.0, x.dtype), top)
    total = make("sum", make("exp", make("sub", x, m)), axes=node["axes"])
    return make("add", make("log", total), m)


def _split(node: Node, x: Node, leading: tuple[int, ...], trailing: tuple[int, ...]) -> Node:
    if _joins(node):
        return _lower(_again(node, _lower(_again(node, x, trailing)), leading))
    # the variance of equal shares: the mean of their variances plus the variance of their means
    spread = _lower(make("var", x, axes=trailing, correction=0))
    _, apart, over = _means_apart(x, leading, trailing)
    mean = _lower(make("mean", spread, axes=leading))
    between = reshaped(_lower(make("var", apart, axes=over, correction=0)), mean.shape)
    total = _lower(make("add", mean, between))
    if node["correction"] == 0:
        return total
    count = numel(x.shape[a] for a in (*leading, *trailing))
    unbiased = _lower(make("div", as_scalar(count, x.dtype), as_scalar(count - 1, x.dtype)))
    return _lower(make("mul", total, unbiased))


def _mean_beside_variance(node: Node) -> Node:
    """A mean of which the variance is asked for, too: what is centred by it is small, so that its
    last digit counts. Of equal values it is exact."""
    (x,) = node.inputs
    axes = wide_axes(node)
    trailing = tuple(a for a in axes if _reaches_end(x, a, axes))
    leading = tuple(a for a in axes if a not in trailing)
    if (axis := channels_axis(node)) is not None:
        return mean_along(_again(node, x, (axis,)))
    if not trailing:
        return _lower(node)
    if not leading:
        flat = x if min(trailing) == -1 else reshaped(x, _flattened(x, min(trailing)))
        return reshaped(mean_along(_again(node, flat, (-1,))), node.shape)
    first, apart, over = _means_apart(x, leading, trailing)
    mean = _lower(make("mean", apart, axes=over))
    return reshaped(_lower(make("add", first, mean)), node.shape)


def _means_apart(
    x: Node, leading: tuple[int, ...], trailing: tuple[int, ...]
) -> tuple[Node, Node, tuple[int, ...]]:
    """The first of the means over the trailing axes; all of them less that one; and the axes that
    `leading` are there.

    Far from zero a mean's last digit is not small beside the deviations: what the rounding of a
    mean leaves is added to it once it is small.
    """
    # all of it over rows of one shape, so that one kernel of rows does it, whatever makes the rows
    shape, flat = make("mean", x, axes=trailing).shape, _flattened(x, min(trailing))
    rows = x if min(trailing) == -1 else reshaped(x, flat)
    of_rows = make("mean", rows, axes=(-1,))
    left_of_rows = make("mean", make("sub", rows, of_rows), axes=(-1,))
    means, left = reshaped(of_rows, shape), reshaped(left_of_rows, shape)
    # computed in the shape in which it is reduced, so that one kernel does both
    wide = [a for a in range(-RANK, 0) if means.shape[a] != 1]
    over = tuple(a for a in range(-len(wide), 0) if wide[a] in leading)
    means, left = _ones_first(means), _ones_first(left)
    first = means
    for axis in over:
        first = make("slice", first, axis=axis, start=0, length=1)
    return first, _lower(make("add", _lower(make("sub", means, first)), left)), over
