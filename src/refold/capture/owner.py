"""In whose memory a result lies: its own, an argument's, a parameter's, that of another result."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

# These give their argument, or a view of it, where that has the dtype and lies as it is asked for.
_MAY_SHOW = {
    *("reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "type_as", "view_as"),
    *("expand_as", "dropout", "feature_dropout", "alpha_dropout"),
}
_MAY_DRAW = re.compile("dropout|scaled_dot_product|lstm|gru|rnn|rrelu")


def owner(node: torch.fx.Node) -> torch.fx.Node:
    """The placeholder or the call that made the memory in which the value of `node` lies."""
    while node.op == "call_function":
        call = node.args[0] if node.target is operator.getitem else node
        if not (isinstance(call, torch.fx.Node) and shows(call)):
            return node
        source = call.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    return node


def shows(call: torch.fx.Node) -> bool:
    """Is the result of a call its first argument, or a view of it?"""
    target, source = call.target, call.args[0] if call.args else None
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(source, torch.fx.Node):
        return False
    aliases = [r.alias_info for r in target._schema.returns]
    if any(a is not None and not a.is_write for a in aliases):
        return True
    name = target.overloadpacket.__name__
    if name not in _MAY_SHOW:
        return False
    if _MAY_DRAW.search(name) and not draws_nothing(target, call.args, call.kwargs):
        return False  # what is drawn is another value at each call
    before: Any = source.meta.get("val")
    after: Any = call.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return before.dtype == after.dtype and before.is_contiguous()


def draws_nothing(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Does a call that may draw random numbers draw none, its probability or mode being off?"""
    if not _MAY_DRAW.search(target.overloadpacket.__name__):
        return False
    given = named(target, args, kwargs)
    off = [given.get(name) == 0 for name in ("p", "dropout", "dropout_p") if name in given]
    off += [given.get(name) is False for name in ("train", "training") if name in given]
    return any(off)


def named(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of an operator by their names."""
    given = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    given |= {a.name: v for a, v in zip(target._schema.arguments, args, strict=False)}
    return given | dict(kwargs)
