"""What forward draws: which calls can be said to draw the same as eager's, and what they give.

PyTorch draws into memory in the order in which it lies. So a draw is taken where it lies row after
row, and has the dtype and the sizes that eager's has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from refold.capture.owner import draws_nothing, named, owner
from refold.capture.values import CaptureError, Value
from refold.ir import Dim, Node, as_scalar, make

_DROPOUT = torch.ops.aten.dropout.default
_NATIVE = torch.ops.aten.native_dropout.default
_BERNOULLI = torch.ops.aten.bernoulli.p
# Drawn by the call of dropout itself; and by calls of bernoulli_, which a decomposition shows.
_BY_HAND = re.compile("(feature_|alpha_|feature_alpha_)dropout_?|dropout_|bernoulli_")


def draws(node: torch.fx.Node) -> bool:
    """May a call draw random numbers, as it is called?"""
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
        and not draws_nothing(target, node.args, node.kwargs)
    )


def drawn_by(nodes: Iterable[torch.fx.Node]) -> tuple[str, ...]:
    """What calls draw, in their order, as the rows of the op table that say it: before a
    decomposition, in which a dropout in place and one that is not look alike. Of a dropout also
    whether it is of memory of its own.

    Raises CaptureError for a draw that would not be eager's.
    """
    found = []
    for node in filter(draws, nodes):
        target: Any = node.target
        name = target.overloadpacket.__name__
        given = named(target, node.args, node.kwargs)
        source = given.get("input", given.get("self"))
        plain = target is _DROPOUT
        if not plain and not (_BY_HAND.fullmatch(name) or target is _BERNOULLI):
            raise CaptureError(f"forward draws random numbers ({target})")
        if not isinstance(given["p"], (int, float)):  # of each element another
            raise CaptureError(f"forward draws random numbers ({target}, of no one probability)")
        value = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            raise CaptureError(f"forward draws random numbers ({target}, of no floats)")
        if given.get("generator") is not None:
            raise CaptureError(f"forward draws random numbers ({target}, of a generator)")
        if name.find("dropout") >= 0 and given["p"] == 1:
            continue  # all are dropped, and nothing is drawn
        if not value.is_contiguous() and not name.startswith("feature"):
            raise CaptureError(
                f"forward draws random numbers ({target}) in the order of a value that does not"
                " lie row after row"
            )
        assert isinstance(source, torch.fx.Node)
        found.append(_of_dropout(source, value) if plain else "bernoulli")
    return tuple(found)


def _of_dropout(source: torch.fx.Node, value: torch.Tensor) -> str:
    begins = value.storage_offset() == 0
    own = owner(source).op == "call_function"
    return "kept" if begins and own else "kept of given memory"


def is_drawn(node: torch.fx.Node) -> bool:
    """Is a call of a program that has been looked at (`drawn_by`) one that draws, or a dropout of
    everything?"""
    return node.target in (_DROPOUT, _NATIVE, _BERNOULLI) and draws(node)


def everything_dropped(node: torch.fx.Node) -> bool:
    """Does a dropout drop all of a value? PyTorch multiplies it with zeros then."""
    return node.target is not _BERNOULLI and bool(node.args[1] == 1)


def drawn(
    node: torch.fx.Node, how: str, number: int, before: Node, shape: tuple[Dim, ...]
) -> tuple[Node, Value]:
    """What a call draws, of ones and zeros, and as a value.

    number, before: which draw of forward it is, and the one before it.
    """
    meta: Any = node.args[0].meta["val"]  # type: ignore[union-attr]
    p: Any = node.args[1]
    about: dict[str, Any] = {"dtype": meta.dtype, "number": number, "shape": shape}
    if node.target is _BERNOULLI:
        about["probability"] = float(p)
    elif how == "bernoulli":
        raise CaptureError("what forward draws looks otherwise when it is decomposed")
    else:
        about |= {"p": float(p), "aligned": how == "kept"}
    try:
        made = make(how.split()[0], before, **about)
    except (ValueError, KeyError) as error:
        raise CaptureError(f"forward draws random numbers ({error})") from error
    return made, Value(made, shape)


FIRST = as_scalar(0.0, torch.float32)  # what comes before the first draw


def dropped(x: Value, noise: Value | None, p: float) -> Value:
    """A value of which some elements are dropped, the others made larger; all of them without
    noise."""
    if noise is None:
        return Value(make("mul", x.node, as_scalar(0.0, x.dtype)), x.shape)
    scaled = make("div", noise.node, as_scalar(1 - p, x.dtype))
    return Value(make("mul", x.node, scaled), x.shape)
