"""Terms of a combination that have not the same form, and are one map all the same.

A map of a low rank beside a whole one of the same input is a part of its weight. A convolution with
a small kernel is one with a larger kernel, zero around it; and an image that is added to its own
convolution is that with a kernel of a single one. So the branches of a block that has no function
between them are one convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refold.ir.shapes import pad
from refold.rules.image import channels, is_zero, meets, spatial_axes
from refold.rules.rule import Rule
from refold.rules.safety import may_be_ordered
from refold.rules.schemas import (
    Values,
    factor_of,
    rule_of,
    times,
    two,
    weighted,
    with_others,
)
from refold.rules.term import (
    Term,
    concatenated,
    constant,
    conv,
    diagonal,
    linear,
    reshape,
    transpose,
)

_OTHERS = (("", ()), ("-among-others", ("r",)))
_WINDOW = ("strides", "paddings", "dilations", "groups")
_FACTORS = ("s[1,O?,1...]!", "t[1,O?,1...]!")


# --- maps of a low rank ---------------------------------------------------------------------------
def _low_rank() -> Iterator[Rule]:
    for name, others in _OTHERS:
        yield rule_of(
            f"low-rank-term{name}",
            (
                "x[N,K]",
                "v[M,K]!",
                "w[R,K]!",
                "u[M,R]!",
                "s[1,1,1,1,M?]!",
                "t[1,1,1,1,M?]!",
                *others,
            ),
            lambda v: two(v, linear(v["x"], v["v"]), linear(linear(v["x"], v["w"]), v["u"])),
            lambda v: with_others(v, linear(v["x"], _whole(v))),
            "Two maps after each other, added to one of the same input, are a part of its weight.",
            mark="range",
            safe=lambda v: may_be_ordered(v["x"], v["w"], v["u"]),
            terms=True,
        )


def _whole(v: Values) -> Term:
    """The weight of both terms."""
    s, t = (factor_of(v[f], -1, -2) for f in "st")
    return weighted(v["v"], s, linear(v["u"], transpose(v["w"])), t)


# --- kernels within kernels -----------------------------------------------------------------------
def _small_kernels() -> Iterator[Rule]:
    for name, others in _OTHERS:
        yield rule_of(
            f"kernel-within-kernel{name}",
            (
                *("x[N,C,...]", "w[O,D,...]!", "b[1,1,1,1,O?]!"),
                *("w2[O,D,...]!", "b2[1,1,1,1,O?]!", *_FACTORS, *others),
                *(f"@{a}" for a in _WINDOW),
                *("@paddings2", "@dilations2"),
            ),
            lambda v: two(v, _of_first(v), _of_second(v)),
            lambda v: with_others(v, _both(v)),
            "A convolution is one with a larger kernel that is zero around its own.",
            where=_is_within,
            mark="range",
            terms=True,
        )


def _of_first(v: Values) -> Term:
    return conv(v["x"], v["w"], v["b"], *(v[a] for a in _WINDOW))


def _of_second(v: Values) -> Term:
    window = v["strides"], v["paddings2"], v["dilations2"], v["groups"]
    return conv(v["x"], v["w2"], v["b2"], *window)


def _starts(v: Values, outer: str, inner: str) -> tuple[int, ...] | None:
    """Along each axis the element of one kernel at which the other begins; None where it is not
    within it. outer, inner: behind the names of what belongs to either, "" or "2"."""
    found = []
    for at, axis in enumerate(spatial_axes(v["strides"])):
        size, least = (v[f"w{which}"].shape[axis] for which in (outer, inner))
        apart, other = (v[f"dilations{which}"][at] for which in (outer, inner))
        ahead = v[f"paddings{outer}"][at] - v[f"paddings{inner}"][at]
        if (least > 1 and other != apart) or ahead % apart:
            return None
        found.append(ahead // apart)
        if not 0 <= found[-1] <= size - least:
            return None
    return tuple(found)


def _is_within(v: Values) -> bool:
    """Is one of the kernels within the other, and does each place meet some of the image?"""
    if v["w"].shape == v["w2"].shape or _of_first(v).shape != _of_second(v).shape:
        return False
    for outer, inner in (("", "2"), ("2", "")):
        if _starts(v, outer, inner) is not None:
            window = v["strides"], v[f"paddings{outer}"], v[f"dilations{outer}"]
            return meets(v["x"], v[f"w{outer}"], *window)
    return False


def _both(v: Values) -> Term:
    outer, inner = ("", "2") if _starts(v, "", "2") is not None else ("2", "")
    starts = _starts(v, outer, inner)
    if starts is None:
        raise ValueError("neither kernel is within the other")
    weights = {outer: v[f"w{outer}"]}
    weights[inner] = _grown(v[f"w{inner}"], weights[outer], starts, v["strides"])
    window = v["strides"], v[f"paddings{outer}"], v[f"dilations{outer}"], v["groups"]
    return conv(v["x"], *_combined(v, weights[""], weights["2"], v["b2"]), *window)


def _combined(v: Values, w: Term, w2: Term, b2: Term) -> tuple[Term, Term]:
    """The weights and biases of two terms, each times its factor."""
    features = channels(v["strides"])
    s, t = (factor_of(v[f], features, features - 1) for f in "st")
    s1, t1 = (factor_of(v[f], features, -1) for f in "st")
    b = v["b"]
    if is_zero(b2) and not is_zero(b):
        return weighted(w, s, w2, t), times(b, s1)
    return weighted(w, s, w2, t), weighted(b, s1, b2, t1)


def _grown(w: Term, like: Term, starts: Sequence[int], strides: tuple[int, ...]) -> Term:
    """A kernel with zeros around it, as large as another."""
    for start, axis in zip(starts, spatial_axes(strides), strict=True):
        size, whole = w.shape[axis], like.shape[axis]
        assert isinstance(size, int) and isinstance(whole, int)
        if start + size > whole:
            raise ValueError(f"{size} elements from {start} on, in a kernel of {whole}")
        around = [
            constant(
                0, w, tuple(n if a == axis % len(w.shape) else d for a, d in enumerate(w.shape))
            )
            for n in (start, whole - size - start)
            if n
        ]
        if around:
            parts = (*around[: bool(start)], w, *around[bool(start) :])
            w = concatenated(parts, axis)
    return w


# --- the image itself -----------------------------------------------------------------------------
def _images() -> Iterator[Rule]:
    for name, others in _OTHERS:
        yield rule_of(
            f"image-beside-its-convolution{name}",
            (
                *("x[N,O,...]", "w[O,D,...]!", "b[1,1,1,1,O?]!", *_FACTORS, *others),
                *(f"@{a}" for a in _WINDOW),
            ),
            lambda v: two(v, _of_first(v), v["x"]),
            lambda v: with_others(v, _with_image(v)),
            "An image is its convolution with a kernel of a single one.",
            where=_has_centre,
            mark="range",
            terms=True,
        )


def _has_centre(v: Values) -> bool:
    """Does the result lie where the image lies, an element of the kernel on each of its own?"""
    window = v["strides"], v["paddings"], v["dilations"]
    if _of_first(v).shape != v["x"].shape or not meets(v["x"], v["w"], *window):
        return False
    apart = zip(v["paddings"], v["dilations"], strict=True)
    return set(v["strides"]) == {1} and all(p % d == 0 for p, d in apart)


def _with_image(v: Values) -> Term:
    w, strides = v["w"], v["strides"]
    rows, depth, *kernel = w.shape[channels(strides) - 1 :]
    eye = diagonal(constant(1, w, pad((depth,))))
    if v["groups"] > 1:
        eye = concatenated([eye] * v["groups"], -2)
    single = reshape(eye, pad((rows, depth, *(1 for _ in kernel))))
    starts = [p // d for p, d in zip(v["paddings"], v["dilations"], strict=True)]
    zero = constant(0, v["b"], pad((1,)))
    weights = _combined(v, w, _grown(single, w, starts, strides), zero)
    return conv(v["x"], *weights, *(v[a] for a in _WINDOW))


RULES = (*_low_rank(), *_small_kernels(), *_images())
