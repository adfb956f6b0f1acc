"""Features in groups: an axis that a reshape cuts, as of heads, is summed over groups or in each.

The sum is a product with the sums of the weight's rows, or a convolution with sums of kernels: the
features that are added are never made. What is shifted or scaled by parameters behind the cut can
be before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from refold.ir import OPS, Dim, numel
from refold.ir.shapes import RANK, pad
from refold.rules.broadcasts import exact_of
from refold.rules.image import CONV, OVER, Over, channels, is_zero
from refold.rules.rule import Rule
from refold.rules.safety import is_map
from refold.rules.schemas import Values, rule_of
from refold.rules.term import (
    AXES,
    Term,
    apply,
    broadcast_sum,
    conv,
    expand,
    is_unit_along,
    linear,
    mean,
    reshape,
    run_of,
    sum,
)

_ARITHMETIC = [row.name for row in OPS.values() if row.is_arithmetic]
Axes = tuple[int, ...]


def _cut(given: Sequence[Dim], shape: Sequence[Dim], axis: int) -> Axes | None:
    """The axes of `shape` into which a reshape cuts `axis`; None where it leaves or merges it."""
    run = run_of(shape, given, axis)
    return run if run is not None and 1 < len(run) < RANK else None


def _reduced(axes: Axes, run: Axes | None, shape: Sequence[Dim]) -> Axes:
    """Those of `axes` that are in a run, if no others have more than one element."""
    if run is None or any(a not in run and shape[a] != 1 for a in axes):
        return ()
    return tuple(a for a in axes if a in run)


def _in_groups(w: Term, over: Over, sizes: Sequence[Dim], at: Sequence[int]) -> Term:
    """The sum or mean of the rows of w[M,D], as they are cut, along so many of the cut's axes."""
    rows = reshape(w, pad((*sizes, w.shape[-1])))
    total = over(rows, tuple(i - len(sizes) - 1 for i in at))
    return reshape(total, pad((numel(total.shape[:-1]), w.shape[-1])))


def _reduced_rows(over: Over, w: Term, v: Values, run: Axes) -> Term:
    at = [run.index(a) for a in _reduced(v["axes"], run, v["shape"])]
    return _in_groups(w, over, [v["shape"][a] for a in run], at)


def _made(v: Values, y: Term) -> Term:
    """The features that are left, with the axes that were reduced."""
    left = (1 if a in v["axes"] else d for a, d in zip(AXES, v["shape"], strict=True))
    return reshape(y, tuple(left))


# --- products -------------------------------------------------------------------------------------
def _heads(v: Values) -> Axes | None:
    """The axes into which the features of a product are cut."""
    return _cut(linear(v["x"], v["w"]).shape, v["shape"], -1)


def _over_product(over: Over, v: Values) -> Term:
    return over(reshape(linear(v["x"], v["w"]), v["shape"]), v["axes"])


def _of_product(over: Over, v: Values) -> Term:
    return _made(v, linear(v["x"], _reduced_rows(over, v["w"], v, _heads(v) or ())))


def _of_products() -> Iterator[Rule]:
    for name, over in OVER:
        yield rule_of(
            f"{name}-of-features-in-groups",
            ("x[N,K]", "w[1,1,1,M,K]", "@axes", "@shape"),
            partial(_over_product, over),
            partial(_of_product, over),
            f"The {name} of features in groups is one product with that of the weight's rows.",
            where=lambda v: bool(_reduced(v["axes"], _heads(v), v["shape"])),
        )


# --- convolutions ---------------------------------------------------------------------------------
def _result(v: Values) -> Term:
    return conv(v["x"], v["w"], v["b"], v["strides"], v["paddings"], v["dilations"], v["groups"])


def _channels(v: Values) -> Axes | None:
    """The axes into which the channels of a convolution are cut."""
    return _cut(_result(v).shape, v["shape"], channels(v["strides"]))


def _keeps_groups(v: Values) -> bool:
    """Are channels reduced, and each with others of its group of the convolution?"""
    run = _channels(v)
    reduced = _reduced(v["axes"], run, v["shape"])
    if run is None or not reduced:
        return False
    before = numel(v["shape"][a] for a in run if a < reduced[0])
    return v["groups"] == 1 or (isinstance(before, int) and before % v["groups"] == 0)


def _over_convolution(over: Over, v: Values) -> Term:
    return over(reshape(_result(v), v["shape"]), v["axes"])


def _of_convolution(over: Over, v: Values) -> Term:
    w, b, run = v["w"], v["b"], _channels(v) or ()
    features, *kernel = w.shape[channels(v["strides"]) - 1 :]
    rows = _reduced_rows(over, reshape(w, pad((features, numel(kernel)))), v, run)
    weight = reshape(rows, pad((rows.shape[-2], *kernel)))
    if b.shape[-1] == features:
        bias = _reduced_rows(over, reshape(b, pad((features, 1))), v, run)
        bias = reshape(bias, pad((bias.shape[-2],)))
    else:
        bias = b * (features // rows.shape[-2]) if over is sum and not is_zero(b) else b
    window = v["strides"], v["paddings"], v["dilations"], v["groups"]
    return _made(v, conv(v["x"], weight, bias, *window))


def _of_convolutions() -> Iterator[Rule]:
    for name, over in OVER:
        yield rule_of(
            f"{name}-of-channels-in-groups",
            (*CONV.format("", "", "@axes").split(), "@shape"),
            partial(_over_convolution, over),
            partial(_of_convolution, over),
            f"The {name} of channels in groups is one convolution with that of their weights.",
            where=_keeps_groups,
        )


# --- shifts and scales ----------------------------------------------------------------------------
def _own_axis(s: Term, x: Term) -> int | None:
    """The axis of x along which s has an element for each of its elements, and one along others."""
    own = [a for a in AXES if s.shape[a] != 1]
    return own[0] if len(own) == 1 and s.shape[own[0]] == x.shape[own[0]] else None


def _run_of_shift(v: Values) -> Axes | None:
    own = _own_axis(v["b"], v["x"])
    return None if own is None else _cut(v["x"].shape, v["shape"], own)


def _as_cut(v: Values) -> Term:
    """A shift of the axis that is cut, in the cut's axes."""
    run = _run_of_shift(v) or ()
    sizes = (d if a in run else 1 for a, d in zip(AXES, v["shape"], strict=True))
    return reshape(v["b"], tuple(sizes))


def _over_shifted(over: Over, v: Values) -> Term:
    return over(reshape(v["x"] + v["b"], v["shape"]), v["axes"])


def _of_shifted(over: Over, v: Values) -> Term:
    whole, shift = reshape(v["x"], v["shape"]), _as_cut(v)
    added = broadcast_sum(shift, whole, v["axes"]) if over is sum else mean(shift, v["axes"])
    return over(whole, v["axes"]) + added


def _of_shifts() -> Iterator[Rule]:
    for name, over in OVER:
        yield rule_of(
            f"{name}-of-shifted-in-groups",
            ("x", "b!", "@axes", "@shape"),
            partial(_over_shifted, over),
            partial(_of_shifted, over),
            f"The {name} of shifted values is theirs plus that of the shifts, also of groups.",
            where=lambda v: _run_of_shift(v) is not None,
            mark="cancels",
            safe=lambda v: is_map(v["x"]),
        )


def _axis_of(s: Term, x: Term, shape: Sequence[Dim]) -> int | None:
    """The axis of x that a reshape cuts into axes of which one or more vary in s, and no others."""
    if any(b not in (1, d) for b, d in zip(s.shape, shape, strict=True)):
        return None
    for axis in AXES:
        run = _cut(x.shape, shape, axis)
        if run and not is_unit_along(s, run) and is_unit_along(s, set(AXES) - set(run)):
            return axis
    return None


def _as_whole(s: Term, x: Term, shape: Sequence[Dim]) -> Term:
    """A value of the cut's axes as one of the axis that is cut."""
    axis = _axis_of(s, x, shape)
    if axis is None:
        raise ValueError("no axis that is cut")
    run = _cut(x.shape, shape, axis) or ()
    sizes = tuple(d if a in run else 1 for a, d in zip(AXES, shape, strict=True))
    whole = s if s.shape == sizes else expand(s, sizes)
    return reshape(whole, tuple(d if a == axis else 1 for a, d in zip(AXES, x.shape, strict=True)))


def _before_cuts() -> Iterator[Rule]:
    for op in _ARITHMETIC:
        yield Rule(
            f"{op}-of-features-in-groups",
            "x @shape s!",
            lambda x, shape, s, op=op: apply(op, reshape(x, shape), s),
            lambda x, shape, s, op=op: reshape(apply(op, x, _as_whole(s, x, shape)), shape),
            exact_of(op),
            "What is done to features in groups is done to the features, before they are cut.",
            where=lambda x, shape, s: _axis_of(s, x, shape) is not None,
            simplify=lambda x, shape, s: is_map(x),
        )


RULES = (
    *_of_products(),
    *_of_convolutions(),
    *_of_shifts(),
    *_before_cuts(),
)
