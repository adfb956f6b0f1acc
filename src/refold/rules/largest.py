"""Largest elements of windows: what keeps the order of elements comes behind them, where there are
fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refold.ir import OPS
from refold.ir.convolution import Window, windows
from refold.rules.broadcasts import UNARY
from refold.rules.image import spatial_axes
from refold.rules.rule import Rule
from refold.rules.term import Term, apply, held, max, max_pool

Attrs = Mapping[str, Any]

_WINDOW = OPS["max_pool"].attrs
_OF_WINDOWS = "".join(f" @{a}" for a in _WINDOW)


def _pool(x: Term, attrs: Attrs) -> Term:
    """The pooling whose attributes are among `attrs`."""
    return apply("max_pool", x, **{a: attrs[a] for a in _WINDOW})


def _own(attrs: Attrs) -> Attrs:
    """The others: those of the op that is pooled."""
    return {a: v for a, v in attrs.items() if a not in _WINDOW}


def _laid(x: Term, attrs: Attrs) -> tuple[Window, ...]:
    return windows(x.node, {a: attrs[a] for a in _WINDOW})


def _fewer(x: Term, **attrs: Any) -> bool:
    """Are there no more windows than elements?"""
    return all(w.made <= w.given for w in _laid(x, attrs))


def _fewer_by(x: Term, c: Term, **attrs: Any) -> bool:
    return _fewer(x, **attrs)


def _passing(op: str, name: str, why: str, where: Callable[..., bool] | None = None) -> Rule:
    """An op of one input, which never falls, comes behind the pooling."""
    return Rule(
        name,
        f"x[N,C,...]{_OF_WINDOWS}{held(op)}",
        lambda x, **attrs: _pool(apply(op, x, **_own(attrs)), attrs),
        lambda x, **attrs: apply(op, _pool(x, attrs), **_own(attrs)),
        "reals",
        why,
        where=where,
        simplify=_fewer,
    )


def _of_two(op: str, word: str, name: str, why: str) -> Rule:
    """An op with what is the same for all places comes behind the pooling."""
    return Rule(
        f"max_pool-of-{name}",
        f"x[N,C,...] {word}{_OF_WINDOWS}",
        lambda x, c, **attrs: _pool(apply(op, x, c), attrs),
        lambda x, c, **attrs: apply(op, _pool(x, attrs), c),
        "reals",
        why,
        simplify=_fewer_by,
    )


def _covered(x: Term, axes: tuple[int, ...], **attrs: Any) -> bool:
    """Is every element in some window, and are these over all places?"""
    laid = _laid(x, attrs)
    return axes[-len(laid) :] == spatial_axes(attrs["strides"]) and all(
        w.apart == 1 and w.size >= w.step and w.begin + w.size >= w.given for w in laid
    )


def _joined(sizes: Any, strides: Any, sizes2: Any, strides2: Any) -> tuple[Any, Any]:
    """Windows of windows."""
    spans = (k + (k2 - 1) * s for k, s, k2 in zip(sizes, strides, sizes2, strict=True))
    return tuple(spans), tuple(a * b for a, b in zip(strides, strides2, strict=True))


RULES = (
    *(
        _passing(
            op,
            f"max_pool-of-{op}",
            f"A function that never falls, such as {op}, keeps the order of its inputs.",
        )
        for op in UNARY
        if not OPS[op].attrs and OPS[op].monotone({}) == 1
    ),
    *(
        _passing(
            op,
            f"max_pool-of-{op}",
            f"Where {op} never falls, by its attributes, it keeps the order of its inputs.",
            where=lambda x, op=op, **attrs: OPS[op].monotone(_own(attrs)) == 1,
        )
        for op in UNARY
        if OPS[op].attrs
    ),
    *(
        _of_two(
            at,
            "c[_,_,1...]",
            f"clipped-{at}",
            "Clipping all elements by the same bound keeps their order.",
        )
        for at in ("maximum", "minimum")
    ),
    _of_two("add", "c[_,_,1...]", "shifted", "The largest of elements shifted alike is shifted."),
    _of_two("sub", "c[_,_,1...]!", "lowered", "The largest of elements lowered alike is lowered."),
    _of_two(
        "mul",
        "c[_,_,1...]+",
        "scaled",
        "A factor that is not negative does not change which element is the largest.",
    ),
    Rule(
        "max_pool-of-max_pool",
        "x[N,C,...] @sizes @strides @sizes2 @strides2",
        lambda x, sizes, strides, sizes2, strides2: max_pool(
            max_pool(x, sizes, strides, 0, 1, False), sizes2, strides2, 0, 1, False
        ),
        lambda x, sizes, strides, sizes2, strides2: max_pool(
            x, *_joined(sizes, strides, sizes2, strides2), 0, 1, False
        ),
        "bits",
        "The largest of the largest of windows is that of a larger window.",
        where=lambda x, sizes, strides, sizes2, strides2: all(
            k >= s for k, s in zip(sizes, strides, strict=True)
        ),
    ),
    Rule(
        "max-of-max_pool",
        f"x[N,C,...] @axes{_OF_WINDOWS}",
        lambda x, axes, **attrs: max(_pool(x, attrs), axes),
        lambda x, axes, **attrs: max(x, axes),
        "bits",
        "The largest of the largest of windows that cover an image is that of the image.",
        where=_covered,
    ),
)
